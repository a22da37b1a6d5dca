//! The pages of a living process on glibc's malloc, while its heap is walked.

use std::collections::BTreeMap;

use loam_process::glibc::{self, Blocks, GlibcError, Residency};
use loam_process::process::ProcessKey;
use serde::Serialize;

use super::blame::{self, Figures};
use super::cells::{Cells, Known};
use super::pages::{Page, Pages, Part, PAGE};
use super::timeline::Sums;
use super::{name_of_size, By, Pins, Row};
use crate::traces::summary::class_of;

/// The groups of blocks that keep the pages of a process. Only resident pages count.
#[derive(Debug, Serialize)]
pub struct ProcessPins {
    /// The groups of blocks.
    #[serde(flatten)]
    pub pins: Pins,
    /// Resident bytes of the arenas.
    pub resident_bytes: u64,
    /// Resident bytes of pages without a block; part of `resident_bytes`.
    pub empty_bytes: u64,
    /// Freed bytes in threads' caches, which count as blocks.
    pub cached_bytes: u64,
    /// Resident bytes of blocks with a mapping of their own. They are not part of the other
    /// figures.
    pub mapped_bytes: u64,
    /// The C library's version.
    pub glibc: String,
    /// What the walk left out, and why.
    pub problems: Vec<String>,
}

/// Blocks and bytes of a size class.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    smallest: u64,
    largest: u64,
    blocks: u64,
}

/// Collects the blocks of a walk, in the order in which they arrive.
#[derive(Default)]
struct Taken {
    pages: Pages<(u32, u64)>,
    sums: Sums,
    groups: Vec<Figures>,
    sizes: BTreeMap<u32, Seen>,
    parts: Vec<Part<u32>>,
    /// The cells of the map, if one is wanted.
    cells: Option<Cells>,
    known: Vec<Part<Known>>,
    /// The page after the last one that was reported in this stretch.
    behind: u64,
}

impl Taken {
    /// Adds a page, if it is resident. Its blocks are given as class and size.
    fn page(&mut self, page: &Page<(u32, u64)>, residency: &Residency) {
        let start = page.number * PAGE;
        let count = residency.resident(start, start + page.count * PAGE) / PAGE;
        self.draw(page, count, residency);
        if count == 0 {
            return;
        }
        self.parts.clear();
        let parts = page.parts.iter().map(|part| Part {
            block: part.block.0,
            bytes: part.bytes,
        });
        self.parts.extend(parts);
        let resident = Page {
            number: page.number,
            count,
            live: page.live,
            parts: &self.parts,
        };
        self.sums.add(&resident);
        blame::add(&mut self.groups, &resident);
        if !resident.is_sparse() {
            return;
        }
        for part in page.parts {
            let (class, size) = part.block;
            let seen = self.sizes.entry(class).or_default();
            if seen.blocks == 0 {
                (seen.smallest, seen.largest) = (size, size);
            }
            seen.smallest = seen.smallest.min(size);
            seen.largest = seen.largest.max(size);
            seen.blocks += 1;
        }
    }
}

impl Taken {
    /// Adds pages to the map, and the pages without blocks before them.
    fn draw(&mut self, page: &Page<(u32, u64)>, resident: u64, residency: &Residency) {
        self.draw_empty(page.number, residency);
        self.behind = page.number + page.count;
        let Some(cells) = &mut self.cells else { return };
        let parts = page.parts.iter().map(|part| Part {
            block: Known {
                size: part.block.1,
                ..Known::default()
            },
            bytes: part.bytes,
        });
        self.known.clear();
        self.known.extend(parts);
        let mut add = |number, count| {
            cells.page(&Page {
                number,
                count,
                live: page.live,
                parts: &self.known,
            });
        };
        if resident == page.count {
            return add(page.number, page.count);
        }
        let pages = page.number..page.number + page.count;
        pages
            .filter(|number| residency.resident(number * PAGE, (number + 1) * PAGE) > 0)
            .for_each(|number| add(number, 1));
    }

    fn draw_empty(&mut self, up_to: u64, residency: &Residency) {
        let first = self.behind.max(residency.span().0);
        let Some(cells) = &mut self.cells else { return };
        (first..up_to)
            .filter(|number| residency.resident(number * PAGE, (number + 1) * PAGE) > 0)
            .for_each(|number| cells.empty(number, 1));
    }
}

impl Blocks for Taken {
    fn block(&mut self, address: u64, size: u64, residency: &Residency) {
        let mut pages = std::mem::take(&mut self.pages);
        let block = (class_of(size) as u32, size);
        pages.push(address, size, block, |page| self.page(page, residency));
        self.pages = pages;
    }

    fn stretch_ends(&mut self, residency: &Residency) {
        let mut pages = std::mem::take(&mut self.pages);
        pages.finish(|page| self.page(page, residency));
        let (first, count) = residency.span();
        self.draw_empty(first + count, residency);
        self.behind = 0;
    }
}

/// Walks the heap of a process.
pub fn of_process(key: ProcessKey) -> Result<ProcessPins, GlibcError> {
    walk(key, &mut Taken::default())
}

/// As `of_process`, with the cells of a map.
pub(super) fn with_cells(key: ProcessKey) -> Result<(ProcessPins, Cells), GlibcError> {
    let mut cells = Cells::default();
    cells.begin();
    let mut taken = Taken {
        cells: Some(cells),
        ..Taken::default()
    };
    let pins = walk(key, &mut taken)?;
    Ok((pins, taken.cells.unwrap_or_default()))
}

fn walk(key: ProcessKey, taken: &mut Taken) -> Result<ProcessPins, GlibcError> {
    let heap = glibc::read_and_tell(key, taken)?;
    Ok(ProcessPins {
        resident_bytes: heap.sum(|arena| arena.resident),
        empty_bytes: heap
            .sum(|arena| arena.resident)
            .saturating_sub(taken.sums.pages * PAGE),
        cached_bytes: heap.sum(|arena| arena.cached.bytes),
        mapped_bytes: heap.mapped.resident,
        glibc: heap.version.to_string(),
        problems: heap.problems.clone(),
        pins: pins(taken),
    })
}

fn pins(taken: &Taken) -> Pins {
    let sums = taken.sums;
    let weights: Vec<f64> = taken.groups.iter().map(|one| one.shared).collect();
    let parts = blame::apportion(sums.sparse_free_bytes(), &weights);
    let mut rows: Vec<Row> = taken
        .sizes
        .iter()
        .map(|(class, seen)| {
            let figures = taken.groups[*class as usize];
            Row {
                name: name_of_size(*class as usize),
                functions: Vec::new(),
                keys: Vec::new(),
                shared_bytes: parts[*class as usize],
                error_bytes: 0,
                sole_bytes: figures.sole,
                blocks: seen.blocks,
                live_bytes: figures.live,
                samples: None,
                smallest: seen.smallest,
                largest: seen.largest,
                age: None,
            }
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.shared_bytes, row.sole_bytes)));
    Pins {
        by: By::Size,
        sums,
        rows,
        unknown_bytes: 0,
        dense_bytes: sums.free_bytes() - sums.sparse_free_bytes(),
        sole_unknown_bytes: 0,
    }
}
