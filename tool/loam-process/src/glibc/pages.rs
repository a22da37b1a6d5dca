//! Which pages of a process are resident, from `/proc/PID/pagemap`: 8 bytes a page, the highest bit says that the page is
//! in memory. The owner of a process may read these bits; without them every page counts as resident.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::process::Pid;

/// Bytes of a page. The layouts are those of x86-64; elsewhere pages may be longer and the figures coarser.
pub const PAGE: u64 = 4096;
/// So many pages are read at a time.
const PAGES: usize = 64 << 10;
const PRESENT: u64 = 1 << 63;

/// The pages of the stretch that was looked at last.
pub struct Residency {
    file: Option<File>,
    start: u64,
    /// For each page, how many before it are resident; one longer than the pages.
    before: Vec<u32>,
}

impl Residency {
    /// Of a process.
    pub fn open(pid: Pid) -> Residency {
        Residency {
            file: File::open(format!("/proc/{pid}/pagemap")).ok(),
            start: 0,
            before: Vec::new(),
        }
    }

    /// Reads which pages of a stretch are resident.
    pub fn look_at(&mut self, start: u64, end: u64) {
        self.start = start & !(PAGE - 1);
        let count = (end.next_multiple_of(PAGE) - self.start) / PAGE;
        self.before.clear();
        self.before.push(0);
        let mut bytes = vec![0; 8 * PAGES];
        let mut sum = 0;
        let mut page = 0;
        while page < count {
            let some = (count - page).min(PAGES as u64) as usize;
            let part = &mut bytes[..8 * some];
            let offset = (self.start / PAGE + page) * 8;
            let is_read = self
                .file
                .as_ref()
                .is_some_and(|file| file.read_exact_at(part, offset).is_ok());
            for word in part.chunks_exact(8) {
                let word = u64::from_le_bytes(*word.first_chunk().expect("eight bytes"));
                sum += u32::from(!is_read || word & PRESENT != 0);
                self.before.push(sum);
            }
            page += some as u64;
        }
    }

    /// Resident bytes between two addresses of that stretch, by whole pages.
    pub fn resident(&self, start: u64, end: u64) -> u64 {
        let last = self.before.len() - 1;
        let place =
            |address: u64| (address.saturating_sub(self.start) / PAGE).min(last as u64) as usize;
        let pages = self.before[place(end.next_multiple_of(PAGE))] - self.before[place(start)];
        u64::from(pages) * PAGE
    }
}
