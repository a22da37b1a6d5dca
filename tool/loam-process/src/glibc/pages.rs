//! Resident bytes of stretches of a process, by its pages. If these may not be read, every page
//! counts as resident.

use crate::pagemap::{Pagemap, Whereabouts};
use crate::process::Pid;

/// Bytes of a page. The layouts are those of x86-64; elsewhere pages may be longer and the figures
/// coarser.
pub const PAGE: u64 = 4096;

/// The pages of the last stretch.
pub struct Residency {
    map: Option<Pagemap>,
    start: u64,
    /// For each page, the number of resident pages before it; one longer than the pages.
    before: Vec<u32>,
    /// The same for pages that other processes have too. Empty: there are none.
    common_before: Vec<u32>,
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
            common_before: Vec::new(),
            holds: Vec::new(),
        }
    }

    /// Makes one for a memory whose pages are not known: each counts as resident.
    pub fn unknown() -> Residency {
        Residency {
            map: None,
            start: 0,
            before: Vec::new(),
            common_before: Vec::new(),
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
            common_before: Vec::new(),
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

    fn add_common(&mut self, is_common: bool) {
        let sum = self.common_before.last().copied();
        if let Some(sum) = sum {
            self.common_before.push(sum + u32::from(is_common));
        } else if is_common {
            // Most processes share none. The pages until here did not.
            self.common_before.resize(self.before.len(), 0);
            self.common_before.push(1);
        }
    }

    /// Reads which pages of a stretch are resident.
    pub fn look_at(&mut self, start: u64, end: u64) {
        self.start = start & !(PAGE - 1);
        let count = (end.next_multiple_of(PAGE) - self.start) / PAGE;
        self.before.clear();
        self.common_before.clear();
        self.before.push(0);
        self.holds.clear();
        if let Some(map) = self.map.take() {
            // Pages that were not told count below.
            let _ = map.find(self.start / PAGE, count, |page| {
                let is_common = page == Whereabouts::Common;
                self.add_common(is_common);
                let is_resident = is_common || page == Whereabouts::Resident;
                self.add(is_resident, page != Whereabouts::Nowhere);
            });
            self.map = Some(map);
        }
        while (self.holds.len() as u64) < count {
            self.add(true, true);
        }
    }

    /// The addresses of the pages between two addresses that hold something. Address space without
    /// memory costs nothing; a kernel that can not leave it out is asked only for so much of it.
    pub fn pages_that_hold(&self, start: u64, end: u64) -> Vec<u64> {
        const MOST_UNSCANNED: u64 = 1 << 30;
        let mut found = Vec::new();
        let Some(map) = &self.map else {
            return (start..end.min(start + MOST_UNSCANNED))
                .step_by(PAGE as usize)
                .collect();
        };
        let is_scanned = map.runs(start, end, |start, end| {
            found.extend((start..end).step_by(PAGE as usize));
        });
        if !is_scanned {
            found.clear();
            let end = end.min(start + MOST_UNSCANNED);
            let mut page = start;
            let _ = map.find(start / PAGE, (end - start) / PAGE, |whereabouts| {
                if whereabouts != Whereabouts::Nowhere {
                    found.push(page);
                }
                page += PAGE;
            });
        }
        found
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
        self.between(&self.before, start, end)
    }

    /// Those of them that other processes have too.
    pub fn common(&self, start: u64, end: u64) -> u64 {
        self.between(&self.common_before, start, end)
    }

    fn between(&self, sums: &[u32], start: u64, end: u64) -> u64 {
        let Some(last) = sums.len().checked_sub(1) else {
            return 0;
        };
        let place =
            |address: u64| (address.saturating_sub(self.start) / PAGE).min(last as u64) as usize;
        let pages = sums[place(end.next_multiple_of(PAGE))] - sums[place(start)];
        u64::from(pages) * PAGE
    }
}
