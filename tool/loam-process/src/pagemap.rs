//! Which pages of a process are resident, by `/proc/PID/pagemap`: 8 bytes a page, whose highest bit
//! says that the page is in memory. The owner of a process may read these bits.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::process::Pid;

/// Bytes of an entry.
const ENTRY: usize = 8;
/// Of its last byte.
const PRESENT: u8 = 0x80;
/// So many pages are read at a time.
const AT_ONCE: u64 = 4_096;

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
        let mut entries = vec![0; ENTRY * count.min(AT_ONCE) as usize];
        let mut done = 0;
        while done < count {
            let some = (count - done).min(AT_ONCE);
            let part = &mut entries[..ENTRY * some as usize];
            self.0.read_exact_at(part, (first + done) * ENTRY as u64)?;
            let flags = part.chunks_exact(ENTRY).map(|entry| entry[ENTRY - 1]);
            flags.for_each(|flag| tell(flag & PRESENT != 0));
            done += some;
        }
        Ok(())
    }
}
