//! Where the resident memory of any program is, by the system's figures alone.
//!
//! Every mapping has one kind, so the kinds add up to the resident set exactly. Figures that cut
//! across kinds (huge pages, lazily freed pages, pages shared with others) are told beside them.

use serde::Serialize;

use crate::mappings::{self, Mapping};
use crate::pagemap::{Held, Pagemap};
use crate::process::Pid;

/// The purpose of a mapping, as far as the system can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Address space that a Loam heap took.
    LoamHeap,
    /// Records of a Loam heap, which lie apart from its blocks.
    LoamMetadata,
    /// The data segment's extension, `[heap]`: brk.
    Heap,
    /// Private memory of no file: the heaps of most allocators, and other mapped memory.
    Anonymous,
    /// Stacks of threads.
    Stack,
    /// Pages of files, program and libraries included, that were not written to.
    File,
    /// Private copies of files' pages: variables, relocated tables.
    FileCopy,
    /// Memory shared with other processes: shm, memfd, shared anonymous.
    Shared,
    /// The kernel's own helpers.
    Kernel,
}

impl Kind {
    /// Every kind, in the order of the tables.
    pub const ALL: [Kind; 9] = [
        Kind::LoamHeap,
        Kind::LoamMetadata,
        Kind::Heap,
        Kind::Anonymous,
        Kind::Stack,
        Kind::File,
        Kind::FileCopy,
        Kind::Shared,
        Kind::Kernel,
    ];

    /// The name for programs.
    pub fn key(self) -> &'static str {
        match self {
            Kind::LoamHeap => "loam_heap",
            Kind::LoamMetadata => "loam_metadata",
            Kind::Heap => "heap",
            Kind::Anonymous => "anonymous",
            Kind::Stack => "stack",
            Kind::File => "file",
            Kind::FileCopy => "file_copy",
            Kind::Shared => "shared",
            Kind::Kernel => "kernel",
        }
    }

    /// The name for people.
    pub fn title(self) -> &'static str {
        match self {
            Kind::LoamHeap => "Loam heap",
            Kind::LoamMetadata => "Loam heap, records",
            Kind::Heap => "heap ([heap], brk)",
            Kind::Anonymous => "anonymous mappings",
            Kind::Stack => "stacks",
            Kind::File => "program and other files",
            Kind::FileCopy => "variables (changed file pages)",
            Kind::Shared => "shared memory",
            Kind::Kernel => "the kernel's helpers",
        }
    }
}

/// The figures of one kind, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Part {
    /// The number of mappings. A file's mapping with changed pages counts as a file's.
    pub mappings: u64,
    /// Address space.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// Resident.
    #[serde(rename = "resident_bytes")]
    pub resident: u64,
    /// Resident in huge pages.
    #[serde(rename = "huge_bytes")]
    pub huge: u64,
    /// Resident bytes that were given up with `MADV_FREE`: the kernel takes them when it needs
    /// memory.
    #[serde(rename = "lazily_freed_bytes")]
    pub lazily_freed: u64,
    /// Swapped out; not resident.
    #[serde(rename = "swapped_bytes")]
    pub swapped: u64,
    /// Resident bytes that other processes have too, since a `fork()`: nobody gains if this one
    /// gives them back.
    #[serde(rename = "common_bytes")]
    pub common: u64,
    /// Locked in memory.
    #[serde(rename = "locked_bytes")]
    pub locked: u64,
}

impl Part {
    /// Resident bytes of this process alone.
    pub fn own(&self) -> u64 {
        self.resident.saturating_sub(self.common)
    }
}

/// The account of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Residence {
    parts: [Part; Kind::ALL.len()],
    /// Resident, with shared pages divided by the number of sharers.
    pub proportional: u64,
    /// Pages of hugetlbfs, which the kernel does not count as resident.
    pub hugetlb: u64,
}

/// Address ranges that belong to a heap.
#[derive(Debug, Clone, Default)]
pub struct OwnRanges {
    /// Start, end, kind; sorted by start, not overlapping.
    ranges: Vec<(u64, u64, Kind)>,
}

impl OwnRanges {
    /// Sorts the ranges. Where two overlap, the one that starts first wins.
    pub fn new(mut ranges: Vec<(u64, u64, Kind)>) -> OwnRanges {
        ranges.retain(|(start, end, _)| end > start);
        ranges.sort_by_key(|(start, end, _)| (*start, *end));
        OwnRanges { ranges }
    }

    /// Cuts each mapping that the kernel has joined with a neighbour where a range begins or ends.
    /// The kernel joins private memory that is alike, unless the heap could name its own. `look` is
    /// called once for a mapping with the ends of its pieces, and says what each piece holds; if it
    /// does not, the mapping stays whole.
    pub fn cut(
        &self,
        mappings: Vec<Mapping>,
        look: impl Fn(&Mapping, &[u64]) -> Option<Vec<Held>>,
    ) -> Vec<Mapping> {
        let mut found = Vec::with_capacity(mappings.len());
        for mapping in mappings {
            match self.pieces(&mapping, &look) {
                Some(pieces) => found.extend(pieces),
                None => found.push(mapping),
            }
        }
        found
    }

    fn pieces(
        &self,
        mapping: &Mapping,
        look: &impl Fn(&Mapping, &[u64]) -> Option<Vec<Held>>,
    ) -> Option<Vec<Mapping>> {
        if mapping.inode != 0 || mapping.resident == 0 {
            return None;
        }
        let kind_at = |address: u64| {
            let behind = self.ranges.partition_point(|(start, ..)| *start <= address);
            let (_, end, kind) = self.ranges[..behind].last()?;
            (address < *end).then_some(*kind)
        };
        let mut edges: Vec<u64> = self
            .overlapping(mapping)
            .flat_map(|(start, end, _)| [*start, *end])
            .collect();
        edges.retain(|edge| (mapping.start + 1..mapping.end).contains(edge));
        edges.sort_unstable();
        edges.dedup();
        // The border of two neighbouring ranges of one kind is no edge.
        edges.retain(|edge| kind_at(edge - 1) != kind_at(*edge));
        if edges.is_empty() || edges.iter().any(|edge| edge % 4096 != 0) {
            return None;
        }
        edges.push(mapping.end);
        let held = look(mapping, &edges)?;
        let mut pieces = Vec::with_capacity(edges.len());
        let mut start = mapping.start;
        for (end, held) in edges.into_iter().zip(held) {
            let piece = Mapping {
                start,
                end,
                proportional: 0,
                lazily_freed: 0,
                ..mapping.clone()
            };
            pieces.push(piece.holding(held));
            start = end;
        }
        // Figures that are known only for the whole mapping go with its largest piece.
        let largest = pieces.iter_mut().max_by_key(|piece| piece.resident)?;
        largest.proportional = mapping.proportional;
        largest.lazily_freed = mapping.lazily_freed.min(largest.resident);
        Some(pieces)
    }

    /// The ranges that share an address with the mapping, from the last one.
    fn overlapping(&self, mapping: &Mapping) -> impl Iterator<Item = &(u64, u64, Kind)> {
        let start = mapping.start;
        let behind = self
            .ranges
            .partition_point(|(start, ..)| *start < mapping.end);
        // Ranges do not overlap, so the ranges before one that ends before the mapping end before
        // it too.
        let ranges = self.ranges[..behind].iter().rev();
        ranges.take_while(move |(_, end, _)| *end > start)
    }

    /// The kind of the range that contains most of the mapping. That is all of it, if the mapping
    /// was cut or did not need to be.
    fn kind(&self, mapping: &Mapping) -> Option<Kind> {
        let mut covered = [
            (Kind::LoamHeap, 0u64),
            (Kind::LoamMetadata, 0),
            (Kind::Stack, 0),
        ];
        for (start, end, kind) in self.overlapping(mapping) {
            let overlap = (*end)
                .min(mapping.end)
                .saturating_sub((*start).max(mapping.start));
            if let Some(entry) = covered.iter_mut().find(|(known, _)| known == kind) {
                entry.1 = entry.1.saturating_add(overlap);
            }
        }
        let (kind, bytes) = covered.into_iter().max_by_key(|(_, bytes)| *bytes)?;
        (bytes > mapping.size() / 2).then_some(kind)
    }
}

/// The contents of pieces of a process's mappings, for [`OwnRanges::cut`]. If a mapping has been
/// replaced by now, nothing is known.
pub fn look_into(pid: Pid) -> impl Fn(&Mapping, &[u64]) -> Option<Vec<Held>> {
    let pagemap = Pagemap::open(pid).ok();
    move |mapping, ends| {
        let now = mappings::ask(pid, mapping.start)?;
        let is_same = (now.start, now.end) == (mapping.start, mapping.end);
        let pagemap = pagemap.as_ref().filter(|_| is_same)?;
        pagemap.held(mapping.start, ends)
    }
}

impl Residence {
    /// Sorts mappings into kinds.
    pub fn of(mappings: &[Mapping], own: &OwnRanges) -> Residence {
        let mut residence = Residence::default();
        for mapping in mappings {
            residence.add(mapping, own);
        }
        residence
    }

    fn add(&mut self, mapping: &Mapping, own: &OwnRanges) {
        self.proportional = self.proportional.saturating_add(mapping.proportional);
        self.hugetlb = self.hugetlb.saturating_add(mapping.hugetlb);
        let kind = kind_of(mapping, own);
        let part = &mut self.parts[kind as usize];
        part.mappings += 1;
        part.size = part.size.saturating_add(mapping.size());
        part.huge = part.huge.saturating_add(mapping.huge);
        part.lazily_freed = part.lazily_freed.saturating_add(mapping.lazily_freed);
        part.swapped = part.swapped.saturating_add(mapping.swapped);
        part.locked = part.locked.saturating_add(mapping.locked);
        let common = mapping.common.min(mapping.resident);
        if kind == Kind::File {
            let copies = mapping.anonymous.min(mapping.resident);
            part.resident = part.resident.saturating_add(mapping.resident - copies);
            let copied = &mut self.parts[Kind::FileCopy as usize];
            copied.resident = copied.resident.saturating_add(copies);
            copied.common = copied.common.saturating_add(common.min(copies));
        } else {
            part.common = part.common.saturating_add(common);
            part.resident = part.resident.saturating_add(mapping.resident);
        }
    }

    /// The figures of a kind.
    pub fn part(&self, kind: Kind) -> &Part {
        &self.parts[kind as usize]
    }

    /// The kinds and their figures, in the order of the tables.
    pub fn parts(&self) -> impl Iterator<Item = (Kind, &Part)> {
        Kind::ALL.into_iter().zip(&self.parts)
    }

    /// The sum over all kinds.
    pub fn total(&self) -> Part {
        self.sum_of(&Kind::ALL)
    }

    /// The sum of several kinds.
    pub fn sum_of(&self, kinds: &[Kind]) -> Part {
        let mut sum = Part::default();
        for part in kinds.iter().map(|kind| self.part(*kind)) {
            sum.mappings += part.mappings;
            sum.size = sum.size.saturating_add(part.size);
            sum.resident = sum.resident.saturating_add(part.resident);
            sum.huge = sum.huge.saturating_add(part.huge);
            sum.lazily_freed = sum.lazily_freed.saturating_add(part.lazily_freed);
            sum.swapped = sum.swapped.saturating_add(part.swapped);
            sum.common = sum.common.saturating_add(part.common);
            sum.locked = sum.locked.saturating_add(part.locked);
        }
        sum
    }

    /// The sum of several kinds' resident bytes.
    pub fn resident_of(&self, kinds: &[Kind]) -> u64 {
        kinds.iter().map(|kind| self.part(*kind).resident).sum()
    }
}

fn kind_of(mapping: &Mapping, own: &OwnRanges) -> Kind {
    let name = mapping.name.as_str();
    if let Some(kind) = own.kind(mapping) {
        return kind;
    }
    match name {
        "[heap]" => return Kind::Heap,
        "[stack]" => return Kind::Stack,
        "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]" | "[uprobes]" | "[sigpage]" => {
            return Kind::Kernel
        }
        _ => {}
    }
    let is_shared_memory =
        mapping.shared && SHARED_MEMORY.iter().any(|start| name.starts_with(start));
    if is_shared_memory {
        return Kind::Shared;
    }
    if name.starts_with('/') {
        return Kind::File;
    }
    if name.starts_with("[stack:") || name.starts_with("[anon:stack") {
        return Kind::Stack;
    }
    Kind::Anonymous
}

/// How names of mappings begin that are memory and no file on a disk.
const SHARED_MEMORY: [&str; 6] = [
    "/dev/zero",
    "/memfd:",
    "/SYSV",
    "/dev/shm/",
    "/anon_hugepage",
    "[anon_shmem:",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapping(start: u64, pages: u64, name: &str) -> Mapping {
        Mapping {
            start,
            end: start + pages * 4096,
            name: name.to_owned(),
            resident: pages * 4096,
            anonymous: if name.starts_with('/') {
                4096
            } else {
                pages * 4096
            },
            ..Mapping::default()
        }
    }

    #[test]
    fn every_mapping_falls_into_the_kind_that_a_person_would_name() {
        let mut shared = mapping(0x9000_0000, 4, "/dev/shm/x");
        shared.shared = true;
        let mappings = [
            mapping(0x1000, 2, "/usr/bin/a"),
            mapping(0x10000, 8, "[heap]"),
            mapping(0x100000, 16, ""),
            mapping(0x200000, 3, ""),
            mapping(0x4000_0000, 5, ""),
            shared,
        ];
        let own = OwnRanges::new(vec![
            (0x4000_0000, 0x8000_0000, Kind::LoamHeap),
            (0x200000, 0x203000, Kind::Stack),
        ]);
        let residence = Residence::of(&mappings, &own);
        let pages = |kind| residence.part(kind).resident / 4096;
        assert_eq!((pages(Kind::File), pages(Kind::FileCopy)), (1, 1));
        assert_eq!((pages(Kind::Heap), pages(Kind::Anonymous)), (8, 16));
        assert_eq!(
            (
                pages(Kind::Stack),
                pages(Kind::LoamHeap),
                pages(Kind::Shared)
            ),
            (3, 5, 4)
        );
        assert_eq!(residence.total().resident, 38 * 4096);
        assert_eq!(residence.total().mappings, 6);
    }

    #[test]
    fn a_mapping_that_was_joined_is_cut_where_ranges_end() {
        let joined = Mapping {
            swapped: 4096,
            proportional: 10,
            ..mapping(0x100000, 16, "")
        };
        let own = OwnRanges::new(vec![(0x100000, 0x104000, Kind::LoamHeap)]);
        let of = |mappings: &[Mapping]| {
            let residence = Residence::of(mappings, &own);
            let pages = |kind| residence.part(kind).resident / 4096;
            (pages(Kind::LoamHeap), pages(Kind::Anonymous))
        };
        let whole = own.cut(vec![joined.clone()], |_, _| None);
        assert_eq!((whole.len(), of(&whole)), (1, (0, 16)));
        let cut = own.cut(vec![joined, mapping(0x200000, 2, "")], |mapping, ends| {
            Some(held(mapping, ends, 2))
        });
        assert_eq!(of(&cut), (2, 6 + 2));
        let places: Vec<_> = cut.iter().map(|one| (one.start, one.end)).collect();
        assert_eq!(
            places,
            [
                (0x100000, 0x104000),
                (0x104000, 0x110000),
                (0x200000, 0x202000)
            ]
        );
        assert_eq!(cut.iter().map(|one| one.proportional).sum::<u64>(), 10);
    }

    /// One part in so many of each piece is resident.
    fn held(mapping: &Mapping, ends: &[u64], part: u64) -> Vec<Held> {
        let starts = [&[mapping.start], ends].concat();
        let lengths = ends.iter().zip(starts).map(|(end, start)| end - start);
        let resident = lengths.map(|length| length / part);
        resident
            .map(|resident| Held {
                resident,
                ..Held::default()
            })
            .collect()
    }

    #[test]
    fn a_mapping_of_many_blocks_is_looked_into_once() {
        // Few enough that the memory of this test is not what another test gets as fresh.
        const BLOCKS: u64 = 2_000;
        let joined = mapping(0x100000, 2 * BLOCKS, "");
        let block = |number: u64| {
            let start = joined.start + number * 8192;
            (start, start + 4096, Kind::LoamHeap)
        };
        let own = OwnRanges::new((0..BLOCKS).map(block).collect());
        let looks = std::cell::Cell::new(0);
        let mut mappings = vec![joined.clone()];
        // Mappings without a border of the heap's are not looked into.
        mappings.extend((0..BLOCKS).map(|number| mapping((1 << 40) + number * 8192, 1, "")));
        let cut = own.cut(mappings, |mapping, ends| {
            looks.set(looks.get() + 1);
            Some(held(mapping, ends, 1))
        });
        assert_eq!((cut.len() as u64, looks.get()), (3 * BLOCKS, 1));
        let residence = Residence::of(&cut, &own);
        assert_eq!(residence.part(Kind::LoamHeap).resident, BLOCKS * 4096);
        assert_eq!(residence.part(Kind::LoamHeap).mappings, BLOCKS);
    }

    #[test]
    fn a_part_of_a_real_mapping_is_counted_page_by_page() {
        const PAGE: usize = 4096;
        // A block of 32 MiB has a fresh mapping: glibc's DEFAULT_MMAP_THRESHOLD_MAX. A smaller one
        // may have touched pages.
        let mut memory: Vec<u8> = Vec::with_capacity((32 << 20) + 200 * PAGE);
        let skipped = memory.as_ptr() as usize % PAGE;
        let skipped = (PAGE - skipped) % PAGE;
        for page in (0..100).step_by(4) {
            memory.spare_capacity_mut()[skipped + page * PAGE].write(1);
        }
        let start = memory.as_ptr() as u64 + skipped as u64;
        let end = start + 100 * PAGE as u64;
        let own = OwnRanges::new(vec![(start, end, Kind::LoamHeap)]);
        let pid = std::process::id() as Pid;
        if mappings::ask(pid, start).is_none() {
            eprintln!("skipped: this kernel has no PROCMAP_QUERY");
            return;
        }
        // Another test may map memory beside it between the two looks, and then it is not cut.
        let cut_once = |_| {
            let mapped = mappings::read_all(pid).unwrap();
            let whole = mapped.iter().find(|one| one.contains(start)).cloned();
            let cut = own.cut(mapped, look_into(pid));
            let is_cut = cut.iter().any(|one| one.start == start);
            whole.filter(|_| is_cut).map(|whole| (whole, cut))
        };
        let (whole, cut) = (0..100).find_map(cut_once).unwrap();
        let residence = Residence::of(&cut, &own);
        // At least the touched pages: another test may have had the memory before.
        let mut pages = 0;
        let pagemap = Pagemap::open(pid).unwrap();
        let page = PAGE as u64;
        let count = |is_resident| pages += u64::from(is_resident);
        pagemap.look(start / page, 100, count).unwrap();
        assert!(pages >= 25, "{pages}");
        assert_eq!(residence.part(Kind::LoamHeap).resident, pages * page);
        let pieces = cut.iter().filter(|one| whole.contains(one.start));
        let sum: u64 = pieces.map(|piece| piece.resident).sum();
        assert!(sum >= whole.resident, "{sum} {}", whole.resident);
    }

    #[test]
    fn the_account_of_this_process_is_what_the_system_says() {
        let pid = std::process::id() as Pid;
        let mappings = mappings::read_all(pid).unwrap();
        let residence = Residence::of(&mappings, &OwnRanges::default());
        let sum: u64 = mappings.iter().map(|mapping| mapping.resident).sum();
        assert_eq!(residence.total().resident, sum);
        assert!(residence.part(Kind::File).resident > 0);
    }

    proptest! {
        #[test]
        fn parts_add_up_whatever_the_mappings(
            mappings in proptest::collection::vec(
                (any::<u32>(), 1..9u64, 0..5usize, any::<u16>()),
                0..40,
            ),
            own in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..4),
        ) {
            let names = ["", "[heap]", "/bin/x", "/memfd:y", "[stack]"];
            let mappings: Vec<Mapping> = mappings
                .into_iter()
                .map(|(start, pages, name, anonymous)| Mapping {
                    anonymous: u64::from(anonymous),
                    ..mapping(u64::from(start), pages, names[name])
                })
                .collect();
            let ranges = own
                .into_iter()
                .map(|(a, b)| (a.into(), b.into(), Kind::LoamHeap))
                .collect();
            let residence = Residence::of(&mappings, &OwnRanges::new(ranges));
            let sum: u64 = mappings.iter().map(|mapping| mapping.resident).sum();
            prop_assert_eq!(residence.total().resident, sum);
        }
    }
}
