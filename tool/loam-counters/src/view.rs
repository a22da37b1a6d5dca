//! All figures of one process at one moment.

use std::time::SystemTime;

use loam_format::counters::ids;
use loam_process::allocator::{self, Allocator};
use loam_process::apart::{self, Crew, Doing, MOST_LEFT};
use loam_process::gently::{self, Looked};
use loam_process::held_files::HeldFiles;
use loam_process::mappings;
use loam_process::pagemap::Pagemap;
use loam_process::process::{Identity, Outline, Pid, ProcessError};
use loam_process::remote::ProcessMemory;
use loam_process::residence::{look_into, Kind, OwnRanges, Residence};
use loam_process::runtimes::{self, Runtime};
use loam_process::stacks::Threads;

use crate::account::{own_ranges, Account};
use crate::{CountersError, Snapshot};

/// Free pages so near to each other are asked for together: a page takes 53 ns, and a call some
/// microseconds.
const NEAR: u64 = 1 << 20;

/// One process, as far as the system allows to see it.
#[derive(Debug)]
pub struct View {
    /// When the look began.
    pub looked_at: SystemTime,
    /// Which process it is.
    pub identity: Identity,
    /// The figures that cost little.
    pub outline: Outline,
    /// Where its memory is.
    pub residence: Residence,
    /// Whether lazily freed and proportional bytes are known.
    pub is_whole: bool,
    /// Every resident byte by name.
    pub account: Account,
    /// Its allocator.
    pub allocator: Option<Allocator>,
    /// Bytes of free pages that the heap counts as backed and that are not in memory, as far as
    /// that was looked at ([`View::with_free_pages`]): a run may be freed before all its pages were
    /// touched, and the system may not have given a huge page.
    pub free_and_absent: u64,
    /// Resident bytes of free pages that other processes have too, as far as that was looked at.
    pub free_and_common: u64,
    /// Stacks beyond those of the threads that there are: of threads that ended and were not
    /// joined.
    pub stacks_without_thread: u64,
    /// Files in memory that it holds by descriptors and has not mapped.
    pub held_files: HeldFiles,
    /// The run-time system of a language with a heap of its own.
    pub runtime: Option<Runtime>,
    /// The heap's counters; none if the process has no Loam heap.
    pub counters: Result<Option<Snapshot>, CountersError>,
}

impl View {
    /// Looks at a process [`gently`], on a thread of its own, so that the caller does not wait for
    /// ever. A process that holds up the look is an error.
    pub fn of(identity: Identity) -> Result<View, ProcessError> {
        View::look(identity, |_| ())
    }

    /// The same, with a look at the pages that a Loam heap keeps free.
    pub fn with_free_pages(identity: Identity) -> Result<View, ProcessError> {
        View::look(identity, View::look_at_free_pages)
    }

    fn look(identity: Identity, more: fn(&mut View)) -> Result<View, ProcessError> {
        let pid = identity.key.pid;
        let look = move || {
            let mut view = View::read_by(identity.clone(), gently::read)?;
            more(&mut view);
            Ok(view)
        };
        apart::within(look).unwrap_or_else(|doing| Err(ProcessError::Silent { pid, doing }))
    }

    /// Looks at several processes, on threads of their own, several at a time if they hold up the
    /// look. Each view is passed to `show` and then dropped, because views may be large. Results
    /// are in the order of `identities`.
    pub fn each<R: Send + 'static>(
        identities: Vec<Identity>,
        show: impl Fn(&View) -> R + Send + Sync + 'static,
    ) -> Vec<Result<R, ProcessError>> {
        let pids: Vec<Pid> = identities.iter().map(|one| one.key.pid).collect();
        let mut crew = Crew::new(apart::PATIENCE, move |_: &usize, identity: Identity| {
            View::read(identity).map(|view| show(&view))
        });
        let outcome = crew.run(
            identities.into_iter().enumerate(),
            apart::never(),
            MOST_LEFT,
        );
        let mut found: Vec<Option<Result<R, ProcessError>>> = pids.iter().map(|_| None).collect();
        let held = crew.in_hand();
        for (place, result) in outcome.done {
            found[place] = Some(result);
        }
        for (place, doing) in held {
            let pid = pids[place];
            found[place].get_or_insert(Err(ProcessError::Silent { pid, doing }));
        }
        let silent = |pid| {
            Err(ProcessError::Silent {
                pid,
                doing: Doing::Nothing,
            })
        };
        let both = found.into_iter().zip(pids);
        both.map(|(result, pid)| result.unwrap_or_else(|| silent(pid)))
            .collect()
    }

    /// Looks at a process, however long that takes. Fails if its memory may not be looked at.
    /// Counters that can not be read are no failure.
    pub fn read(identity: Identity) -> Result<View, ProcessError> {
        let whole = |mappings| Looked {
            mappings,
            is_whole: true,
        };
        View::read_by(identity, |pid| mappings::read_all(pid).map(whole))
    }

    fn read_by(
        identity: Identity,
        look: impl Fn(Pid) -> Result<Looked, ProcessError>,
    ) -> Result<View, ProcessError> {
        let looked_at = SystemTime::now();
        let pid = identity.key.pid;
        let memory = ProcessMemory::of(pid);
        memory.hold();
        let outline = Outline::read(pid)?;
        let Looked { mappings, is_whole } = look(pid)?;
        if mappings.is_empty() {
            // The process has just ended: its files still exist and are empty.
            return Err(ProcessError::Ended(pid));
        }
        let counters = crate::read(pid, &mappings);
        if let Err(CountersError::Ended) = counters {
            return Err(ProcessError::Ended(pid));
        }
        let snapshot = counters.as_ref().ok().and_then(Option::as_ref);
        let mut own = snapshot.map_or_else(Vec::new, |snapshot| own_ranges(snapshot, &mappings));
        let stacks = Threads::of(pid).stacks(&mappings);
        // A program may make stacks of blocks: these are the heap's.
        let is_heaps =
            |(start, end): &&(u64, u64)| own.iter().any(|(from, to, _)| from < end && start < to);
        let found: Vec<_> = stacks.ranges.iter().filter(|one| !is_heaps(one)).collect();
        let found = found.into_iter();
        own.extend(found.map(|(start, end)| (*start, *end, Kind::Stack)));
        let own = OwnRanges::new(own);
        let runtime = runtimes::of_process(pid, &mappings);
        let held_files = HeldFiles::of(pid, &mappings);
        let mappings = own.cut(mappings, look_into(pid));
        let residence = Residence::of(&mappings, &own);
        let account = Account::of(&residence, snapshot);
        // The figures of an ending process are none, and those of its number's next process, or
        // program, are another's.
        memory.confirm(identity.key)?;
        let peer = snapshot.filter(|snapshot| snapshot.is_peer);
        let allocator = match peer {
            // An allocator that is built from its sources may lie in a file of any name.
            Some(peer) => Some(Allocator {
                name: peer.family().to_owned(),
                file: "by its own figures".to_owned(),
            }),
            None => allocator::of_process(pid, &mappings, snapshot.is_some()),
        };
        let mut view = View {
            looked_at,
            identity,
            outline,
            residence,
            is_whole,
            account,
            allocator,
            stacks_without_thread: stacks.without_thread,
            runtime,
            held_files,
            free_and_absent: 0,
            free_and_common: 0,
            counters,
        };
        view.complete();
        Ok(view)
    }

    fn look_at_free_pages(&mut self) {
        let pid = self.identity.key.pid;
        let (Some(snapshot), Ok(pagemap)) = (self.snapshot(), Pagemap::open(pid)) else {
            return;
        };
        let ranges = &snapshot.free_ranges;
        let near = |one: &(u64, u64), next: &(u64, u64)| one.1 <= next.0 && next.0 - one.1 <= NEAR;
        let resident = ranges.chunk_by(near).map(|stretch| {
            // Each range is a piece, and what lies between two ranges.
            let ends: Vec<u64> = stretch
                .iter()
                .flat_map(|(start, end)| [*start, *end])
                .collect();
            let held = pagemap.held(*ends.first()?, &ends[1..])?;
            let held = held.iter().step_by(2);
            Some(held.fold((0, 0), |sum, held| {
                (sum.0 + held.resident, sum.1 + held.common)
            }))
        });
        let both = resident.collect::<Option<Vec<(u64, u64)>>>();
        if let Some(both) = both {
            let resident: u64 = both.iter().map(|(resident, _)| resident).sum();
            let common = both.iter().map(|(_, common)| common).sum();
            self.free_and_absent = snapshot.free_backed_bytes.saturating_sub(resident);
            self.free_and_common = common;
        }
    }

    /// Adds the counters that only the system knows.
    fn complete(&mut self) {
        let heap = *self.residence.part(Kind::LoamHeap);
        if let Ok(Some(snapshot)) = &mut self.counters {
            snapshot
                .process
                .set(ids::MINOR_FAULTS, self.outline.minor_faults);
            snapshot
                .process
                .set(ids::MAJOR_FAULTS, self.outline.major_faults);
            if !snapshot.is_peer {
                snapshot.process.set(ids::RESIDENT_BYTES, heap.resident);
                snapshot.process.set(ids::HUGE_PAGE_BYTES, heap.huge);
            }
        }
    }

    /// The counters, if there are any.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.counters.as_ref().ok().and_then(Option::as_ref)
    }
}
