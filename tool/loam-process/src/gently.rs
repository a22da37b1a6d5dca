//! The mappings with their figures, read so that the process never waits for longer than a moment.
//!
//! To write a mapping's figures into `smaps`, the kernel looks at every page of it, and holds the
//! lock of the address space for as long: 13 ms for each GiB. A thread that maps or unmaps memory
//! waits meanwhile, and before Linux 6.4 page faults may wait behind that thread. If a mapping is
//! large, its pages are therefore scanned piece by piece instead. Only `smaps` has the lazily freed
//! bytes, so these are then unknown.

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

/// Reads the mappings with their figures. Without PAGEMAP_SCAN (before Linux 6.7) they come from
/// `smaps` in any case.
pub fn read(pid: Pid) -> Result<Looked, ProcessError> {
    let scanned = scanned(pid, mappings::read_names(pid)?);
    let is_whole = scanned.is_none();
    let mappings = match scanned {
        Some(mappings) => mappings,
        None => mappings::read_all(pid)?,
    };
    Ok(Looked { mappings, is_whole })
}

/// None if no mapping is large, or if the kernel does not scan.
fn scanned(pid: Pid, names: Vec<Mapping>) -> Option<Vec<Mapping>> {
    let pagemap = Pagemap::open(pid).ok()?;
    let look = |mapping: &Mapping| {
        let held = pagemap.held(mapping.start, &[mapping.end])?;
        held.first().copied()
    };
    // Each page is scanned once, since a million take 50 ms.
    let long = |mapping: &Mapping| (mapping.size() > LARGE).then(|| look(mapping)).flatten();
    let scanned: Vec<Option<Held>> = names.iter().map(long).collect();
    let is_large = |held: &Held| held.resident + held.swapped > LARGE;
    if !scanned.iter().flatten().any(is_large) {
        return None;
    }
    let with_figures = |(mapping, held): (Mapping, Option<Held>)| {
        // The kernel's own page (`[vsyscall]`) is none of the process's.
        let held = held.or_else(|| look(&mapping)).unwrap_or_default();
        mapping.holding(held)
    };
    Some(names.into_iter().zip(scanned).map(with_figures).collect())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that waits, with memory of which so much was written to. Perl is on every Debian
    /// machine.
    struct Quiet(Child);

    impl Quiet {
        fn start(bytes: usize) -> Quiet {
            let program = format!("$| = 1; my $x = 'a' x {bytes}; print \"ready\\n\"; sleep 600");
            let child = Command::new("perl")
                .args(["-e", &program])
                .stdout(Stdio::piped())
                .spawn();
            let mut child = child.unwrap();
            let mut line = String::new();
            let output = child.stdout.as_mut().unwrap();
            BufReader::new(output).read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            Quiet(child)
        }

        fn pid(&self) -> Pid {
            self.0.id() as Pid
        }
    }

    impl Drop for Quiet {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_large_mapping_is_scanned_and_has_the_figures_of_smaps() {
        let small = Quiet::start(1 << 10);
        assert!(read(small.pid()).unwrap().is_whole, "nothing is large");
        let program = Quiet::start(80 << 20);
        let large = read(program.pid()).unwrap();
        if large.is_whole {
            eprintln!("skipped: this kernel has no PAGEMAP_SCAN");
            return;
        }
        let all = mappings::read_all(program.pid()).unwrap();
        let told = |scanned: &Mapping| {
            let same = all.iter().find(|mapping| mapping.start == scanned.start);
            same.unwrap().clone()
        };
        let scanned = large.mappings.iter().max_by_key(|mapping| mapping.resident);
        let scanned = scanned.unwrap();
        let same = told(scanned);
        assert!(scanned.resident >= 80 << 20);
        let near = |a: u64, b: u64| a.abs_diff(b) < 8 << 20;
        assert!(
            near(scanned.resident, same.resident),
            "{scanned:?} {same:?}"
        );
        assert!(
            near(scanned.anonymous, same.anonymous),
            "{scanned:?} {same:?}"
        );
        assert!(near(scanned.huge, same.huge), "{scanned:?} {same:?}");
        let file = large
            .mappings
            .iter()
            .find(|mapping| mapping.executable && mapping.inode != 0);
        let (file, same) = (file.unwrap(), told(file.unwrap()));
        assert!(near(file.resident, same.resident) && file.anonymous == same.anonymous);
    }
}
