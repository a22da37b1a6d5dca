//! Resident bytes of stretches of a process, by its pages. If these may not be read, every page counts as resident.

use crate::pagemap::{Pagemap, Whereabouts};
use crate::process::Pid;

/// Bytes of a page. The layouts are those of x86-64; elsewhere pages may be longer and the figures coarser.
pub const PAGE: u64 = 4096;

/// The pages of the last stretch.
pub struct Residency {
    map: Option<Pagemap>,
    start: u64,
    /// For each page, the number of resident pages before it; one longer than the pages.
    before: Vec<u32>,
    /// For each page, whether it holds something: in memory or swapped out.
    holds: Vec<bool>,
}

impl Residency {
    /// Makes one for a process.
    pub fn open(pid: Pid) -> Residency {
        Residency {
            map: Pagemap::open(pid).ok(),
            start: 0,
            before: Vec::new(),
            holds: Vec::new(),
        }
    }

    /// Makes one from known pages, from a page number on.
    #[cfg(test)]
    pub fn of_pages(first: u64, pages: impl Iterator<Item = bool>) -> Residency {
        let mut residency = Residency {
            map: None,
            start: first * PAGE,
            before: vec![0],
            holds: Vec::new(),
        };
        pages.for_each(|is_resident| residency.add(is_resident, is_resident));
        residency
    }

    fn add(&mut self, is_resident: bool, holds: bool) {
        let sum = self.before.last().copied().unwrap_or(0);
        self.before.push(sum + u32::from(is_resident));
        self.holds.push(holds);
    }

    /// Reads which pages of a stretch are resident.
    pub fn look_at(&mut self, start: u64, end: u64) {
        self.start = start & !(PAGE - 1);
        let count = (end.next_multiple_of(PAGE) - self.start) / PAGE;
        self.before.clear();
        self.before.push(0);
        self.holds.clear();
        if let Some(map) = self.map.take() {
            // Pages that were not told count below.
            let _ = map.find(self.start / PAGE, count, |page| {
                self.add(page == Whereabouts::Resident, page != Whereabouts::Nowhere);
            });
            self.map = Some(map);
        }
        while (self.holds.len() as u64) < count {
            self.add(true, true);
        }
    }

    /// Whether the page at an address holds something, as far as is known.
    pub fn holds_something(&self, address: u64) -> bool {
        let page = address.checked_sub(self.start).map(|offset| offset / PAGE);
        let page = page.and_then(|page| usize::try_from(page).ok());
        page.and_then(|page| self.holds.get(page))
            .copied()
            .unwrap_or(true)
    }

    /// Whether any page between two addresses holds something.
    pub fn holds(&self, start: u64, end: u64) -> bool {
        let mut pages = (start..end).step_by(PAGE as usize);
        pages.any(|page| self.holds_something(page))
    }

    /// The number of the stretch's first page, and how many it has.
    pub fn span(&self) -> (u64, u64) {
        let count = self.before.len().saturating_sub(1);
        (self.start / PAGE, count as u64)
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
