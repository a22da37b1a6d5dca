//! The figures that the rules use, the same for every heap.
//!
//! ```text
//! resident of the heap = live - untouched + cached + between + kept + top + the heap's records
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use loam_format::counters::ids;
use loam_process::allocator::GLIBC;
use loam_process::container::Limits;
use loam_process::glibc::{GlibcHeap, Sum};
use loam_process::held_files::HeldFiles;
use loam_process::process::Pid;
use loam_process::residence::{Kind as Place, Part};
use loam_process::runtimes::Runtime;
use loam_process::settings::Settings;
use serde::Serialize;
use serde_json::{json, Value};

use super::{spans, stall, Kind, PythonPools};
use crate::view::View;
use crate::Snapshot;

/// The name of private memory that no heap holds, if no run-time system explains it.
pub const PRIVATE: &str = "private mappings that are not the heap's";

/// The same where the allocator does not show what it holds, so that the heap is a part of it.
const UNDIVIDED: &str = "private memory, of the heap or mapped by the program";

/// Memory outside of the heap, of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outside {
    /// What it is, in words.
    pub name: Cow<'static, str>,
    /// Resident.
    pub resident: u64,
    /// Resident, written to, and of this process alone: nothing but this process gives it back.
    pub own: u64,
    /// Whether it is private memory that no file and no stack explains.
    pub is_private: bool,
    /// Whether it is known to be the heap of the run-time system.
    pub is_of_runtime: bool,
}

/// What is known of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The number of the process.
    pub pid: Pid,
    /// The allocator, in words.
    pub allocator: String,
    /// Resident bytes.
    pub resident: u64,
    /// Swapped out.
    pub swapped: u64,
    /// Resident, and given up with `MADV_FREE`; none if a look would hold up the program for too
    /// long.
    pub lazily_freed: Option<u64>,
    /// Resident in huge pages.
    pub huge: u64,
    /// Anonymous bytes that other processes have too, since a `fork()`.
    pub common: u64,
    /// Resident bytes outside of the heap, by place, the largest first.
    pub outside: Vec<Outside>,
    /// Stacks.
    pub stacks: Part,
    /// Stacks beyond those of the threads that there are.
    pub stacks_without_thread: u64,
    /// The run-time system of a language with a heap of its own.
    pub runtime: Option<Runtime>,
    /// What CPython's own allocator keeps, if it is there and was looked at.
    pub python: Option<PythonPools>,
    /// Files in memory that it holds by descriptors and has not mapped.
    pub held_files: HeldFiles,
    /// What its environment says.
    pub settings: Settings,
    /// The limits that it runs under.
    pub limits: Limits,
    /// Its heap, or why the heap can not be read.
    pub heap: Result<HeapEvidence, String>,
}

/// An arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Arena {
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Bytes in live blocks.
    pub live_bytes: u64,
    /// Free and resident.
    pub free_bytes: u64,
}

/// The effect of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Trim {
    /// Bytes that the trim would give back.
    pub bytes: u64,
    /// How long the call would take. In glibc it holds each arena's lock meanwhile.
    pub milliseconds: f64,
    /// The part of `bytes` that lies between live blocks, in pages that are free as a whole: an
    /// estimate ([`spans`]).
    #[serde(rename = "between_bytes")]
    pub between: u64,
    /// The part of `bytes` that other processes have too: to give it back here frees nothing.
    #[serde(rename = "common_bytes")]
    pub common: u64,
    /// The part of `bytes` that goes back only where the program itself joins small freed blocks
    /// with what is free beside them, as `malloc_trim` does. The verb `trim` joins nothing.
    #[serde(rename = "joined_bytes")]
    pub joined: u64,
}

impl Trim {
    /// What the machine gains.
    pub fn own(&self) -> u64 {
        self.bytes.saturating_sub(self.common)
    }

    /// What the verb `trim` gives back.
    pub fn from_outside(&self) -> u64 {
        self.own().saturating_sub(self.joined)
    }
}

/// The figures of a heap, in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeapEvidence {
    /// Resident.
    #[serde(rename = "resident_bytes")]
    pub resident: u64,
    /// Those of them that other processes have too.
    #[serde(rename = "common_bytes")]
    pub common: u64,
    /// In blocks that the program holds.
    #[serde(rename = "live_bytes")]
    pub live: u64,
    /// Live bytes that are not resident.
    #[serde(rename = "untouched_bytes")]
    pub untouched: u64,
    /// Freed bytes in threads' caches.
    #[serde(rename = "cached_bytes")]
    pub cached: u64,
    /// Free bytes between live blocks: in pieces without a whole page, or of Loam's spans.
    #[serde(rename = "between_bytes")]
    pub between: u64,
    /// Resident bytes at the ends of arenas, behind the last block.
    #[serde(rename = "top_bytes")]
    pub top: u64,
    /// Resident bytes of the heap's own records.
    #[serde(rename = "records_bytes")]
    pub records: u64,
    /// What a trim would give back.
    pub trim: Trim,
    /// Number of threads' caches or arenas that keep something.
    pub caches: u64,
    /// One entry for each arena; none if the heap has no arenas.
    pub arenas: Vec<Arena>,
    /// The main arena's longest hole, and the blocks behind it.
    #[serde(skip)]
    pub pinned: Option<(u64, Sum)>,
    /// Blocks by length; none if they are not known.
    #[serde(skip)]
    pub lengths: Vec<(u64, Sum)>,
    /// Live bytes in blocks that the reader could not follow.
    #[serde(rename = "unread_bytes")]
    pub unread: u64,
    /// Bytes that the heap counts as its own and that the reader did not find.
    #[serde(rename = "unseen_bytes")]
    pub unseen: u64,
    /// Whether another allocator reports these figures about itself.
    #[serde(skip)]
    pub is_peer: bool,
    /// Figures that the allocator does not report.
    #[serde(skip)]
    pub untold: Vec<Kind>,
    /// Whether the heap gives pages back by itself.
    pub purges: bool,
    /// The parts that were left out, and why.
    pub problems: Vec<String>,
}

impl HeapEvidence {
    /// Whole free pages that are resident and lie in no span.
    pub fn kept(&self) -> u64 {
        self.trim.bytes.saturating_sub(self.trim.between)
    }

    /// So many bytes of the heap at most are of this process alone.
    pub fn of_own(&self, bytes: u64) -> u64 {
        bytes.min((self.resident + self.records).saturating_sub(self.common))
    }
}

impl Evidence {
    /// For programs. Fields may be added; none is removed or changes its meaning.
    pub fn document(&self) -> Value {
        json!({
            "resident_bytes": self.resident,
            "swapped_bytes": self.swapped,
            "lazily_freed_bytes": self.lazily_freed,
            "huge_page_bytes": self.huge,
            "common_bytes": self.common,
            "outside_heap_bytes": self
                .outside
                .iter()
                .map(|one| (&one.name, one.resident))
                .collect::<BTreeMap<_, _>>(),
            "outside_heap_own_bytes": self.own_outside(),
            "stack_bytes": self.stacks.resident,
            "stacks_without_thread": self.stacks_without_thread,
            "held_file_bytes": self.held_files.bytes,
            "runtime": self.runtime.map(|runtime| runtime.name),
            "python_pools": self.python,
            "heap": self.heap.as_ref().ok(),
            "heap_error": self.heap.as_ref().err(),
            "cores": self.limits.cores,
            "usable_cores": self.limits.usable_cores(),
            "memory_limit_bytes": self.limits.memory,
            "memory_reclaimable_bytes": self.limits.memory_reclaimable,
        })
    }

    /// Joins the figures of a look. `glibc`: the heap of a program on glibc's malloc, or why it
    /// could not be read.
    pub fn of(view: &View, glibc: Option<Result<GlibcHeap, String>>, limits: Limits) -> Evidence {
        let total = view.residence.total();
        let name = |name: String| {
            (
                name,
                Err("its allocator does not show what it holds".to_owned()),
            )
        };
        let (allocator, heap) = match (view.snapshot(), glibc, &view.counters, &view.allocator) {
            (Some(snapshot), ..) if snapshot.is_peer => {
                (snapshot.allocator(), on_peer(snapshot, view))
            }
            (Some(snapshot), ..) => (snapshot.allocator(), Ok(on_loam(snapshot, view))),
            (None, Some(Ok(heap)), ..) => (
                format!("glibc {}'s malloc", heap.version),
                Ok(on_glibc(
                    &heap,
                    view.residence.sum_of(&[Place::Heap, Place::Anonymous]).huge,
                )),
            ),
            (None, Some(Err(reason)), ..) => (GLIBC.to_owned(), Err(reason)),
            (None, None, Err(error), _) => ("Loam".to_owned(), Err(error.to_string())),
            (None, None, _, Some(allocator)) => name(allocator.name.clone()),
            // A run-time system may do without malloc.
            (None, None, _, None) => name(view.runtime.map_or_else(
                || "an unknown allocator".to_owned(),
                |runtime| runtime.heap.to_owned(),
            )),
        };
        let mut outside: Vec<Outside> = Vec::new();
        for (place, part) in view.residence.parts() {
            let is_heap = matches!(
                place,
                Place::LoamHeap | Place::LoamMetadata | Place::Heap | Place::Anonymous
            );
            if !is_heap {
                let is_own = matches!(place, Place::Stack | Place::FileCopy);
                outside.push(Outside {
                    name: place.title().into(),
                    resident: part.resident,
                    own: if is_own { part.own() } else { 0 },
                    is_private: false,
                    is_of_runtime: false,
                });
            }
        }
        let places = [
            Place::LoamHeap,
            Place::LoamMetadata,
            Place::Heap,
            Place::Anonymous,
        ];
        let private = view.residence.sum_of(&places);
        let (held, held_common) = match &heap {
            Ok(heap) => (heap.resident + heap.records, heap.common),
            Err(_) => (0, 0),
        };
        let resident = private.resident.saturating_sub(held);
        let is_on_no_malloc = view.allocator.is_none() && view.counters.is_ok() && heap.is_err();
        let (name, is_of_runtime) = match view.runtime {
            // Without a malloc, private memory is that of the run-time system.
            Some(runtime) if is_on_no_malloc => (runtime.heap.into(), true),
            _ if heap.is_err() => (UNDIVIDED.into(), false),
            Some(runtime) => (
                format!("private mappings, of {} or of the program", runtime.name).into(),
                false,
            ),
            None => (PRIVATE.into(), false),
        };
        outside.push(Outside {
            name,
            resident,
            own: resident.saturating_sub(private.common.saturating_sub(held_common)),
            is_private: true,
            is_of_runtime,
        });
        outside.sort_by_key(|one| std::cmp::Reverse(one.resident));
        Evidence {
            pid: view.identity.key.pid,
            allocator,
            resident: total.resident,
            swapped: total.swapped,
            lazily_freed: view.is_whole.then_some(total.lazily_freed),
            huge: total.huge,
            common: total.common,
            outside,
            stacks: *view.residence.part(Place::Stack),
            stacks_without_thread: view.stacks_without_thread,
            runtime: view.runtime,
            python: None,
            held_files: view.held_files,
            settings: Settings::of(view.identity.key.pid),
            limits,
            heap,
        }
    }

    /// Adds what CPython's pools say, and credits the interpreter with as much private memory as
    /// lies in them.
    pub fn credit(&mut self, pools: Option<PythonPools>) {
        self.python = pools;
        let (Some(pools), Some(runtime)) = (pools, self.runtime) else {
            return;
        };
        let mut parts = self.outside.iter_mut();
        let Some(rest) = parts.find(|one| one.is_private && !one.is_of_runtime) else {
            return;
        };
        let known = Outside {
            name: runtime.heap.into(),
            resident: pools.bytes.min(rest.resident),
            own: pools.bytes.min(rest.own),
            is_private: true,
            is_of_runtime: true,
        };
        rest.resident -= known.resident;
        rest.own -= known.own;
        self.outside.push(known);
        self.outside
            .sort_by_key(|one| std::cmp::Reverse(one.resident));
    }

    /// Private resident bytes that no heap holds; all, if the heap can not be read.
    pub fn private_outside(&self) -> u64 {
        let those = self.outside.iter().filter(|one| one.is_private);
        match &self.heap {
            Ok(heap) if !heap.is_peer => those.map(|one| one.resident).sum(),
            _ => self.resident,
        }
    }

    /// Private resident bytes that are malloc's or the program's own mappings. They can not be told
    /// apart where the allocator does not show what it holds.
    pub fn undivided(&self) -> u64 {
        if self.heap.is_ok() {
            return 0;
        }
        let outside = self.outside.iter();
        let those = outside.filter(|one| one.is_private && !one.is_of_runtime);
        those.map(|one| one.resident).sum()
    }

    /// Bytes outside of the heap that only this process can give back: those whose growth is its
    /// own.
    pub fn own_outside(&self) -> u64 {
        let mapped: u64 = self.outside.iter().map(|one| one.own).sum();
        mapped.saturating_add(self.held_files.bytes)
    }

    /// Anonymous bytes of this process alone.
    pub fn own_anonymous(&self) -> u64 {
        let heap = self.heap.as_ref().map_or(0, |heap| {
            (heap.resident + heap.records).saturating_sub(heap.common)
        });
        heap.saturating_add(self.outside.iter().map(|one| one.own).sum())
    }

    /// Memory of which nothing is known, and what would tell. None: it is too little to hide a
    /// fault.
    pub fn unknown(&self) -> Option<(u64, String)> {
        let (bytes, why) = match &self.heap {
            Ok(heap) => (heap.unseen, heap.problems.join("; ")),
            Err(reason) => (self.undivided(), reason.clone()),
        };
        let is_much = bytes > LITTLE && bytes as f64 > UNKNOWN * self.resident as f64;
        is_much.then_some((bytes, why))
    }
}

/// Beside a larger unknown share of the resident memory no program is called healthy.
const UNKNOWN: f64 = 0.05;
/// Every process has some KiB that no rule explains.
const LITTLE: u64 = 1 << 20;

/// A Loam heap gives free runs back a few at a time. Chosen: half of the median of its workloads.
const RUN: u64 = 64 << 10;

fn on_loam(snapshot: &Snapshot, view: &View) -> HeapEvidence {
    use crate::account::Share;
    let process = &snapshot.process;
    let amount = |share| view.account.bytes(share);
    let classes = snapshot.heaps.iter().flat_map(|heap| &heap.classes);
    let lengths = classes.filter_map(|class| {
        let count = class.values.whole(ids::CLASS_LIVE_BLOCKS);
        let bytes = count.saturating_mul(class.block_bytes);
        (count > 0).then_some((class.block_bytes, Sum { count, bytes }))
    });
    let beyond = [
        (ids::LIVE_LARGE_BLOCKS, ids::LIVE_LARGE_BYTES),
        (ids::LIVE_HUGE_BLOCKS, ids::LIVE_HUGE_BYTES),
    ];
    let beyond = beyond.into_iter().filter_map(|(blocks, bytes)| {
        let (count, bytes) = (process.whole(blocks), process.whole(bytes));
        (count > 0).then(|| (bytes / count, Sum { count, bytes }))
    });
    let retained = amount(Share::Retained);
    let in_spans = spans::of(snapshot);
    let between = (in_spans.bytes as u64)
        .min(amount(Share::FreeInSpans).saturating_add(amount(Share::Cached)));
    let kept = retained.saturating_sub(view.free_and_absent);
    let part = view.residence.part(Place::LoamHeap);
    let common_between = share_of(between, part.common, part.resident);
    let bytes = kept.saturating_add(between);
    let calls = (kept / RUN + 1).saturating_add(in_spans.calls as u64);
    HeapEvidence {
        resident: part.resident,
        common: part.common,
        live: process.whole(ids::LIVE_BYTES),
        untouched: view.account.untouched,
        cached: amount(Share::Cached),
        between: amount(Share::FreeInSpans),
        top: amount(Share::Uncounted),
        records: view.residence.part(Place::LoamMetadata).resident,
        trim: Trim {
            bytes,
            milliseconds: stall::milliseconds(
                bytes,
                share_of(bytes, part.huge, part.resident),
                calls,
                0,
                in_spans.spans as u64,
            ),
            between,
            // Runs that wait in shards are not looked at one by one: they count as the heap does on
            // the average.
            common: view
                .free_and_common
                .max(share_of(kept, part.common, part.resident))
                .min(kept)
                .saturating_add(common_between),
            joined: 0,
        },
        caches: process.whole(ids::THREADS),
        arenas: Vec::new(),
        pinned: None,
        lengths: lengths.chain(beyond).collect(),
        unread: 0,
        unseen: 0,
        untold: Vec::new(),
        is_peer: false,
        purges: true,
        problems: Vec::new(),
    }
}

/// The figures that another allocator reports about itself. Without its live bytes, nothing can be
/// judged.
fn on_peer(snapshot: &Snapshot, view: &View) -> Result<HeapEvidence, String> {
    use crate::account::Share;
    let values = &snapshot.process;
    let amount = |share| view.account.bytes(share);
    let Some(live) = values.known(ids::LIVE_BYTES) else {
        let committed = values.known(ids::COMMITTED_BYTES);
        let told = committed.map_or_else(
            || "nothing".to_owned(),
            |bytes| {
                let bytes = loam_format::units::bytes(bytes as f64);
                format!("only that it has committed {bytes}")
            },
        );
        return Err(format!("{} tells {told}", snapshot.allocator()));
    };
    // The subjects of the rules, and the figures that the rules need for them.
    let needs = [
        (Kind::Fragmentation, ids::SPAN_FREE_BYTES),
        (Kind::Caches, ids::CACHED_BYTES),
        (Kind::KeptForReuse, ids::DIRTY_BYTES),
        (Kind::HugePageSlack, ids::DIRTY_BYTES),
    ];
    let untold = needs.iter().filter(|(_, id)| values.known(id).is_none());
    let retained = amount(Share::Retained);
    let part = view.residence.sum_of(&[Place::Heap, Place::Anonymous]);
    // Memory that the allocator does not count can not be told from the program's own.
    let resident = part.resident.saturating_sub(amount(Share::Uncounted));
    Ok(HeapEvidence {
        resident,
        common: share_of(resident, part.common, part.resident),
        live,
        untouched: view.account.untouched,
        cached: amount(Share::Cached),
        between: amount(Share::FreeInSpans),
        top: 0,
        records: 0,
        trim: Trim {
            bytes: retained,
            milliseconds: stall::milliseconds(retained, 0, retained / RUN + 1, 0, 0),
            between: 0,
            common: share_of(retained, part.common, part.resident),
            joined: 0,
        },
        caches: 0,
        arenas: Vec::new(),
        pinned: None,
        lengths: Vec::new(),
        unread: 0,
        unseen: 0,
        untold: untold.map(|(kind, _)| *kind).collect(),
        is_peer: true,
        purges: true,
        problems: Vec::new(),
    })
}

/// So many of the bytes are of that part of a whole, if they are spread evenly.
fn share_of(bytes: u64, part: u64, whole: u64) -> u64 {
    (bytes as f64 * part as f64 / whole.max(1) as f64) as u64
}

fn on_glibc(heap: &GlibcHeap, huge: u64) -> HeapEvidence {
    let mut lengths = heap.mapped.lengths.clone();
    heap.arenas
        .iter()
        .for_each(|arena| lengths.join(&arena.lengths));
    let fast = heap.sum(|arena| arena.fast.bytes);
    let whole = heap.sum(|arena| arena.whole_pages);
    // Free memory that is not a whole page: first the bytes in fast bins, then the bytes between
    // blocks.
    let rest = (heap.sum(|arena| arena.holes.bytes) + fast).saturating_sub(whole);
    let tops = |is_main| {
        let those = heap
            .arenas
            .iter()
            .filter(move |arena| arena.is_main == is_main);
        those.map(|arena| arena.top_resident).sum::<u64>()
    };
    // malloc_trim() shortens the main arena to a page behind its last block, and leaves the ends of
    // the other arenas.
    let trimmable = heap.sum(|arena| arena.trimmable) + tops(true).saturating_sub(4096);
    let calls = heap.sum(|arena| arena.trimmable_holes) + 1;
    let freed = heap.sum(|arena| arena.fast.count) + heap.sum(|arena| arena.holes.count);
    let holes = heap.sum(|arena| arena.joined_holes);
    let arenas = heap.arenas.iter().map(|arena| Arena {
        resident_bytes: arena.resident,
        live_bytes: arena.live(),
        free_bytes: arena
            .resident
            .saturating_sub(arena.live().saturating_sub(arena.untouched)),
    });
    let main = heap.arenas.iter().find(|arena| arena.is_main);
    let resident = heap.sum(|arena| arena.resident) + heap.mapped.resident;
    let common = heap.sum(|arena| arena.trimmable_common)
        + main.map_or(0, |arena| {
            arena.top_common.min(tops(true).saturating_sub(4096))
        });
    HeapEvidence {
        resident,
        common: heap.sum(|arena| arena.common) + heap.mapped.common,
        live: heap.live(),
        untouched: heap.sum(|arena| arena.untouched)
            + heap.mapped.sum.bytes.saturating_sub(heap.mapped.resident),
        cached: heap.sum(|arena| arena.cached.bytes) + fast.min(rest),
        between: rest - fast.min(rest),
        top: tops(false) + tops(true).min(4096),
        records: 0,
        trim: Trim {
            bytes: trimmable,
            milliseconds: stall::milliseconds(
                trimmable,
                share_of(trimmable, huge.min(resident), resident),
                calls,
                freed,
                holes,
            ),
            between: 0,
            common,
            joined: trimmable
                .saturating_sub(common)
                .saturating_sub(heap.sum(|arena| arena.from_outside)),
        },
        caches: heap.caches,
        arenas: arenas.collect(),
        pinned: main.map(|arena| (arena.longest_hole, arena.behind_longest_hole)),
        lengths: lengths.classes().collect(),
        unread: heap.sum(|arena| arena.unread),
        unseen: heap.unseen,
        untold: Vec::new(),
        is_peer: false,
        purges: false,
        problems: heap.problems.clone(),
    }
}
