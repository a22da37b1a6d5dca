//! Gives every resident byte of a process one name: the system's account, and inside it the heap's.
//!
//! ```text
//! resident = heap + records + stacks + files + ...                         (the system, exact)
//! heap     = live + cached + free in spans + tails + retained runs           (the counters)
//! ```
//!
//! The counters know which pages belong to what; the system knows which pages are resident. Memory
//! that is counted and not resident, because the program never touched it or the system swapped it
//! out, is taken from the live blocks: a program often has not touched its newest blocks yet. So no
//! line is negative, and the lines add up to the resident set.

use serde::Serialize;

use loam_format::counters::ids;
use loam_process::mappings::Mapping;
use loam_process::residence::{Kind, Residence};

use crate::Snapshot;

/// The subject of a line of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// In blocks that the program holds, as far as they are resident.
    Live,
    /// In freed blocks that threads keep.
    Cached,
    /// In free slots of spans that also hold live blocks, and behind their last slots.
    FreeInSpans,
    /// In free runs of pages that are kept for the next request.
    Retained,
    /// Resident and not counted: a huge page that reaches over free pages, or a change during the
    /// look.
    Uncounted,
    /// A kind of memory that the system distinguishes.
    System(Kind),
}

impl Share {
    /// The name for people.
    pub fn title(self) -> &'static str {
        match self {
            Share::Live => "live blocks",
            Share::Cached => "cached by threads",
            Share::FreeInSpans => "free between live blocks",
            Share::Retained => "free pages kept",
            Share::Uncounted => "resident beyond these",
            Share::System(kind) => kind.title(),
        }
    }

    /// The name for programs.
    pub fn key(self) -> &'static str {
        match self {
            Share::Live => "live",
            Share::Cached => "cached",
            Share::FreeInSpans => "free_in_spans",
            Share::Retained => "retained",
            Share::Uncounted => "uncounted",
            Share::System(kind) => kind.key(),
        }
    }

    /// Whether it is a part of a Loam heap.
    pub fn is_loam(self) -> bool {
        !matches!(self, Share::System(kind) if kind != Kind::LoamMetadata)
    }
}

/// The lines of the account. Their sum is the resident set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// The sum.
    pub resident: u64,
    /// Bytes by share, without shares of zero.
    pub lines: Vec<(Share, u64)>,
    /// Bytes that the counters count and that are not resident, because they are swapped out.
    pub swapped: u64,
    /// ... because they were never touched, or were given back to the system since.
    pub untouched: u64,
}

impl Account {
    /// Joins the system's account with the counters'.
    pub fn of(residence: &Residence, counters: Option<&Snapshot>) -> Account {
        let mut account = Account {
            resident: residence.total().resident,
            ..Account::default()
        };
        let mut lines = Vec::new();
        let counters = counters.filter(|snapshot| snapshot.is_accounted());
        // A peer does not report where its blocks lie. They lie in anonymous memory, beside the
        // program's own mappings.
        let kinds: &[Kind] = match counters {
            Some(snapshot) if snapshot.is_peer => &[Kind::Heap, Kind::Anonymous],
            _ => &[Kind::LoamHeap],
        };
        let heap = residence.sum_of(kinds);
        if let Some(snapshot) = counters {
            let process = &snapshot.process;
            let unbacked = process.whole(ids::UNBACKED_BYTES);
            let between = process
                .whole(ids::SPAN_FREE_BYTES)
                .saturating_add(process.whole(ids::SPAN_TAIL_BYTES))
                .saturating_sub(unbacked);
            let mut counted = [
                (Share::Live, process.whole(ids::LIVE_BYTES)),
                (Share::Cached, process.whole(ids::CACHED_BYTES)),
                (Share::FreeInSpans, between),
                (Share::Retained, process.whole(ids::DIRTY_BYTES)),
            ];
            let sum = counted
                .iter()
                .fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
            let missing = sum.saturating_sub(heap.resident);
            account.swapped = heap.swapped.min(missing);
            account.untouched = missing - account.swapped;
            let mut room = heap.resident;
            // The live blocks come last: what is missing is theirs.
            for (_, bytes) in counted.iter_mut().rev() {
                *bytes = room.min(*bytes);
                room -= *bytes;
            }
            lines.extend(counted);
            lines.push((Share::Uncounted, room));
        } else {
            lines.push((Share::System(Kind::LoamHeap), heap.resident));
        }
        for (kind, part) in residence.parts() {
            if !kinds.contains(&kind) {
                lines.push((Share::System(kind), part.resident));
            }
        }
        lines.retain(|(_, bytes)| *bytes != 0);
        account.lines = lines;
        account
    }

    /// The bytes of the share.
    pub fn bytes(&self, share: Share) -> u64 {
        let found = self.lines.iter().find(|(known, _)| *known == share);
        found.map_or(0, |(_, bytes)| *bytes)
    }

    /// The resident bytes of the heap that are not live.
    pub fn heap_overhead(&self) -> u64 {
        let overhead = |(share, _): &&(Share, u64)| share.is_loam() && *share != Share::Live;
        self.lines
            .iter()
            .filter(overhead)
            .map(|(_, bytes)| bytes)
            .sum()
    }
}

/// Whether nothing can lie in it.
fn is_reserved(mapping: &Mapping) -> bool {
    !mapping.readable && !mapping.writable && mapping.inode == 0
}

/// The parts of mappings that belong to the heap, according to its counters.
pub fn own_ranges(snapshot: &Snapshot, mappings: &[Mapping]) -> Vec<(u64, u64, Kind)> {
    let mut blocks = snapshot.block_ranges.clone();
    blocks.sort_unstable();
    let mut ranges: Vec<(u64, u64, Kind)> = blocks
        .iter()
        .map(|(start, end)| (*start, *end, Kind::LoamHeap))
        .collect();
    for mapping in mappings.iter().filter(|one| is_reserved(one)) {
        for (start, end) in &snapshot.reserved_ranges {
            let (start, end) = (mapping.start.max(*start), mapping.end.min(*end));
            if start < end {
                ranges.push((start, end, Kind::LoamHeap));
            }
        }
    }
    let mut records = snapshot.record_addresses.clone();
    records.sort_unstable();
    for mapping in mappings {
        // The library's own variables are records too, but lie in a file's mapping.
        let is_plain = mapping.name.is_empty() || mapping.name.starts_with("[anon:");
        let first = records.partition_point(|address| *address < mapping.start);
        let holds_some = records
            .get(first)
            .is_some_and(|address| mapping.contains(*address));
        if !is_plain || !holds_some {
            continue;
        }
        // The kernel may have joined the mapping with blocks. Everything between the blocks belongs
        // to records.
        let mut begin = mapping.start;
        for (start, end) in &blocks[blocks.partition_point(|(_, end)| *end <= begin)..] {
            if *start >= mapping.end {
                break;
            }
            if begin < *start {
                ranges.push((begin, *start, Kind::LoamMetadata));
            }
            begin = begin.max(*end);
        }
        ranges.push((begin, mapping.end, Kind::LoamMetadata));
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_process::pagemap::Held;
    use loam_process::residence::OwnRanges;
    use proptest::prelude::*;

    fn heap_mapping(resident: u64, swapped: u64) -> Mapping {
        Mapping {
            start: 0x4000_0000,
            end: 0x8000_0000,
            resident,
            swapped,
            ..Mapping::default()
        }
    }

    fn snapshot(live: u64, cached: u64, free: u64, dirty: u64) -> Snapshot {
        let mut snapshot = Snapshot {
            block_ranges: vec![(0x4000_0000, 0x8000_0000)],
            ..Snapshot::default()
        };
        snapshot.process.set("live_bytes", live);
        snapshot.process.set("cached_bytes", cached);
        snapshot.process.set("span_free_bytes", free);
        snapshot.process.set("dirty_bytes", dirty);
        snapshot
    }

    fn account(mappings: &[Mapping], snapshot: &Snapshot) -> Account {
        let own = OwnRanges::new(own_ranges(snapshot, mappings));
        Account::of(&Residence::of(mappings, &own), Some(snapshot))
    }

    #[test]
    fn what_was_never_touched_and_what_was_swapped_is_taken_from_the_live_blocks() {
        let found = account(&[heap_mapping(600, 100)], &snapshot(800, 50, 100, 50));
        assert_eq!(found.resident, 600);
        assert_eq!((found.swapped, found.untouched), (100, 300));
        assert_eq!(
            (found.bytes(Share::Live), found.heap_overhead()),
            (400, 200)
        );
    }

    #[test]
    fn less_resident_than_is_free_leaves_no_live_block_and_no_line_below_zero() {
        let found = account(&[heap_mapping(120, 0)], &snapshot(800, 50, 100, 50));
        let lines = [(Share::FreeInSpans, 70), (Share::Retained, 50)];
        assert_eq!(found.lines, lines);
        assert_eq!(found.untouched, 880);
    }

    #[test]
    fn more_resident_than_counted_has_a_line_too() {
        let found = account(&[heap_mapping(600, 100)], &snapshot(500, 0, 0, 0));
        assert_eq!(found.bytes(Share::Uncounted), 100);
        assert_eq!(found.swapped, 0);
    }

    #[test]
    fn the_mapping_around_a_record_is_the_heaps() {
        let mut snapshot = snapshot(0, 0, 0, 0);
        snapshot.record_addresses = vec![0x1500, 0x9000];
        let records = Mapping {
            start: 0x1000,
            end: 0x3000,
            resident: 4096,
            ..Mapping::default()
        };
        let found = account(&[records], &snapshot);
        assert_eq!(found.bytes(Share::System(Kind::LoamMetadata)), 4096);
    }

    #[test]
    fn what_lies_where_the_heap_may_grow_is_the_programs_unless_it_is_only_reserved() {
        let mut snapshot = snapshot(0, 0, 0, 0);
        snapshot.block_ranges = vec![(0x1_0000, 0x2_0000)];
        snapshot.reserved_ranges = vec![(0x2_0000, 0x9_0000)];
        let mapping = |start, end, readable| Mapping {
            start,
            end,
            readable,
            writable: readable,
            resident: if readable { end - start } else { 0 },
            ..Mapping::default()
        };
        let mappings = [
            mapping(0x1_0000, 0x2_0000, true),
            mapping(0x3_0000, 0x4_0000, true),
            mapping(0x4_0000, 0xa_0000, false),
        ];
        let own = OwnRanges::new(own_ranges(&snapshot, &mappings));
        let residence = Residence::of(&mappings, &own);
        assert_eq!(residence.part(Kind::LoamHeap).resident, 0x1_0000);
        assert_eq!(residence.part(Kind::LoamHeap).size, 0x7_0000);
        assert_eq!(residence.part(Kind::Anonymous).resident, 0x1_0000);
    }

    #[test]
    fn between_blocks_that_the_kernel_joined_with_records_is_what_is_of_records() {
        let mut snapshot = snapshot(0, 0, 0, 0);
        snapshot.block_ranges = vec![(0x6000, 0x7000), (0x2000, 0x4000)];
        snapshot.record_addresses = vec![0x1500];
        let joined = Mapping {
            start: 0x1000,
            end: 0x9000,
            resident: 0x8000,
            ..Mapping::default()
        };
        let own = OwnRanges::new(own_ranges(&snapshot, std::slice::from_ref(&joined)));
        let cut = own.cut(vec![joined], |mapping, ends| {
            let starts = [&[mapping.start], ends].concat();
            let lengths = ends.iter().zip(starts).map(|(end, start)| end - start);
            let resident = |resident| Held {
                resident,
                ..Held::default()
            };
            Some(lengths.map(resident).collect())
        });
        let residence = Residence::of(&cut, &own);
        assert_eq!(residence.part(Kind::LoamHeap).resident, 0x3000);
        assert_eq!(residence.part(Kind::LoamMetadata).resident, 0x5000);
    }

    proptest! {
        #[test]
        fn lines_add_up_whatever_a_process_claims(
            resident in any::<u32>(), swapped in any::<u32>(), other in any::<u32>(),
            live in any::<u64>(), cached in any::<u64>(), free in any::<u64>(),
            dirty in any::<u32>(),
        ) {
            let rest = Mapping {
                start: 0x1000,
                end: 0x2000,
                resident: other.into(),
                ..Mapping::default()
            };
            let claims = snapshot(live, cached, free, dirty.into());
            let found = account(&[rest, heap_mapping(resident.into(), swapped.into())], &claims);
            let sum: u128 = found.lines.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
            prop_assert_eq!(sum, u128::from(found.resident));
        }
    }
}
