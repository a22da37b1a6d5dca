//! Everything that can be seen of one process at one moment.

use super::account::{own_ranges, Account};
use super::allocator::{self, Allocator};
use super::apart;
use super::mappings::{self, Mapping};
use super::process::{Identity, Outline, ProcessError};
use super::residence::{stack_pointers, OwnRanges, Residence};
use crate::counters::{self, CountersError, Snapshot};

/// One process, seen as deeply as allowed.
#[derive(Debug)]
pub struct View {
    /// Who it is.
    pub identity: Identity,
    /// The cheap figures.
    pub outline: Outline,
    /// Where its memory is.
    pub residence: Residence,
    /// Every resident byte by name.
    pub account: Account,
    /// What it allocates with.
    pub allocator: Option<Allocator>,
    /// The heap's counters: none where the process has no such heap.
    pub counters: Result<Option<Snapshot>, CountersError>,
}

impl View {
    /// Looks at a process, apart from who waits for it: one that holds up the look for ever is an error.
    pub fn of(identity: Identity) -> Result<View, ProcessError> {
        let pid = identity.key.pid;
        apart::within(move || View::read(identity.clone()))
            .unwrap_or_else(|doing| Err(ProcessError::Silent { pid, doing }))
    }

    /// Looks at a process, however long that takes. Fails if its memory may not be looked at; counters that can not be read
    /// are no failure.
    pub fn read(identity: Identity) -> Result<View, ProcessError> {
        let pid = identity.key.pid;
        let outline = Outline::read(pid)?;
        let mappings = mappings::read_all(pid)?;
        if mappings.is_empty() {
            // It has just ended: its files are still there, and empty.
            return Err(ProcessError::Ended(pid));
        }
        let counters = counters::read(pid, &mappings);
        if let Err(CountersError::Ended) = counters {
            return Err(ProcessError::Ended(pid));
        }
        let snapshot = counters.as_ref().ok().and_then(Option::as_ref);
        let residence = residence_of(&mappings, &stack_pointers(pid), snapshot);
        let account = Account::of(&residence, snapshot);
        // A number that was given to somebody else meanwhile would mix two processes.
        if Identity::read(pid)?.key != identity.key {
            return Err(ProcessError::Ended(pid));
        }
        let allocator = allocator::of_process(pid, &mappings, snapshot.is_some());
        let mut view = View {
            identity,
            outline,
            residence,
            account,
            allocator,
            counters,
        };
        view.complete();
        Ok(view)
    }

    /// Adds to the counters what only the system knows.
    fn complete(&mut self) {
        let heap = *self.residence.part(super::residence::Kind::LoamHeap);
        if let Ok(Some(snapshot)) = &mut self.counters {
            snapshot
                .process
                .set("minor_faults", self.outline.minor_faults);
            snapshot
                .process
                .set("major_faults", self.outline.major_faults);
            snapshot.process.set("resident_bytes", heap.resident);
            snapshot.process.set("huge_page_bytes", heap.huge);
        }
    }

    /// The counters, if there are any.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.counters.as_ref().ok().and_then(Option::as_ref)
    }
}

fn residence_of(mappings: &[Mapping], stacks: &[u64], snapshot: Option<&Snapshot>) -> Residence {
    let own = snapshot.map_or_else(OwnRanges::default, |snapshot| {
        own_ranges(snapshot, mappings)
    });
    Residence::of(mappings, stacks, &own)
}
