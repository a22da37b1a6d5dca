//! The heap of a program on glibc's malloc, read from outside while the program runs.
//!
//! ```text
//!  C library's data --> main arena --> ring of arenas --> stretches of chunks
//!                                           |                  '--> in use, holes, top
//!                                           |                  '--> threads' caches (by length)
//!                                           '--> fast bins
//!  mappings without a name --> blocks that are mappings of their own
//!  holes and tops --> /proc/PID/pagemap --> which of their pages are resident
//! ```
//!
//! glibc keeps a header in front of every block, so its heap can be read like a chain, without
//! symbols, preparation or a stop. Parts that do not add up are not counted, and the result names
//! them. The figures of a process that allocates meanwhile do not belong to a single moment: each
//! chunk is as it was when its part of memory was copied.

mod ahead;
pub mod arenas;
mod caches;
pub mod layout;
mod lengths;
mod mapped;
mod metered;
mod pages;
mod regions;
#[cfg(test)]
mod tests;
mod there;
mod walk;

use std::time::{Duration, Instant};

use thiserror::Error;

use crate::mappings::{self, Mapping};
use crate::process::{Pid, ProcessError, ProcessKey};
use loam_format::memory::Memory;
use loam_format::units::bytes;

use crate::remote::ProcessMemory;
use caches::{FastChunks, Records};
use layout::{is_libc, Layout, Version, NEWEST, OLDEST};
use metered::{Metered, MOST_CALLS};
pub use pages::Residency;
use there::There;
use walk::{walk, Chunk, State, Stretch};

pub use lengths::Lengths;
pub use mapped::Mapped;

/// Why a heap can not be read.
#[derive(Debug, Error)]
pub enum GlibcError {
    /// The process has another C library, or none. The linker leaves the version out of a small
    /// static program.
    #[error(
        "no GNU C Library was found: the program has another one, or is static and does not name \
         the version"
    )]
    Absent,
    /// The version's records are not known.
    #[error("its GNU C Library is {0}; the heaps of {OLDEST} to {NEWEST} can be read")]
    Version(Version),
    /// The records are not at their places.
    #[error(
        "the C library's arenas were not found: its malloc may be unused, or replaced by \
             another one"
    )]
    NoArena,
    /// The system's error.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Counts and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Bytes, with headers.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

/// The contents of one arena.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArenaFigures {
    /// The address of its record.
    pub address: u64,
    /// Whether it is the main one.
    pub is_main: bool,
    /// Address space in its stretches, in bytes.
    pub size: u64,
    /// Chunks in use by their headers: blocks, and chunks that caches and fast bins keep.
    pub in_use: Sum,
    /// Freed chunks in its fast bins. Part of `in_use`.
    pub fast: Sum,
    /// Freed chunks in threads' caches. Part of `in_use`.
    pub cached: Sum,
    /// Holes between blocks.
    pub holes: Sum,
    /// Whole pages within holes, in bytes, whether resident or not.
    pub whole_pages: u64,
    /// Resident bytes of these pages: `malloc_trim` gives them back.
    pub trimmable: u64,
    /// Those of them that other processes have too: to give them back frees nothing.
    pub trimmable_common: u64,
    /// Resident bytes that the verb `trim` gives back from outside: of each hole for itself, since
    /// nothing joins them with the chunks of fast bins, and of the arena's end behind
    /// [`RESERVE`]. Those that other processes have too are left out.
    pub from_outside: u64,
    /// The number of holes with such pages: each costs a system call.
    pub trimmable_holes: u64,
    /// Holes as a trim joins them: neighbours, with the chunks of fast bins among them, are one
    /// hole.
    pub joined_holes: u64,
    /// The chunk at the arena's end.
    pub top: u64,
    /// Its resident bytes.
    pub top_resident: u64,
    /// Those of them that other processes have too.
    pub top_common: u64,
    /// Resident bytes of its stretches.
    pub resident: u64,
    /// Those of them that other processes have too.
    pub common: u64,
    /// Pages within long blocks that are not resident: never touched, or swapped out. In bytes.
    pub untouched: u64,
    /// The longest hole, fast bins' chunks joined; zero without any.
    pub longest_hole: u64,
    /// The chunks in use after it, up to the arena's end.
    pub behind_longest_hole: Sum,
    /// Chunks in use by length, those in fast bins left out.
    pub lengths: Lengths,
    /// Bytes that could not be walked.
    pub unread: u64,
    /// How often the walk went back because the process changed something.
    pub returns: u32,
}

impl ArenaFigures {
    /// Bytes in blocks that the program holds, headers included.
    pub fn live(&self) -> u64 {
        let kept = self.fast.bytes + self.cached.bytes;
        self.in_use.bytes.saturating_sub(kept)
    }
}

/// The heap of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlibcHeap {
    /// The version of the C library.
    pub version: Version,
    /// The main ones first: each C library in the process has one.
    pub arenas: Vec<ArenaFigures>,
    /// Blocks that are mappings of their own.
    pub mapped: Mapped,
    /// Threads' caches that keep something.
    pub caches: u64,
    /// Bytes that the heap has by its own counts and that were not found or could not be followed.
    pub unseen: u64,
    /// What was left out and why, in words.
    pub problems: Vec<String>,
    /// How long the look took.
    pub took: Duration,
}

impl GlibcHeap {
    /// The sum of a figure over all arenas.
    pub fn sum(&self, figure: impl Fn(&ArenaFigures) -> u64) -> u64 {
        self.arenas.iter().map(figure).sum()
    }

    /// Bytes in blocks that the program holds, headers included.
    pub fn live(&self) -> u64 {
        self.sum(ArenaFigures::live) + self.mapped.sum.bytes
    }
}

/// Gets the blocks of a heap while it is read.
pub trait Blocks {
    /// Whether [`Blocks::cached`] is wanted, for which the lists of threads' caches are followed.
    const WANTS_CACHED: bool = false;

    /// A block, in the order of addresses within a stretch. Chunks in fast bins are not told;
    /// chunks in threads' caches are told like blocks.
    fn block(&mut self, address: u64, size: u64, residency: &Residency);
    /// A stretch of an arena has ended.
    fn stretch_ends(&mut self, residency: &Residency);
    /// A freed block in a thread's cache, which was told like a block before.
    fn cached(&mut self, _address: u64) {}
    /// A block that is a mapping of its own.
    fn mapped(&mut self, _address: u64, _size: u64) {}
    /// An arena, before its blocks.
    fn arena(&mut self, _arena: &arenas::Arena) {}
    /// A hole between blocks, or the chunk behind the last one (`is_top`), by its header.
    fn hole(&mut self, _arena: u64, _address: u64, _size: u64, _is_top: bool, _: &Residency) {}
}

/// A receiver that ignores all blocks.
impl Blocks for () {
    fn block(&mut self, _: u64, _: u64, _: &Residency) {}
    fn stretch_ends(&mut self, _: &Residency) {}
}

/// Reads the heap of a process.
pub fn read(key: ProcessKey) -> Result<GlibcHeap, GlibcError> {
    read_and_tell(key, &mut ())
}

/// Reads the heap of a process and tells each block. A process that ends meanwhile is an error.
pub fn read_and_tell(key: ProcessKey, blocks: &mut impl Blocks) -> Result<GlibcHeap, GlibcError> {
    let pid = key.pid;
    let mappings = mappings::read_names(pid)?;
    let version = version(pid, &mappings).ok_or(GlibcError::Absent)?;
    let layout = Layout::of(version).ok_or(GlibcError::Version(version))?;
    let mut residency = Residency::open(pid);
    let memory = ProcessMemory::of(pid);
    let heap = read_from(&memory, &mappings, &layout, &mut residency, blocks);
    // What is read of an ending process is less and less, and looks like an empty heap.
    memory.confirm(key)?;
    heap
}

/// Reads the heap in a memory whose mappings and C library's version are known: a core's, for
/// instance.
pub fn read_memory(
    memory: &(impl Memory + Sync),
    mappings: &[Mapping],
    version: Version,
    residency: &mut Residency,
    blocks: &mut impl Blocks,
) -> Result<GlibcHeap, GlibcError> {
    let layout = Layout::of(version).ok_or(GlibcError::Version(version))?;
    read_from(memory, mappings, &layout, residency, blocks)
}

/// The version of the process's C library. The version of a static program is in its own file.
pub(crate) fn version(pid: Pid, mappings: &[Mapping]) -> Option<Version> {
    layout::version_of(pid, file_of(mappings)?)
}

/// The mapping of the file that contains the C library: the library's own, or the program's.
pub fn file_of(mappings: &[Mapping]) -> Option<&Mapping> {
    let library = mappings.iter().find(|mapping| is_libc(mapping));
    let program = || {
        mappings
            .iter()
            .find(|mapping| mapping.executable && mapping.name.starts_with('/'))
    };
    library.or_else(program)
}

fn read_from<B: Blocks>(
    memory: &(impl Memory + Sync),
    mappings: &[Mapping],
    layout: &Layout,
    residency: &mut Residency,
    blocks: &mut B,
) -> Result<GlibcHeap, GlibcError> {
    let begun = Instant::now();
    let memory = &Metered::new(memory, MOST_CALLS);
    let (mut arenas, mut problems) = arenas::find(memory, mappings).ok_or(GlibcError::NoArena)?;
    regions::complete(memory, mappings, &mut arenas, residency);
    let arenas = arenas;
    let place_of = Places::of(&arenas);
    let is_chunk = |address| place_of.arena(address).is_some();
    let heads: Vec<u64> = arenas.iter().flat_map(arenas::Arena::fast_bins).collect();
    let fast = FastChunks::follow(memory, layout, &heads, is_chunk);
    if fast.is_cut && !layout.is_mangled {
        problems.push(
            "more small freed chunks wait in fast bins than were followed, and this version's \
             links do not tell them apart: some count as live"
                .to_owned(),
        );
    }
    let mut figures = Vec::new();
    let mut records = Records::new(layout, is_chunk);
    for arena in &arenas {
        blocks.arena(arena);
        figures.push(walk_arena(
            memory,
            arena,
            layout,
            &fast,
            &mut records,
            residency,
            blocks,
        ));
    }
    let mut caches = 0;
    let mut cached = Vec::new();
    let unread = records.each_cache(memory, |kept| {
        caches += u64::from(!kept.is_empty());
        for kept in kept {
            if B::WANTS_CACHED {
                cached.push((kept.address, kept.count));
            }
            if let Some(arena) = place_of.arena(kept.address) {
                figures[arena].cached.count += kept.count;
                figures[arena].cached.bytes += kept.bytes;
            }
        }
    });
    caches::each_cached(memory, layout, cached, is_chunk, |address| {
        blocks.cached(address);
    });
    if unread > 0 {
        problems.push(format!(
            "many blocks have the length of a thread cache's record, and {unread} of them were not \
             read: freed blocks that such a cache keeps count as live"
        ));
    }
    let mut unseen = 0;
    let hugetlb = mappings.iter().filter(|one| mapped::is_of_hugetlbfs(one));
    let hugetlb: u64 = hugetlb.map(Mapping::size).sum();
    for (arena, figures) in arenas.iter().zip(&figures) {
        unseen += figures.unread;
        let name = if arena.is_main {
            "the main arena".to_owned()
        } else {
            format!("the arena at {:#x}", arena.address)
        };
        if figures.unread > 0 {
            problems.push(format!(
                "{} of {name} could not be followed",
                bytes(figures.unread as f64)
            ));
        }
        let elsewhere = arena.system_bytes.saturating_sub(figures.size);
        if arena.is_main && elsewhere > 1 << 20 {
            unseen += elsewhere;
            let found = match hugetlb {
                0 => "and were not found".to_owned(),
                hugetlb => format!(
                    "and were not found; it has {} of mappings of hugetlbfs, as \
                     glibc.malloc.hugetlb=2 makes them, which are not read and whose pages do not \
                     count as resident: without that setting the heap is seen",
                    bytes(hugetlb as f64)
                ),
            };
            problems.push(format!(
                "{} of {name} lie in mappings {found}",
                bytes(elsewhere as f64)
            ));
        }
    }
    let mapped = mapped::read(memory, mappings, &place_of, residency);
    for (start, size) in &mapped.blocks {
        blocks.mapped(start + HEADER, size - HEADER);
    }
    if memory.is_used_up() {
        problems.push(format!(
            "the look was given up after {MOST_CALLS} calls, because much of the memory can not be \
             read or does not add up: its figures are a part of the heap's"
        ));
    }
    Ok(GlibcHeap {
        version: layout.version,
        mapped,
        arenas: figures,
        caches,
        unseen,
        problems,
        took: begun.elapsed(),
    })
}

/// What a trim from outside leaves behind the last block of an arena. Chosen: what glibc itself
/// leaves there (its `M_TOP_PAD`).
pub const RESERVE: u64 = 128 << 10;

/// From a chunk to its block. The first word of the next chunk belongs to the block, too.
const HEADER: u64 = 16;

fn walk_arena(
    memory: &(impl Memory + Sync),
    arena: &arenas::Arena,
    layout: &Layout,
    fast: &FastChunks,
    records: &mut Records<'_, impl Fn(u64) -> bool>,
    residency: &mut Residency,
    blocks: &mut impl Blocks,
) -> ArenaFigures {
    let mut figures = ArenaFigures {
        address: arena.address,
        is_main: arena.is_main,
        ..ArenaFigures::default()
    };
    for (start, end) in &arena.stretches {
        figures.size += end - start;
        residency.look_at(*start, *end);
        figures.resident += residency.resident(*start, *end);
        figures.common += residency.common(*start, *end);
        let stretch = Stretch {
            start: *start,
            end: *end,
            is_main: arena.is_main,
        };
        let mut trim = Trim::default();
        let mut is_in_fast_bin = fast.ascending(*start);
        let residency = &*residency;
        let there = There::new(memory, residency);
        let end_now = || {
            there.doubt();
            arena.end_now(memory, *start)
        };
        let ended = walk(&there, stretch, end_now, |chunk| {
            let is_fast = chunk.state == State::InUse
                && (is_in_fast_bin(chunk.address)
                    || fast.is_linked(layout, &chunk, |address| arena.holds(address))
                        && !records.marks(&chunk));
            match chunk.state {
                State::InUse => {
                    figures.in_use.add(chunk.size);
                    if is_fast {
                        figures.fast.add(chunk.size);
                    } else {
                        figures.lengths.add(chunk.size);
                        figures.behind_longest_hole.add(chunk.size);
                        figures.untouched += untouched(&chunk, residency);
                        blocks.block(chunk.address + HEADER, chunk.size - 8, residency);
                    }
                    records.add(memory, &chunk);
                }
                State::Free => {
                    figures.holes.add(chunk.size);
                    figures.from_outside += own_pages(&chunk, Trim::LINKS, residency);
                    blocks.hole(arena.address, chunk.address, chunk.size, false, residency);
                }
                State::Top => {
                    blocks.hole(arena.address, chunk.address, chunk.size, true, residency);
                    figures.top += chunk.size;
                    figures.from_outside += own_pages(&chunk, RESERVE, residency);
                    let end = chunk.address + chunk.size;
                    figures.top_resident += residency.resident(chunk.address, end);
                    figures.top_common += residency.common(chunk.address, end);
                }
            }
            trim.add(&chunk, is_fast, residency, &mut figures);
        });
        trim.close(None, residency, &mut figures);
        blocks.stretch_ends(residency);
        figures.unread += ended.unread;
        figures.returns += ended.returns;
    }
    figures
}

/// The effect of `malloc_trim`: it first joins the chunks of fast bins with the holes beside them,
/// and then gives back the whole pages of every hole, except for the header and links at its start.
#[derive(Default)]
struct Trim {
    /// Start and end of the hole that is being joined.
    hole: (u64, u64),
}

impl Trim {
    const LINKS: u64 = 48;

    fn add(
        &mut self,
        chunk: &Chunk,
        is_fast: bool,
        residency: &Residency,
        figures: &mut ArenaFigures,
    ) {
        if self.hole.1 != chunk.address {
            self.close(None, residency, figures);
        }
        if is_fast || chunk.state == State::Free {
            if self.hole.1 == 0 {
                self.hole.0 = chunk.address;
            }
            self.hole.1 = chunk.address + chunk.size;
        } else if chunk.state == State::Top {
            // A hole before the top joins the top, and only `brk` shortens that.
            self.hole = (0, 0);
        } else {
            self.close(Some(chunk), residency, figures);
        }
    }

    /// The hole ends, before a block or before the fences at the end of a part of the arena.
    fn close(&mut self, next: Option<&Chunk>, residency: &Residency, figures: &mut ArenaFigures) {
        let (start, end) = std::mem::take(&mut self.hole);
        if start == end {
            return;
        }
        figures.joined_holes += 1;
        if end - start > figures.longest_hole {
            figures.longest_hole = end - start;
            figures.behind_longest_hole = Sum::default();
            if let Some(chunk) = next {
                figures.behind_longest_hole.add(chunk.size);
            }
        }
        if let Some((first, behind)) = whole_pages(start + Self::LINKS, end) {
            figures.whole_pages += behind - first;
            let resident = residency.resident(first, behind);
            figures.trimmable += resident;
            figures.trimmable_common += residency.common(first, behind);
            figures.trimmable_holes += u64::from(resident > 0);
        }
    }
}

/// Resident bytes of the whole pages of a free chunk behind so many bytes of it, without those that
/// other processes have too.
fn own_pages(chunk: &Chunk, kept: u64, residency: &Residency) -> u64 {
    whole_pages(chunk.address + kept, chunk.address + chunk.size).map_or(0, |(first, behind)| {
        residency.resident(first, behind) - residency.common(first, behind)
    })
}

/// The begin and the end of the pages that lie whole in a range, if there are any.
fn whole_pages(start: u64, end: u64) -> Option<(u64, u64)> {
    let first = start.next_multiple_of(pages::PAGE);
    let behind = end & !(pages::PAGE - 1);
    (first < behind).then_some((first, behind))
}

/// Pages that lie whole within a long block and are not resident, in bytes.
fn untouched(chunk: &Chunk, residency: &Residency) -> u64 {
    // Most chunks are short.
    if chunk.size < pages::PAGE {
        return 0;
    }
    let whole = whole_pages(chunk.address + HEADER, chunk.address + chunk.size);
    whole.map_or(0, |(first, behind)| {
        behind - first - residency.resident(first, behind)
    })
}

/// The arena of an address.
pub struct Places {
    /// Start, end, number of the arena; sorted.
    stretches: Vec<(u64, u64, usize)>,
}

impl Places {
    fn of(arenas: &[arenas::Arena]) -> Places {
        let mut stretches = Vec::new();
        for (number, arena) in arenas.iter().enumerate() {
            stretches.extend(
                arena
                    .stretches
                    .iter()
                    .map(|(start, end)| (*start, *end, number)),
            );
        }
        stretches.sort_unstable();
        Places { stretches }
    }

    /// The parts of a range that belong to no arena.
    fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut place = start;
        let first = self.stretches.partition_point(|(_, end, _)| *end <= start);
        for (from, to, _) in &self.stretches[first..] {
            if *from >= end {
                break;
            }
            if place < *from {
                found.push((place, *from));
            }
            place = place.max(*to);
        }
        if place < end {
            found.push((place, end));
        }
        found
    }

    fn arena(&self, address: u64) -> Option<usize> {
        let behind = self
            .stretches
            .partition_point(|(start, ..)| *start <= address);
        let (_, end, number) = self.stretches.get(behind.checked_sub(1)?)?;
        (address < *end).then_some(*number)
    }
}

/// Start and end of mappings. Neighbours are joined, because advice and protection divide one heap
/// into several mappings.
fn joined<'a>(mappings: impl Iterator<Item = &'a Mapping>) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for mapping in mappings {
        match found.last_mut() {
            Some((_, end)) if *end == mapping.start => *end = mapping.end,
            _ => found.push((mapping.start, mapping.end)),
        }
    }
    found
}

/// Eight bytes of the process.
fn word(memory: &impl Memory, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(address, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}
