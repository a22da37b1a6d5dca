//! Where the resident memory of any program is, from what the system says alone.
//!
//! Every mapping falls into one kind, so the kinds add up to the resident set exactly. What cuts
//! across them (huge pages, lazily freed pages, pages shared with others) is told beside.

use std::fs;

use serde::Serialize;

use crate::mappings::Mapping;
use crate::process::Pid;

/// What a mapping is for, as far as the system can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Address space that a Loam heap took.
    LoamHeap,
    /// Records of a Loam heap, which lie apart from its blocks.
    LoamMetadata,
    /// The data segment's extension, `[heap]`: brk.
    Heap,
    /// Private memory of no file: the heaps of most allocators, and whatever else maps memory.
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
    /// Every kind, in the order of tables.
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

    /// For programs.
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

    /// What people call it.
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
    /// Mappings. A file's mapping with changed pages counts as a file's.
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
    /// Resident, but given up with `MADV_FREE`: the kernel takes it when it needs memory.
    #[serde(rename = "lazily_freed_bytes")]
    pub lazily_freed: u64,
    /// Swapped out; not resident.
    #[serde(rename = "swapped_bytes")]
    pub swapped: u64,
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

/// Address ranges that a heap calls its own.
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

    /// The kind of the range that the mapping mostly lies in. The kernel never joins a heap's mapping
    /// with another's unless both are adjacent and alike, so most of it is all of it.
    fn kind(&self, mapping: &Mapping) -> Option<Kind> {
        let behind = self
            .ranges
            .partition_point(|(start, ..)| *start < mapping.end);
        let mut covered = [(Kind::LoamHeap, 0u64), (Kind::LoamMetadata, 0u64)];
        for (start, end, kind) in self.ranges[..behind].iter().rev() {
            if *end <= mapping.start {
                break; // ranges do not overlap, so those before this one end before it too
            }
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

impl Residence {
    /// Sorts mappings into kinds. The stack pointers are sorted.
    pub fn of(mappings: &[Mapping], stack_pointers: &[u64], own: &OwnRanges) -> Residence {
        let mut residence = Residence::default();
        for mapping in mappings {
            residence.add(mapping, stack_pointers, own);
        }
        residence
    }

    fn add(&mut self, mapping: &Mapping, stack_pointers: &[u64], own: &OwnRanges) {
        self.proportional = self.proportional.saturating_add(mapping.proportional);
        self.hugetlb = self.hugetlb.saturating_add(mapping.hugetlb);
        let kind = kind_of(mapping, stack_pointers, own);
        let part = &mut self.parts[kind as usize];
        part.mappings += 1;
        part.size = part.size.saturating_add(mapping.size());
        part.huge = part.huge.saturating_add(mapping.huge);
        part.lazily_freed = part.lazily_freed.saturating_add(mapping.lazily_freed);
        part.swapped = part.swapped.saturating_add(mapping.swapped);
        if kind == Kind::File {
            let copies = mapping.anonymous.min(mapping.resident);
            part.resident = part.resident.saturating_add(mapping.resident - copies);
            let copied = &mut self.parts[Kind::FileCopy as usize];
            copied.resident = copied.resident.saturating_add(copies);
        } else {
            part.resident = part.resident.saturating_add(mapping.resident);
        }
    }

    /// The figures of a kind.
    pub fn part(&self, kind: Kind) -> &Part {
        &self.parts[kind as usize]
    }

    /// Kinds and their figures, in the order of tables.
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
        }
        sum
    }

    /// The sum of several kinds' resident bytes.
    pub fn resident_of(&self, kinds: &[Kind]) -> u64 {
        kinds.iter().map(|kind| self.part(*kind).resident).sum()
    }
}

fn kind_of(mapping: &Mapping, stack_pointers: &[u64], own: &OwnRanges) -> Kind {
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
    let is_shared_memory = mapping.shared
        && ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/", "[anon_shmem:"]
            .iter()
            .any(|start| name.starts_with(start));
    if is_shared_memory {
        return Kind::Shared;
    }
    if name.starts_with('/') {
        return Kind::File;
    }
    if name.starts_with("[stack:") || name.starts_with("[anon:stack") {
        return Kind::Stack;
    }
    let first = stack_pointers.partition_point(|pointer| *pointer < mapping.start);
    if stack_pointers
        .get(first)
        .is_some_and(|pointer| mapping.contains(*pointer))
    {
        return Kind::Stack;
    }
    Kind::Anonymous
}

/// A process may have very many threads, and each costs a system call or three.
const MOST_THREADS: usize = 4096;

/// Where the threads' stacks are: the stack pointer of every thread that waits in a system call. One
/// that runs at this moment does not say, and its stack counts as an anonymous mapping. Sorted.
pub fn stack_pointers(pid: Pid) -> Vec<u64> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let pointers = threads.take(MOST_THREADS).filter_map(|thread| {
        // "NUMBER ARGUMENT... SP PC", "-1 SP PC", or "running".
        let text = fs::read_to_string(thread.ok()?.path().join("syscall")).ok()?;
        let word = text.split_whitespace().rev().nth(1)?;
        u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
    });
    let mut pointers: Vec<u64> = pointers.collect();
    pointers.sort_unstable();
    pointers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings;
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
        let own = OwnRanges::new(vec![(0x4000_0000, 0x8000_0000, Kind::LoamHeap)]);
        let residence = Residence::of(&mappings, &[0x201000], &own);
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
    fn the_account_of_this_process_is_what_the_system_says() {
        let pid = std::process::id() as Pid;
        let mappings = mappings::read_all(pid).unwrap();
        let residence = Residence::of(&mappings, &stack_pointers(pid), &OwnRanges::default());
        let sum: u64 = mappings.iter().map(|mapping| mapping.resident).sum();
        assert_eq!(residence.total().resident, sum);
        assert!(residence.part(Kind::File).resident > 0);
    }

    proptest! {
        #[test]
        fn parts_add_up_whatever_the_mappings(
            mappings in proptest::collection::vec((any::<u32>(), 1..9u64, 0..5usize, any::<u16>()), 0..40),
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
            let ranges = own.into_iter().map(|(a, b)| (a.into(), b.into(), Kind::LoamHeap)).collect();
            let residence = Residence::of(&mappings, &[], &OwnRanges::new(ranges));
            let sum: u64 = mappings.iter().map(|mapping| mapping.resident).sum();
            prop_assert_eq!(residence.total().resident, sum);
        }
    }
}
