//! The mappings with their figures, read so that the process never waits for longer than a moment.
//!
//! To write a mapping's figures into `smaps`, the kernel looks at every page of it, and holds the lock of the address
//! space for as long: 13 ms for each GiB. A thread that maps or unmaps memory waits meanwhile, and before Linux 6.4 page
//! faults may wait behind that thread. If a mapping is large, its pages are therefore scanned piece by piece instead.
//! Only `smaps` has the lazily freed bytes, so these are then unknown.

use crate::mappings::{self, Mapping};
use crate::pagemap::{Held, Pagemap};
use crate::process::{Pid, ProcessError};

/// A mapping with more memory than this is large. Chosen: the lock is held for half a millisecond.
const LARGE: u64 = 32 << 20;

/// Mappings, and what is known of them.
#[derive(Debug)]
pub struct Looked {
    /// In the order of addresses.
    pub mappings: Vec<Mapping>,
    /// False: lazily freed and proportional bytes, and pages of hugetlbfs, are unknown.
    pub is_whole: bool,
}

/// Reads the mappings with their figures. Without PAGEMAP_SCAN (before Linux 6.7) they come from `smaps` in any case.
pub fn read(pid: Pid) -> Result<Looked, ProcessError> {
    let scanned = mappings::read_names(pid).and_then(|names| scanned(pid, names));
    match scanned {
        Ok(Some(mappings)) => Ok(Looked {
            mappings,
            is_whole: false,
        }),
        Ok(None) => Ok(Looked {
            mappings: mappings::read_all(pid)?,
            is_whole: true,
        }),
        Err(error) => Err(error),
    }
}

/// None if no mapping is large, or if the kernel does not scan.
fn scanned(pid: Pid, names: Vec<Mapping>) -> Result<Option<Vec<Mapping>>, ProcessError> {
    let Ok(pagemap) = Pagemap::open(pid) else {
        return Ok(None);
    };
    let look = |mapping: &Mapping| {
        let held = pagemap.held(mapping.start, &[mapping.end])?;
        held.first().copied()
    };
    // Each page is scanned once, since a million take 50 ms.
    let long = |mapping: &Mapping| (mapping.size() > LARGE).then(|| look(mapping)).flatten();
    let scanned: Vec<Option<Held>> = names.iter().map(long).collect();
    let is_large = |held: &Held| held.resident + held.swapped > LARGE;
    if !scanned.iter().flatten().any(is_large) {
        return Ok(None);
    }
    let with_figures = |(mapping, held): (Mapping, Option<Held>)| {
        // The kernel's own page (`[vsyscall]`) is none of the process's.
        let held = held.or_else(|| look(&mapping)).unwrap_or_default();
        Mapping {
            resident: held.resident,
            anonymous: held.anonymous,
            huge: held.huge,
            swapped: held.swapped,
            ..mapping
        }
    };
    let both = names.into_iter().zip(scanned);
    Ok(Some(both.map(with_figures).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of this process of which so much was written to.
    fn touched(bytes: usize) -> Vec<u8> {
        vec![1; bytes]
    }

    #[test]
    fn a_large_mapping_is_scanned_and_has_the_figures_of_smaps() {
        let pid = std::process::id() as Pid;
        let small = read(pid).unwrap();
        assert!(small.is_whole, "nothing is large yet");
        let memory = touched(80 << 20);
        let large = read(pid).unwrap();
        if large.is_whole {
            eprintln!("skipped: this kernel has no PAGEMAP_SCAN");
            return;
        }
        let place = memory.as_ptr() as u64 + (40 << 20);
        let of = |mappings: &[Mapping]| {
            let found = mappings.iter().find(|mapping| mapping.contains(place));
            found.unwrap().clone()
        };
        let (scanned, told) = (of(&large.mappings), of(&mappings::read_all(pid).unwrap()));
        assert!(scanned.resident >= 80 << 20);
        // Other tests may map memory beside it.
        let near = |a: u64, b: u64| a.abs_diff(b) < 8 << 20;
        assert!(
            near(scanned.resident, told.resident),
            "{scanned:?} {told:?}"
        );
        assert!(
            near(scanned.anonymous, told.anonymous),
            "{scanned:?} {told:?}"
        );
        assert!(near(scanned.huge, told.huge), "{scanned:?} {told:?}");
        let file = large
            .mappings
            .iter()
            .find(|mapping| mapping.executable && mapping.inode != 0);
        let file = file.unwrap();
        let all = mappings::read_all(pid).unwrap();
        let same = all
            .iter()
            .find(|mapping| mapping.start == file.start)
            .unwrap();
        assert!(near(file.resident, same.resident) && file.anonymous == same.anonymous);
    }
}
