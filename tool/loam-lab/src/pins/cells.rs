//! Pages as cells of a map, at one moment or many.
//!
//! A cell is one page as long as all moments together have at most [`MOST`] cells. Otherwise a cell
//! is two pages, four, and so on, so that the number of cells is bounded for every size of heap. A
//! cell keeps only what the map can show.

use loam_report::map::{Map, Moment, Plane, Scale};

use super::age_class;
use super::pages::{Page, PAGE};

/// The most cells of all moments together. Chosen: a browser unpacks four bytes for each of them
/// quickly.
pub const MOST: usize = 4 << 20;
/// How many stacks have a colour of their own.
pub const NAMED: usize = 8;

/// Sizes of blocks that have a colour, in bytes.
const SIZES: [(u64, &str); 7] = [
    (64, "up to 64 B"),
    (256, "65 to 256 B"),
    (1 << 10, "257 B to 1 KiB"),
    (4 << 10, "1 to 4 KiB"),
    (32 << 10, "4 to 32 KiB"),
    (256 << 10, "32 to 256 KiB"),
    (u64::MAX, "more than 256 KiB"),
];

/// Ages that have a colour.
const AGES: [&str; 8] = [
    "younger than 1 ms",
    "1 to 10 ms",
    "10 to 100 ms",
    "0.1 to 1 s",
    "1 to 10 s",
    "10 to 100 s",
    "100 to 1000 s",
    "more than 1000 s",
];

/// What is known of a block.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Its bytes.
    pub size: u64,
    /// Nanoseconds that it lived.
    pub age: u64,
    /// Its stack: a number below [`NAMED`] has a colour of its own, `NAMED` is any other stack;
    /// none: not known.
    pub stack: Option<u8>,
}

/// A cell.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    number: u64,
    /// Pages with blocks.
    kept: u32,
    /// Resident pages without blocks.
    empty: u32,
    live: u64,
    blocks: u32,
    /// The size of the block with the most bytes in the cell: its number in the plane, with those
    /// bytes.
    size: Most,
    /// The same for the stack, among blocks with a known stack.
    stack: Most,
    /// The age of its oldest block.
    age: u8,
}

/// A number of a plane, with the bytes of its block. Ordered by the bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Most(u64);

impl Most {
    fn new(bytes: u64, number: u8) -> Most {
        Most(bytes << 8 | u64::from(number))
    }

    fn number(self) -> u8 {
        self.0 as u8
    }
}

impl Cell {
    fn join(&mut self, other: &Cell) {
        self.kept += other.kept;
        self.empty += other.empty;
        self.live += other.live;
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.size = self.size.max(other.size);
        self.age = self.age.max(other.age);
        self.stack = self.stack.max(other.stack);
    }

    fn share(&self) -> u8 {
        match (self.kept, self.empty) {
            (0, 0) => 0,
            (0, _) => 255,
            (kept, empty) => {
                let bytes = u64::from(kept + empty) * PAGE;
                1 + (200 * self.live / bytes) as u8
            }
        }
    }
}

/// A moment's cells, in the order of addresses.
#[derive(Debug, Default)]
struct Frame(Vec<Cell>);

impl Frame {
    fn add(&mut self, cell: Cell) {
        match self.0.last_mut() {
            Some(last) if last.number == cell.number => last.join(&cell),
            _ => self.0.push(cell),
        }
    }

    /// Sorts by address: arenas come in any order.
    fn sort(&mut self) {
        if !self.0.is_sorted_by_key(|cell| cell.number) {
            self.0.sort_by_key(|cell| cell.number);
            let sorted = std::mem::take(&mut self.0);
            sorted.into_iter().for_each(|cell| self.add(cell));
        }
    }

    fn halve(&mut self) {
        self.sort();
        let mut halved = Frame(Vec::with_capacity(self.0.len() / 2));
        for cell in &self.0 {
            halved.add(Cell {
                number: cell.number / 2,
                ..*cell
            });
        }
        *self = halved;
    }
}

/// Collects the cells of moments, in the order in which they arrive.
#[derive(Debug)]
pub struct Cells {
    frames: Vec<Frame>,
    /// Pages of a cell, as a power of two.
    shift: u32,
    held: usize,
    most: usize,
}

impl Default for Cells {
    fn default() -> Cells {
        Cells::of_at_most(MOST)
    }
}

impl Cells {
    /// Cells with another bound. Each moment has at least one cell in any case.
    pub fn of_at_most(most: usize) -> Cells {
        Cells {
            frames: Vec::new(),
            shift: 0,
            held: 0,
            most,
        }
    }

    /// Begins the next moment.
    pub fn begin(&mut self) {
        self.frames.push(Frame::default());
    }

    /// Adds pages with blocks, in the order of addresses.
    pub fn page(&mut self, page: &Page<Known>) {
        let mut cell = Cell {
            kept: 1,
            live: page.live,
            blocks: page.parts.len() as u32,
            ..Cell::default()
        };
        for part in page.parts {
            let known = part.block;
            let size = SIZES.iter().position(|(most, _)| known.size <= *most);
            let size = size.unwrap_or(SIZES.len() - 1) as u8 + 1;
            cell.size = cell.size.max(Most::new(part.bytes, size));
            cell.age = cell.age.max(age_number(known.age));
            if let Some(stack) = known.stack {
                cell.stack = cell.stack.max(Most::new(part.bytes, stack + 1));
            }
        }
        self.add(page.number, page.count, cell);
    }

    /// Adds resident pages without blocks.
    pub fn empty(&mut self, number: u64, count: u64) {
        let cell = Cell {
            empty: 1,
            ..Cell::default()
        };
        self.add(number, count, cell);
    }

    /// Adds a number of like pages.
    fn add(&mut self, number: u64, count: u64, one: Cell) {
        let mut page = number;
        while page < number + count {
            let cell = page >> self.shift;
            let behind = ((cell + 1) << self.shift).min(number + count);
            let pages = behind - page;
            let Some(frame) = self.frames.last_mut() else {
                return;
            };
            let before = frame.0.len();
            frame.add(Cell {
                number: cell,
                kept: one.kept * pages as u32,
                empty: one.empty * pages as u32,
                live: one.live * pages,
                ..one
            });
            self.held += frame.0.len() - before;
            page = behind;
            self.keep_to_bound();
        }
    }

    /// Halves the resolution until the cells of all moments fit in the bound. Later, `map()` gives
    /// each moment the cells of all moments.
    fn keep_to_bound(&mut self) {
        while self.held > self.most {
            self.shift += 1;
            self.frames.iter_mut().for_each(Frame::halve);
            self.held = self.frames.iter().map(|frame| frame.0.len()).sum();
        }
    }

    /// The numbers of all cells that occur in any moment, ascending.
    fn union(&self) -> Vec<u64> {
        let cells = self.frames.iter().flat_map(|frame| &frame.0);
        let mut numbers: Vec<u64> = cells.map(|cell| cell.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The map. `stacks`: the names of the stacks with a colour; none if no stack is known.
    pub fn map(mut self, moments: Vec<Moment>, stacks: Option<Vec<String>>, has_ages: bool) -> Map {
        self.frames.iter_mut().for_each(Frame::sort);
        let mut numbers = self.union();
        while numbers.len() * self.frames.len() > self.most && numbers.len() > 1 {
            self.shift += 1;
            self.frames.iter_mut().for_each(Frame::halve);
            numbers = self.union();
        }
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        let mut next = None;
        for number in &numbers {
            match stretches.last_mut() {
                Some((_, cells)) if next == Some(*number) => *cells += 1,
                _ => stretches.push((number * (PAGE << self.shift), 1)),
            }
            next = Some(number + 1);
        }
        let cell_bytes = PAGE << self.shift;
        let planes = planes(cell_bytes, stacks, has_ages, self.has_empty());
        let mut cells = vec![0; numbers.len() * planes.len() * self.frames.len()];
        let mut parts = cells.chunks_exact_mut(numbers.len().max(1));
        for frame in &self.frames {
            for (plane, _) in &planes {
                let Some(part) = parts.next() else { break };
                let mut place = 0;
                for cell in &frame.0 {
                    while numbers[place] < cell.number {
                        place += 1;
                    }
                    part[place] = plane(cell);
                }
            }
        }
        Map {
            cell_bytes,
            stretches,
            planes: planes.into_iter().map(|(_, plane)| plane).collect(),
            moments,
            curves: Vec::new(),
            first: 0,
            cells,
        }
    }

    fn has_empty(&self) -> bool {
        self.frames
            .iter()
            .flat_map(|frame| &frame.0)
            .any(|cell| cell.empty > 0)
    }
}

/// The number of an age: below 1 ms, then one for each decade.
fn age_number(nanoseconds: u64) -> u8 {
    (age_class(nanoseconds).saturating_sub(3) as u8 + 1).min(AGES.len() as u8)
}

type Number = fn(&Cell) -> u8;

fn planes(
    cell_bytes: u64,
    stacks: Option<Vec<String>>,
    has_ages: bool,
    has_empty: bool,
) -> Vec<(Number, Plane)> {
    let what = match cell_bytes {
        PAGE => "A cell is a page of 4 KiB.".to_owned(),
        bytes => format!(
            "A cell is {}: pages side by side.",
            loam_format::units::bytes(bytes as f64)
        ),
    };
    let plane = |title, more: &str, scale, names: Vec<String>| Plane {
        title,
        reading: format!("{what}{more}"),
        scale,
        names,
    };
    let empty = has_empty.then(|| "resident, and no block".to_owned());
    let sizes = SIZES.iter().map(|(_, name)| (*name).to_owned()).collect();
    let mut planes: Vec<(Number, Plane)> = vec![
        (
            Cell::share,
            plane("live share", "", Scale::Share, empty.into_iter().collect()),
        ),
        (
            |cell| cell.size.number(),
            plane(
                "block size",
                " The colour is of the blocks that have most of its bytes.",
                Scale::Steps,
                sizes,
            ),
        ),
    ];
    if has_ages {
        let ages = AGES.map(str::to_owned).to_vec();
        planes.push((
            |cell| cell.age,
            plane(
                "age",
                " The colour is of its oldest block.",
                Scale::Steps,
                ages,
            ),
        ));
    }
    if let Some(mut names) = stacks {
        // Numbers without a stack get an empty name.
        names.resize(NAMED, String::new());
        names.extend(["another stack".to_owned(), "not sampled".to_owned()]);
        planes.push((
            |cell| match (cell.kept, cell.stack.number()) {
                (0, _) => 0,
                (_, 0) => NAMED as u8 + 2,
                (_, stack) => stack,
            },
            plane(
                "stack",
                " The colour is of a block whose stack is known.",
                Scale::Names,
                names,
            ),
        ));
    }
    planes.push((
        |cell| cell.blocks.min(255) as u8,
        plane("blocks", "", Scale::Count, Vec::new()),
    ));
    planes
}

#[cfg(test)]
mod tests {
    use super::super::pages::Part;
    use super::*;

    fn moments(count: usize) -> Vec<Moment> {
        let one = Moment {
            seconds: Some(0.0),
            mark: None,
            text: String::new(),
            values: Vec::new(),
        };
        vec![one; count]
    }

    fn add(cells: &mut Cells, number: u64, count: u64, live: u64, stack: Option<u8>) {
        let block = Known {
            size: live,
            age: 5_000_000,
            stack,
        };
        let parts = [Part { block, bytes: live }];
        cells.page(&Page {
            number,
            count,
            live,
            parts: &parts,
        });
    }

    #[test]
    fn each_moment_has_the_cells_of_all_and_its_own_numbers() {
        let mut cells = Cells::default();
        cells.begin();
        add(&mut cells, 10, 1, 2_048, Some(0));
        add(&mut cells, 12, 1, 16, None);
        cells.empty(11, 1);
        cells.begin();
        add(&mut cells, 5, 1, PAGE, Some(NAMED as u8));
        let names = Some(vec!["f".to_owned()]);
        let map = cells.map(moments(2), names, true);
        assert_eq!(map.cell_bytes, PAGE);
        assert_eq!(map.stretches, [(5 * PAGE, 1), (10 * PAGE, 3)]);
        assert_eq!(map.planes.len(), 5);
        // Live share, size, age, stack, blocks; cells 5, 10, 11, 12.
        let first = [
            0, 101, 255, 1, 0, 4, 0, 1, 0, 2, 0, 2, 0, 1, 0, 10, 0, 1, 0, 1,
        ];
        let second = [201, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(map.cells[..20], first);
        assert_eq!(map.cells[20..], second);
    }

    #[test]
    fn many_pages_become_fewer_cells_and_keep_their_sums() {
        let mut cells = Cells::of_at_most(1_000);
        for _ in 0..2 {
            cells.begin();
            // The addresses are out of order, as those of arenas are.
            for number in (50_000..60_000).chain(0..10_000) {
                add(&mut cells, number, 1, 1_024, None);
            }
        }
        add(&mut cells, 1 << 30, 1 << 28, PAGE, None);
        let map = cells.map(moments(2), None, false);
        assert!(map.count() * 2 <= 1_000, "{}", map.count());
        assert!(map.cell_bytes.is_power_of_two());
        assert_eq!(map.cells.len(), map.count() * 2 * map.planes.len());
        // A quarter is live, except where the large block is.
        let shares = &map.cells[..map.count()];
        let expected = |share: &u8| [0, 51].contains(share);
        assert!(shares.iter().all(expected), "{shares:?}");
    }
}
