//! Resident bytes of stretches of a process, by its pages. Where those may not be read every page counts as resident.

use crate::pagemap::Pagemap;
use crate::process::Pid;

/// Bytes of a page. The layouts are those of x86-64; elsewhere pages may be longer and the figures coarser.
pub const PAGE: u64 = 4096;

/// The pages of the stretch that was looked at last.
pub struct Residency {
    map: Option<Pagemap>,
    start: u64,
    /// For each page, how many before it are resident; one longer than the pages.
    before: Vec<u32>,
}

impl Residency {
    /// Of a process.
    pub fn open(pid: Pid) -> Residency {
        Residency {
            map: Pagemap::open(pid).ok(),
            start: 0,
            before: Vec::new(),
        }
    }

    /// Reads which pages of a stretch are resident.
    pub fn look_at(&mut self, start: u64, end: u64) {
        self.start = start & !(PAGE - 1);
        let count = (end.next_multiple_of(PAGE) - self.start) / PAGE;
        let before = &mut self.before;
        before.clear();
        before.push(0);
        let mut sum = 0;
        let mut add = |is_resident| {
            sum += u32::from(is_resident);
            before.push(sum);
        };
        let mut told = 0;
        if let Some(map) = &self.map {
            let tell = |is_resident| {
                add(is_resident);
                told += 1;
            };
            // What was not told counts below.
            let _ = map.look(self.start / PAGE, count, tell);
        }
        (told..count).for_each(|_| add(true));
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
