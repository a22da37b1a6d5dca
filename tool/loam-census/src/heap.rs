//! The live blocks of a target: glibc's or Loam's, and those of CPython's pools.

use loam_counters::{blocks, is_of_peer, locate, CountersError};
use loam_process::allocator::GLIBC;
use loam_process::apart;
use loam_process::glibc::arenas::Arena;
use loam_process::glibc::{self, Blocks, GlibcError, Residency};

use crate::modules::Modules;
use crate::python::{self, Pools, Python};
use crate::table::{Stretch, Table};
use crate::target::{Bytes, Target};

/// Where glibc keeps the records of its arenas: they lead to freed chunks, and are no roots.
const ARENA_RECORD: u64 = 2200;
/// Before a block of its own mapping.
const HEADER: u64 = 16;
/// Chunks of arenas but the main one lie in heaps that begin at multiples of this.
const HEAPS: u64 = 64 << 20;

/// The blocks of a target.
pub struct Heap {
    /// All live blocks.
    pub blocks: Table,
    /// Ranges that are heap, sorted, and therefore no roots.
    pub ranges: Vec<(u64, u64)>,
    /// What CPython's own allocator keeps.
    pub pools: Option<Pools>,
    /// The allocator, in words.
    pub allocator: String,
    /// What was left out and why, in words.
    pub problems: Vec<String>,
}

#[derive(Default)]
struct Collector {
    stretches: Vec<Stretch>,
    stretch: Stretch,
    freed: Vec<u64>,
    mapped: Vec<(u64, u64)>,
    arenas: Vec<Arena>,
    /// Blocks of Loam's that came out of order or overlap others.
    refused: usize,
}

impl Blocks for Collector {
    const WANTS_CACHED: bool = true;

    fn block(&mut self, address: u64, size: u64, _: &Residency) {
        // A walk that went back may tell a block again; the first time counts.
        self.stretch.push(address, size);
    }

    fn stretch_ends(&mut self, _: &Residency) {
        self.stretches.push(std::mem::take(&mut self.stretch));
    }

    fn cached(&mut self, address: u64) {
        self.freed.push(address);
    }

    fn mapped(&mut self, address: u64, size: u64) {
        self.mapped.push((address, size));
    }

    fn arena(&mut self, arena: &Arena) {
        self.arenas.push(arena.clone());
    }
}

impl blocks::Sink for Collector {
    fn block(&mut self, address: u64, size: u64) {
        self.refused += usize::from(!self.stretch.push(address, size));
    }

    fn stretch_ends(&mut self) {
        self.stretches.push(std::mem::take(&mut self.stretch));
    }

    fn freed(&mut self, address: u64) {
        self.freed.push(address);
    }
}

/// Gathers the sizes of blocks at places that are asked for, and nothing else.
struct Picker<'a> {
    places: &'a [u64],
    sizes: Vec<u64>,
}

impl Picker<'_> {
    fn set(&mut self, address: u64, size: u64) {
        if let Ok(place) = self.places.binary_search(&address) {
            self.sizes[place] = size;
        }
    }
}

impl Blocks for Picker<'_> {
    const WANTS_CACHED: bool = true;

    fn block(&mut self, address: u64, size: u64, _: &Residency) {
        self.set(address, size);
    }

    fn stretch_ends(&mut self, _: &Residency) {}

    fn cached(&mut self, address: u64) {
        self.set(address, 0);
    }

    fn mapped(&mut self, address: u64, size: u64) {
        self.set(address, size);
    }
}

/// The same for Loam's blocks, some of which are told to be free before they are told.
struct LoamPicker<'a>(Picker<'a>, Vec<u64>);

impl blocks::Sink for LoamPicker<'_> {
    fn block(&mut self, address: u64, size: u64) {
        self.0.set(address, size);
    }

    fn stretch_ends(&mut self) {}

    fn freed(&mut self, address: u64) {
        if self.0.places.binary_search(&address).is_ok() {
            self.1.push(address);
        }
    }
}

/// The bytes of the live blocks at these places, which are sorted; 0: there is none.
pub fn sizes_at(target: &dyn Target, places: &[u64]) -> Result<Vec<u64>, HeapError> {
    let mut picker = Picker {
        places,
        sizes: vec![0; places.len()],
    };
    let memory = Bytes(target);
    if let Some(directory) = loams(target) {
        let mut picker = LoamPicker(picker, Vec::new());
        blocks::read(&memory, directory, target.mappings(), &mut picker)?;
        let LoamPicker(mut found, freed) = picker;
        freed.into_iter().for_each(|address| found.set(address, 0));
        return Ok(found.sizes);
    }
    let version = target.glibc().ok_or(GlibcError::Absent)?;
    let mut residency = target.residency();
    glibc::read_memory(
        &memory,
        target.mappings(),
        version,
        &mut residency,
        &mut picker,
    )?;
    Ok(picker.sizes)
}

/// Why there are no blocks.
#[derive(Debug, thiserror::Error)]
pub enum HeapError {
    /// The C library's.
    #[error(transparent)]
    Glibc(#[from] GlibcError),
    /// Loam's.
    #[error(transparent)]
    Loam(#[from] CountersError),
    /// The records of the heap are in the part of a core that is missing.
    #[error("the records of its heap lie in the part of the core that is missing")]
    Cut,
    /// Another allocator's.
    #[error(
        "it is on {0}, whose blocks can not be seen from outside: `loam record` sees what the \
         program allocates"
    )]
    Other(String),
}

/// Why there are no blocks of glibc's: another reason may be known.
fn why(target: &dyn Target, error: GlibcError) -> HeapError {
    if !matches!(error, GlibcError::Absent | GlibcError::NoArena) {
        return error.into();
    }
    if target.is_cut() {
        return HeapError::Cut;
    }
    match target.allocator().filter(|name| name != GLIBC) {
        Some(name) => HeapError::Other(name),
        None => error.into(),
    }
}

/// Where the directory of Loam's counters is; none if the target is not on Loam.
fn loams(target: &dyn Target) -> Option<u64> {
    let memory = Bytes(target);
    let found = locate::find_in(&memory, target.mappings());
    found.filter(|address| !is_of_peer(&memory, *address))
}

/// What the heap's own records say.
struct Told {
    ranges: Vec<(u64, u64)>,
    allocator: String,
    problems: Vec<String>,
}

fn of_loam(
    target: &dyn Target,
    directory: u64,
    collector: &mut Collector,
) -> Result<Told, CountersError> {
    let found = blocks::read(&Bytes(target), directory, target.mappings(), collector)?;
    Ok(Told {
        ranges: found.ranges,
        allocator: format!("Loam {}", found.library),
        problems: found.problems,
    })
}

fn of_glibc(target: &dyn Target, collector: &mut Collector) -> Result<Told, GlibcError> {
    let version = target.glibc().ok_or(GlibcError::Absent)?;
    let mut residency = target.residency();
    let walked = glibc::read_memory(
        &Bytes(target),
        target.mappings(),
        version,
        &mut residency,
        collector,
    )?;
    let mut ranges = Vec::new();
    for (arena, figures) in collector.arenas.iter().zip(&walked.arenas) {
        ranges.push((arena.address, arena.address + ARENA_RECORD));
        // What could not be followed may hold pointers, so that it is looked at like any other
        // memory.
        if figures.unread > 0 {
            continue;
        }
        for (start, end) in &arena.stretches {
            let from = if arena.is_main {
                *start
            } else {
                start - start % HEAPS
            };
            ranges.push((from, *end));
        }
    }
    for (address, size) in std::mem::take(&mut collector.mapped) {
        ranges.push((address.saturating_sub(HEADER), address.saturating_add(size)));
        let mut stretch = Stretch::default();
        stretch.push(address, size);
        collector.stretches.push(stretch);
    }
    ranges.sort_unstable();
    Ok(Told {
        ranges,
        allocator: format!("glibc {version}"),
        problems: walked.problems,
    })
}

/// Finds the live blocks.
pub fn read(target: &dyn Target, modules: &Modules) -> Result<Heap, HeapError> {
    let mut collector = Collector::default();
    let told = match loams(target) {
        Some(directory) => of_loam(target, directory, &mut collector)?,
        None => of_glibc(target, &mut collector).map_err(|error| why(target, error))?,
    };
    let Told {
        mut ranges,
        allocator,
        mut problems,
    } = told;
    let Collector {
        mut stretches,
        freed,
        refused,
        ..
    } = collector;
    if refused > 0 {
        problems.push(format!("{refused} blocks overlap others and were left out"));
    }
    let mut pools = None;
    if Python::is_in(modules) {
        let is_heap = |address: u64| {
            let place = ranges.partition_point(|(start, _)| *start <= address);
            place > 0 && address < ranges[place - 1].1
        };
        if let Some(found) = python::pools(target, is_heap) {
            stretches.extend(found.stretches);
            ranges.extend(found.ranges);
            ranges.sort_unstable();
            pools = Some(found.pools);
        }
    }
    let (blocks, left_out) = apart::compute(|| Table::of(stretches, freed));
    if left_out > 0 {
        problems.push(format!(
            "{left_out} stretches of blocks overlap others and were left out"
        ));
    }
    Ok(Heap {
        blocks,
        ranges,
        pools,
        allocator,
        problems,
    })
}
