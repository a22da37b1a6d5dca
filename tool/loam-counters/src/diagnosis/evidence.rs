//! The figures that the rules use, the same for every heap.
//!
//! ```text
//! resident of the heap = live - untouched + cached + between + kept + top + the heap's records
//! ```

use loam_format::counters::ids;
use loam_process::allocator::GLIBC;
use loam_process::container::Limits;
use loam_process::glibc::{GlibcHeap, Lengths, Sum};
use loam_process::residence::Kind as Place;
use serde::Serialize;

use super::{spans, stall, Kind};
use crate::view::View;
use crate::Snapshot;

/// The name of private memory that no heap holds.
pub const PRIVATE: &str = "private mappings that are not the heap's";

/// What is known of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The allocator, in words.
    pub allocator: String,
    /// Resident bytes.
    pub resident: u64,
    /// Swapped out.
    pub swapped: u64,
    /// Resident, and given up with `MADV_FREE`; none if a look would hold up the program for too long.
    pub lazily_freed: Option<u64>,
    /// Resident in huge pages.
    pub huge: u64,
    /// Resident bytes outside of the heap, by place, the largest first.
    pub outside: Vec<(&'static str, u64)>,
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
    /// The part of `bytes` that lies between live blocks, in pages that are free as a whole: an estimate ([`spans`]).
    #[serde(rename = "between_bytes")]
    pub between: u64,
}

/// The figures of a heap, in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeapEvidence {
    /// Resident.
    #[serde(rename = "resident_bytes")]
    pub resident: u64,
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
}

impl Evidence {
    /// Joins the figures of a look. `glibc`: the heap of a program on glibc's malloc, or why it could not be read.
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
                Ok(on_glibc(&heap)),
            ),
            (None, Some(Err(reason)), ..) => (GLIBC.to_owned(), Err(reason)),
            (None, None, Err(error), _) => ("Loam".to_owned(), Err(error.to_string())),
            (None, None, _, Some(allocator)) => name(allocator.name.clone()),
            (None, None, _, None) => name("an unknown allocator".to_owned()),
        };
        let mut outside: Vec<(&'static str, u64)> = Vec::new();
        for (place, part) in view.residence.parts() {
            let is_heap = matches!(
                place,
                Place::LoamHeap | Place::LoamMetadata | Place::Heap | Place::Anonymous
            );
            if !is_heap {
                outside.push((place.title(), part.resident));
            }
        }
        if let Ok(heap) = &heap {
            let places = [
                Place::LoamHeap,
                Place::LoamMetadata,
                Place::Heap,
                Place::Anonymous,
            ];
            let private = view.residence.resident_of(&places);
            outside.push((
                PRIVATE,
                private.saturating_sub(heap.resident + heap.records),
            ));
        }
        outside.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Evidence {
            allocator,
            resident: total.resident,
            swapped: total.swapped,
            lazily_freed: view.is_whole.then_some(total.lazily_freed),
            huge: total.huge,
            outside,
            limits,
            heap,
        }
    }

    /// Private resident bytes that no heap holds; all, if the heap can not be read.
    pub fn private_outside(&self) -> u64 {
        let those = self.outside.iter().filter(|(place, _)| *place == PRIVATE);
        match &self.heap {
            Ok(heap) if !heap.is_peer => those.map(|(_, bytes)| bytes).sum(),
            _ => self.resident,
        }
    }

    /// Resident bytes outside of the heap.
    pub fn outside_bytes(&self) -> u64 {
        self.outside.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// A Loam heap gives free runs back a few at a time. Chosen: half of the median of its workloads.
const RUN: u64 = 64 << 10;

fn on_loam(snapshot: &Snapshot, view: &View) -> HeapEvidence {
    use crate::account::Share;
    let process = &snapshot.process;
    let amount = |share| view.account.bytes(share).max(0) as u64;
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
    let bytes = kept.saturating_add(between);
    let calls = (kept / RUN + 1).saturating_add(in_spans.calls as u64);
    HeapEvidence {
        resident: view.residence.part(Place::LoamHeap).resident,
        live: process.whole(ids::LIVE_BYTES),
        untouched: view.account.bytes(Share::Untouched).unsigned_abs(),
        cached: amount(Share::Cached),
        between: amount(Share::FreeInSpans),
        top: amount(Share::Uncounted),
        records: view.residence.part(Place::LoamMetadata).resident,
        trim: Trim {
            bytes,
            milliseconds: stall::milliseconds(bytes, calls, 0, in_spans.spans as u64),
            between,
        },
        caches: process.whole(ids::THREADS),
        arenas: Vec::new(),
        pinned: None,
        lengths: lengths.chain(beyond).collect(),
        unread: 0,
        untold: Vec::new(),
        is_peer: false,
        purges: true,
        problems: Vec::new(),
    }
}

/// The figures that another allocator reports about itself. Without its live bytes, nothing can be judged.
fn on_peer(snapshot: &Snapshot, view: &View) -> Result<HeapEvidence, String> {
    use crate::account::Share;
    let values = &snapshot.process;
    let amount = |share| view.account.bytes(share).max(0) as u64;
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
    Ok(HeapEvidence {
        // Memory that the allocator does not count can not be told from the program's own.
        resident: (view.residence.resident_of(&[Place::Heap, Place::Anonymous]))
            .saturating_sub(amount(Share::Uncounted)),
        live,
        untouched: view.account.bytes(Share::Untouched).unsigned_abs(),
        cached: amount(Share::Cached),
        between: amount(Share::FreeInSpans),
        top: 0,
        records: 0,
        trim: Trim {
            bytes: retained,
            milliseconds: stall::milliseconds(retained, retained / RUN + 1, 0, 0),
            between: 0,
        },
        caches: 0,
        arenas: Vec::new(),
        pinned: None,
        lengths: Vec::new(),
        unread: 0,
        untold: untold.map(|(kind, _)| *kind).collect(),
        is_peer: true,
        purges: true,
        problems: Vec::new(),
    })
}

fn on_glibc(heap: &GlibcHeap) -> HeapEvidence {
    let mut lengths = Lengths::default();
    heap.arenas
        .iter()
        .for_each(|arena| lengths.join(&arena.lengths));
    let fast = heap.sum(|arena| arena.fast.bytes);
    let whole = heap.sum(|arena| arena.whole_pages);
    // Free memory that is not a whole page: first the bytes in fast bins, then the bytes between blocks.
    let rest = (heap.sum(|arena| arena.holes.bytes) + fast).saturating_sub(whole);
    let tops = |is_main| {
        let those = heap
            .arenas
            .iter()
            .filter(move |arena| arena.is_main == is_main);
        those.map(|arena| arena.top_resident).sum::<u64>()
    };
    // malloc_trim() shortens the main arena to a page behind its last block, and leaves the ends of the other arenas.
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
    HeapEvidence {
        resident: heap.sum(|arena| arena.resident) + heap.mapped.resident,
        live: heap.live(),
        untouched: heap.sum(|arena| arena.untouched)
            + heap.mapped.sum.bytes.saturating_sub(heap.mapped.resident),
        cached: heap.sum(|arena| arena.cached.bytes) + fast.min(rest),
        between: rest - fast.min(rest),
        top: tops(false) + tops(true).min(4096),
        records: 0,
        trim: Trim {
            bytes: trimmable,
            milliseconds: stall::milliseconds(trimmable, calls, freed, holes),
            between: 0,
        },
        caches: heap.caches,
        arenas: arenas.collect(),
        pinned: main.map(|arena| (arena.longest_hole, arena.behind_longest_hole)),
        lengths: lengths.classes().collect(),
        unread: heap.sum(|arena| arena.unread),
        untold: Vec::new(),
        is_peer: false,
        purges: false,
        problems: heap.problems.clone(),
    }
}
