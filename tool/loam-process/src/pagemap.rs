//! Which pages of a process are resident, by `/proc/PID/pagemap`. It has 8 bytes a page, and the
//! highest bits say that the page is in memory, or swapped out, and whether other processes have it
//! too: after a `fork()` two processes share all pages that neither has written to. The owner of a
//! process may read these bits.
//!
//! If the kernel has PAGEMAP_SCAN, it is asked for runs instead, so that a long stretch without
//! memory costs one call; then only the runs are read. Both ways give the same answers.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::process::Pid;
use crate::queries::{self, Run};

/// Bytes of an entry.
const ENTRY: usize = 8;
/// Bits of an entry's last byte.
const PRESENT: u8 = 0x80;
const SWAPPED: u8 = 0x40;
const OF_FILE: u8 = 0x20;
const EXCLUSIVE: u8 = 0x01;
/// How many pages are read at a time.
const AT_ONCE: u64 = 4_096;
/// How many pages that hold something are scanned at a time. Chosen: 0.2 ms. So long a thread of
/// the process waits that wants to change its mappings.
const SCANNED: u64 = 4_096;
/// How many runs are requested at a time.
const RUNS: usize = 512;
/// Bytes of a page. On systems other than x86-64 a page may have more; then the file is read.
const PAGE: u64 = 4_096;

/// Where a page's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// In memory, of this process alone.
    Resident,
    /// In memory, and other processes have the same page: giving it back here frees nothing.
    Common,
    /// Swapped out.
    Swapped,
    /// Nowhere: the page is zero, or in a file.
    Nowhere,
}

impl Whereabouts {
    fn of(flags: u8) -> Whereabouts {
        match flags {
            flags if flags & PRESENT != 0 && is_common(flags) => Whereabouts::Common,
            flags if flags & PRESENT != 0 => Whereabouts::Resident,
            flags if flags & SWAPPED != 0 => Whereabouts::Swapped,
            _ => Whereabouts::Nowhere,
        }
    }
}

/// Whether other processes have the page too, though it is no page of a file.
fn is_common(flags: u8) -> bool {
    flags & (PRESENT | OF_FILE | EXCLUSIVE) == PRESENT
}

/// What the pages between two addresses hold, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// In memory.
    pub resident: u64,
    /// Resident bytes that are not a page of a file.
    pub anonymous: u64,
    /// Anonymous bytes that other processes have too.
    pub common: u64,
    /// Resident in huge pages.
    pub huge: u64,
    /// Swapped out.
    pub swapped: u64,
}

/// The pages of a process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    /// Whether the kernel has PAGEMAP_SCAN, as far as is known.
    scans: AtomicBool,
}

impl Pagemap {
    /// Opens it.
    pub fn open(pid: Pid) -> io::Result<Pagemap> {
        let file = File::open(format!("/proc/{}/pagemap", super::process::face(pid)))?;
        let scans = AtomicBool::new(rustix::param::page_size() as u64 == PAGE);
        Ok(Pagemap { file, scans })
    }

    /// What the pieces of a stretch hold, by their ends in ascending order; none if only
    /// PAGEMAP_SCAN could say. One scan goes over all pieces.
    pub fn held(&self, start: u64, ends: &[u64]) -> Option<Vec<Held>> {
        let mut pieces = vec![Held::default(); ends.len()];
        let mut piece = 0;
        let mut flags = Vec::new();
        self.scan(start, *ends.last()?, |run| {
            let has = |bit| run.pages & bit != 0;
            let mut at = run.start;
            while at < run.end && piece < ends.len() {
                let bytes = run.end.min(ends[piece]).saturating_sub(at);
                let held = &mut pieces[piece];
                if has(queries::PAGE_SWAPPED) {
                    held.swapped += bytes;
                } else if !has(queries::PAGE_ZERO) {
                    held.resident += bytes;
                    if !has(queries::PAGE_OF_FILE) {
                        held.anonymous += bytes;
                        held.common += self.common(at, bytes, &mut flags);
                    }
                    held.huge += if has(queries::PAGE_HUGE) { bytes } else { 0 };
                }
                at += bytes;
                piece += usize::from(ends[piece] <= at);
            }
        })
        .then_some(pieces)
    }

    /// How many bytes of a run in memory other processes have too; none if the entries can not be
    /// read.
    fn common(&self, start: u64, bytes: u64, flags: &mut Vec<u8>) -> u64 {
        match self.flags(start / PAGE, bytes / PAGE, flags) {
            Ok(()) => PAGE * flags.iter().filter(|flags| is_common(**flags)).count() as u64,
            Err(_) => 0,
        }
    }

    /// The highest byte of each page's entry.
    fn flags(&self, first: u64, count: u64, flags: &mut Vec<u8>) -> io::Result<()> {
        let mut entries = vec![0; ENTRY * count.min(AT_ONCE) as usize];
        flags.clear();
        while (flags.len() as u64) < count {
            let done = flags.len() as u64;
            let part = &mut entries[..ENTRY * (count - done).min(AT_ONCE) as usize];
            self.file
                .read_exact_at(part, (first + done) * ENTRY as u64)?;
            flags.extend(part.chunks_exact(ENTRY).map(|entry| entry[ENTRY - 1]));
        }
        Ok(())
    }

    /// Tells start and end of each run that holds something. False: only PAGEMAP_SCAN could say.
    pub fn runs(&self, start: u64, end: u64, mut tell: impl FnMut(u64, u64)) -> bool {
        self.scan(start, end, |run| tell(run.start, run.end))
    }

    /// Tells start and end of each run that is in memory or swapped out. Of an old kernel a page is
    /// read at a time, and no stretch of more than a TiB.
    pub fn used(&self, start: u64, end: u64, mut tell: impl FnMut(u64, u64)) -> io::Result<()> {
        const LONGEST: u64 = 1 << 40;
        let is_page = |run: &Run| run.pages & queries::PAGE_ZERO == 0;
        if self.scan(start, end, |run| {
            if is_page(run) {
                tell(run.start, run.end);
            }
        }) || end - start > LONGEST
        {
            return Ok(());
        }
        let mut at = start;
        self.find(start / PAGE, (end - start) / PAGE, |page| {
            if page != Whereabouts::Nowhere {
                tell(at, at + PAGE);
            }
            at += PAGE;
        })
    }

    /// Tells each run that holds something. False: the kernel does not say.
    fn scan(&self, start: u64, end: u64, mut tell: impl FnMut(&Run)) -> bool {
        let mut runs = [Run::default(); RUNS];
        let mut at = start;
        while self.scans.load(Ordering::Relaxed) && at < end {
            let Ok((found, ended)) = queries::scan(&self.file, at, end, SCANNED, &mut runs) else {
                self.scans.store(false, Ordering::Relaxed);
                break;
            };
            runs[..found].iter().for_each(&mut tell);
            at = ended.max(at + PAGE);
        }
        self.scans.load(Ordering::Relaxed)
    }

    /// Tells for each page from number `first` on whether it is resident. After an error the
    /// remaining pages are not known.
    pub fn look(&self, first: u64, count: u64, mut tell: impl FnMut(bool)) -> io::Result<()> {
        self.find(first, count, |page| {
            tell(matches!(page, Whereabouts::Resident | Whereabouts::Common));
        })
    }

    /// The same, but swapped out pages are told from pages that are nowhere.
    pub fn find(
        &self,
        first: u64,
        count: u64,
        mut tell: impl FnMut(Whereabouts),
    ) -> io::Result<()> {
        let mut told = first;
        let mut flags = Vec::new();
        let scanned = self.scan(first * PAGE, (first + count) * PAGE, |run| {
            let (start, end) = (run.start / PAGE, run.end / PAGE);
            (told..start).for_each(|_| tell(Whereabouts::Nowhere));
            told = end;
            if run.pages & queries::PAGE_IN_MEMORY == 0 {
                (start..end).for_each(|_| tell(Whereabouts::Swapped));
                return;
            }
            let may_be_common = run.pages & queries::PAGE_OF_FILE == 0;
            let is_read = may_be_common && self.flags(start, end - start, &mut flags).is_ok();
            for page in 0..(end - start) as usize {
                let flags = flags.get(page).filter(|_| is_read);
                tell(match flags.is_some_and(|flags| is_common(*flags)) {
                    true => Whereabouts::Common,
                    false => Whereabouts::Resident,
                });
            }
        });
        if scanned {
            (told..first + count).for_each(|_| tell(Whereabouts::Nowhere));
            return Ok(());
        }
        let behind = first + count;
        while told < behind {
            let some = (behind - told).min(AT_ONCE);
            self.flags(told, some, &mut flags)?;
            flags.iter().for_each(|flags| tell(Whereabouts::of(*flags)));
            told += some;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    /// A block of so many bytes always has a fresh mapping. A smaller one may lie where the heap
    /// has memory of earlier blocks, of this test or of one beside it: an arena of a thread has up
    /// to 64 MiB (glibc's HEAP_MAX_SIZE), and keeps as much at its end.
    const MAPPED: u64 = 256 << 20;

    /// Room of this process for so many pages, with memory in some of them; and the number of the
    /// first page.
    fn stretch(pages: u64, touched: impl Iterator<Item = u64>) -> (Vec<u8>, u64) {
        let bytes = MAPPED + (pages + 1) * PAGE;
        let mut memory: Vec<u8> = Vec::with_capacity(bytes as usize);
        let first = (memory.as_ptr() as u64).div_ceil(PAGE);
        let skipped = (first * PAGE - memory.as_ptr() as u64) as usize;
        let room = memory.spare_capacity_mut();
        for page in touched {
            room[skipped + (page * PAGE) as usize].write(1);
        }
        (memory, first)
    }

    fn told(map: &Pagemap, first: u64, count: u64) -> Vec<Whereabouts> {
        let mut pages = Vec::new();
        map.find(first, count, |page| pages.push(page)).unwrap();
        pages
    }

    #[test]
    fn scanned_and_read_pages_are_the_same() {
        // Memory in every third page of the first half, and none after it.
        let count = 2_999;
        let (_memory, first) = stretch(count, (0..1_500).step_by(3));
        let map = Pagemap::open(process::id() as Pid).unwrap();
        let read = Pagemap::open(process::id() as Pid).unwrap();
        read.scans.store(false, Ordering::Relaxed);
        let pages = told(&read, first, count);
        assert_eq!(told(&map, first, count), pages);
        assert_eq!(pages.len() as u64, count);
        let resident = pages.iter().filter(|page| **page == Whereabouts::Resident);
        let resident = resident.count() as u64;
        assert!(resident >= 500 && resident < count, "{resident}");
        let ends = [100, 1_000, 1_001, 1_500, count].map(|page| (first + page) * PAGE);
        assert_eq!(read.held(first * PAGE, &ends), None);
        match map.held(first * PAGE, &ends) {
            Some(held) => {
                let mut from = 0;
                for (held, end) in held.iter().zip(ends) {
                    let to = (end / PAGE - first) as usize;
                    let pages = pages[from..to].iter();
                    let pages = pages.filter(|page| **page == Whereabouts::Resident);
                    assert_eq!(held.resident, pages.count() as u64 * PAGE, "{from}..{to}");
                    assert_eq!(held.anonymous, held.resident);
                    from = to;
                }
            }
            None => eprintln!("skipped: this kernel has no PAGEMAP_SCAN"),
        }
    }

    #[test]
    fn more_runs_than_are_asked_for_at_a_time_are_told() {
        let pages = 4 * RUNS as u64;
        let (_memory, first) = stretch(pages, (0..pages).step_by(2));
        let map = Pagemap::open(process::id() as Pid).unwrap();
        let told = told(&map, first, pages);
        assert_eq!(told.len() as u64, pages);
        let resident = |page: &Whereabouts| *page == Whereabouts::Resident;
        // Huge pages may back more.
        assert!(told.iter().step_by(2).all(resident));
    }
}
