//! Which pages of a process are resident, by `/proc/PID/pagemap`: 8 bytes a page, whose highest bits
//! say that the page is in memory, or swapped out. The owner of a process may read these bits.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::process::Pid;

/// Bytes of an entry.
const ENTRY: usize = 8;
/// Of its last byte.
const PRESENT: u8 = 0x80;
const SWAPPED: u8 = 0x40;
/// So many pages are read at a time.
const AT_ONCE: u64 = 4_096;

/// Where a page's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// In memory.
    Resident,
    /// Swapped out.
    Swapped,
    /// Nowhere: it is zero, or in a file.
    Nowhere,
}

impl Whereabouts {
    fn of(flags: u8) -> Whereabouts {
        match flags {
            flags if flags & PRESENT != 0 => Whereabouts::Resident,
            flags if flags & SWAPPED != 0 => Whereabouts::Swapped,
            _ => Whereabouts::Nowhere,
        }
    }
}

/// The pages of a process.
#[derive(Debug)]
pub struct Pagemap(File);

impl Pagemap {
    /// Opens it.
    pub fn open(pid: Pid) -> io::Result<Pagemap> {
        File::open(format!("/proc/{pid}/pagemap")).map(Pagemap)
    }

    /// Tells of each page from number `first` on whether it is resident. After an error the pages that
    /// were not told are not known.
    pub fn look(&self, first: u64, count: u64, mut tell: impl FnMut(bool)) -> io::Result<()> {
        self.find(first, count, |page| tell(page == Whereabouts::Resident))
    }

    /// The same, with pages that are swapped out told from those that are nowhere.
    pub fn find(
        &self,
        first: u64,
        count: u64,
        mut tell: impl FnMut(Whereabouts),
    ) -> io::Result<()> {
        let mut entries = vec![0; ENTRY * count.min(AT_ONCE) as usize];
        let mut done = 0;
        while done < count {
            let some = (count - done).min(AT_ONCE);
            let part = &mut entries[..ENTRY * some as usize];
            self.0.read_exact_at(part, (first + done) * ENTRY as u64)?;
            let flags = part.chunks_exact(ENTRY).map(|entry| entry[ENTRY - 1]);
            flags.for_each(|flags| tell(Whereabouts::of(flags)));
            done += some;
        }
        Ok(())
    }
}
