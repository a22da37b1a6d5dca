//! Makes columns of the events of one chunk.

use super::chunk::MAX_ROWS;
use super::columns::{
    Column, ALLOCATE, BEGINS, DROPPED, ENDS, EXEC, EXISTING, FLAG, FORK, FREE, FROM, IN_PLACE,
    OTHER, TO, TRIM,
};
use super::event::{AllocFamily, Event, FreeFamily, Record};
use super::predict::{table, Predictor};
use super::varint::{put, zigzag};

/// Places for recent blocks; a power of two. Only the encoder has them: a forgotten block costs a
/// longer number and nothing else, so this may change without a change of the format. 2^16 places
/// are 1 MiB, the size of a core's own cache.
const RECENT: usize = 1 << 16;
/// Nanoseconds after which a chunk is closed. A crash therefore loses little.
const CHUNK_AGE: u64 = 1_000_000_000;

/// A recent block. One comparison shows whether it is the wanted block and belongs to this chunk:
///
/// ```text
///   key    | address, 48 bits | chunk, 16 |
///   block  | bytes, 44 bits | number in the chunk, 20 |
/// ```
///
/// A block whose numbers do not fit is not remembered.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    key: u64,
    block: u64,
}

const NUMBER_BITS: u32 = 20;
const CHUNK_BITS: u32 = 16;

/// Events that are made while they are encoded.
pub trait Source {
    /// Pushes events until no event is left or the chunk is closed.
    fn fill(&mut self, encoder: &mut Encoder);
    /// Whether no event is left.
    fn is_empty(&self) -> bool;
}

impl Source for &[Record] {
    fn fill(&mut self, encoder: &mut Encoder) {
        while let Some((record, rest)) = self.split_first() {
            *self = rest;
            encoder.push(record);
            if encoder.is_closed() {
                return;
            }
        }
    }

    fn is_empty(&self) -> bool {
        <[Record]>::is_empty(self)
    }
}

/// The nanoseconds in a unit of time. A power of two, which every recorder uses, costs no division.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Power(u32),
    Other(u64),
}

impl Unit {
    fn of(unit: u64) -> Unit {
        match unit.is_power_of_two() {
            true => Unit::Power(unit.trailing_zeros()),
            false => Unit::Other(unit),
        }
    }

    #[inline]
    fn count(self, nanoseconds: u64) -> u64 {
        match self {
            Unit::Power(shift) => nanoseconds >> shift,
            Unit::Other(unit) => nanoseconds / unit,
        }
    }

    fn nanoseconds(self, count: u64) -> u64 {
        match self {
            Unit::Power(shift) => count << shift,
            Unit::Other(unit) => count * unit,
        }
    }
}

/// A chunk of events that is being filled.
#[derive(Debug)]
pub struct Encoder {
    columns: [Vec<u8>; Column::ALL.len()],
    predictor: Predictor,
    recent: Box<[Recent; RECENT]>,
    /// Number of blocks in this chunk.
    blocks: u64,
    /// Resizes that have begun, as thread and address.
    resizing: Vec<(u32, u64)>,
    chunk: u64,
    rows: u32,
    /// The chunk is closed when it has this many rows.
    limit: u32,
    most_rows: u32,
    unit: Unit,
    first_time: u64,
    last_time: u64,
    /// Rows that have their time in the column. The rows after them have the time of the last one.
    timed: u32,
    missed: u64,
    /// The thread of the last events, and the number of rows before them.
    run: (u32, u32),
}

impl Encoder {
    /// An encoder of times in units of `unit` nanoseconds.
    pub fn new(unit: u64) -> Encoder {
        Encoder::of_chunks(unit, MAX_ROWS)
    }

    /// The same, whose chunks have at most this many rows.
    pub fn of_chunks(unit: u64, most_rows: u32) -> Encoder {
        Encoder {
            columns: Default::default(),
            predictor: Predictor::default(),
            recent: table(),
            blocks: 0,
            resizing: Vec::new(),
            chunk: 1,
            rows: 0,
            limit: most_rows,
            most_rows,
            unit: Unit::of(unit.max(1)),
            first_time: 0,
            last_time: 0,
            timed: 0,
            missed: 0,
            run: (0, 0),
        }
    }

    /// Number of events so far.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Nanoseconds of the chunk's first event.
    pub fn first_time(&self) -> u64 {
        self.unit.nanoseconds(self.first_time)
    }

    /// Nanoseconds of the chunk's last event.
    pub fn last_time(&self) -> u64 {
        self.unit.nanoseconds(self.last_time)
    }

    /// Whether the chunk must be finished: it has as many rows as a chunk may have, or its last
    /// event is much later than its first.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        self.rows >= self.limit
    }

    /// The first nanosecond that counts as later than `nanoseconds`.
    pub fn next_unit(&self, nanoseconds: u64) -> u64 {
        self.unit.nanoseconds(self.unit.count(nanoseconds) + 1)
    }

    /// Adds an event. If its time is before that of the last event, it gets the last one's time.
    pub fn push(&mut self, record: &Record) {
        self.begin_run(record.thread);
        self.advance(record.time);
        self.push_now(&record.event);
    }

    /// Adds an event with the thread and the time that were set last.
    #[inline(always)]
    pub fn push_now(&mut self, event: &Event) {
        let operation = self.put_event(self.run.0, event);
        self.columns[Column::Operation as usize].push(operation);
        self.rows += 1;
    }

    /// The same for the allocation of a block in a family without alignments. Address 0: the
    /// request failed.
    #[inline(always)]
    pub fn push_allocated(&mut self, family: AllocFamily, address: u64, size: u64) {
        let failed = self.put_block(self.run.0, address, size);
        self.columns[Column::Operation as usize].push(ALLOCATE | family as u8 | failed);
        self.rows += 1;
    }

    /// The same for a free without a look at the block's pages.
    #[inline(always)]
    pub fn push_freed(&mut self, family: FreeFamily, address: u64, size: u64) {
        self.put_free(self.run.0, family, address, size);
        self.columns[Column::Operation as usize].push(FREE | family as u8);
        self.rows += 1;
    }

    #[inline(always)]
    fn put_free(&mut self, thread: u32, family: FreeFamily, address: u64, size: u64) {
        let own = self.put_freed(thread, address);
        if family.is_sized() {
            let difference = size.wrapping_sub(own.unwrap_or(0)) as i64;
            self.put(Column::Extra, zigzag(difference));
        }
    }

    /// Sets the time of the next events, in nanoseconds. It must be called before a chunk's first
    /// event, and may be called as often as is useful.
    #[inline(never)]
    pub fn advance(&mut self, nanoseconds: u64) {
        let time = self.unit.count(nanoseconds);
        if self.rows == 0 {
            self.first_time = time;
            self.last_time = time;
        }
        if time <= self.last_time {
            return;
        }
        self.put_same_times();
        self.put(Column::Time, time - self.last_time);
        self.timed += 1;
        self.last_time = time;
        if self.unit.nanoseconds(time - self.first_time) >= CHUNK_AGE {
            self.limit = self.rows + 1;
        }
    }

    fn put_same_times(&mut self) {
        let times = &mut self.columns[Column::Time as usize];
        times.resize(times.len() + (self.rows - self.timed) as usize, 0);
        self.timed = self.rows;
    }

    /// Sets the thread of the next events.
    pub fn begin_run(&mut self, thread: u32) {
        if thread != self.run.0 {
            self.end_run(thread);
        }
    }

    /// The number of events that still fit.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.rows) as usize
    }

    /// Ends the run; the next events belong to another thread.
    fn end_run(&mut self, thread: u32) {
        let (before, begin) = std::mem::replace(&mut self.run, (thread, self.rows));
        if begin < self.rows {
            self.put(Column::Thread, u64::from(before));
            self.put(Column::Thread, u64::from(self.rows - begin));
        }
    }

    /// Appends the chunk to `out` and begins the next one. `number` events of the stream come
    /// before the chunk. Returns the bytes of each column.
    pub fn finish(&mut self, number: u64, out: &mut Vec<u8>) -> [u64; Column::ALL.len()] {
        self.end_run(0);
        self.put_same_times();
        put(out, number);
        put(out, self.first_time);
        let mut bytes = [0; Column::ALL.len()];
        for (column, bytes) in self.columns.iter_mut().zip(&mut bytes) {
            put(out, column.len() as u64);
            out.extend_from_slice(column);
            *bytes = column.len() as u64;
            column.clear();
        }
        self.rows = 0;
        self.timed = 0;
        self.limit = self.most_rows;
        self.run = (0, 0);
        self.missed = 0;
        self.blocks = 0;
        self.resizing.clear();
        self.predictor.begin_chunk();
        self.chunk += 1;
        if self.chunk >> CHUNK_BITS != 0 {
            self.recent.fill(Recent::default());
            self.chunk = 1;
        }
        bytes
    }

    #[inline]
    fn put(&mut self, column: Column, value: u64) {
        put(&mut self.columns[column as usize], value);
    }

    #[inline(always)]
    fn put_event(&mut self, thread: u32, event: &Event) -> u8 {
        match *event {
            Event::Allocate {
                family,
                address,
                size,
                alignment,
            } => {
                if family.is_aligned() {
                    self.put_alignment(alignment);
                }
                let failed = self.put_block(thread, address, size);
                ALLOCATE | family as u8 | failed
            }
            Event::Free {
                family,
                address,
                size,
                touched,
            } => {
                self.put_free(thread, family, address, size);
                FREE | family as u8 | self.put_touched(touched)
            }
            Event::ResizeFrom { address, touched } => {
                self.put_freed(thread, address);
                self.resizing.retain(|(resizing, _)| *resizing != thread);
                self.resizing.push((thread, address));
                FROM | self.put_touched(touched)
            }
            Event::ResizeTo { address, size } => {
                let from = self.resizing.iter().position(|(from, _)| *from == thread);
                let from = from.map(|at| self.resizing.swap_remove(at).1);
                if from == Some(address) && address != 0 {
                    self.put(Column::Size, size);
                    self.remember(address, size);
                    return TO | IN_PLACE;
                }
                TO | self.put_block(thread, address, size)
            }
            Event::Existing { address, size } => EXISTING | self.put_block(thread, address, size),
            Event::ThreadBegins => BEGINS,
            Event::ThreadEnds => ENDS,
            Event::Fork { child } => {
                self.put(Column::Extra, u64::from(child));
                OTHER | FORK
            }
            Event::Exec => OTHER | EXEC,
            Event::Dropped { count } => {
                self.put(Column::Extra, count);
                OTHER | DROPPED
            }
            Event::Trim { keep } => {
                self.put(Column::Extra, keep);
                OTHER | TRIM | FLAG
            }
        }
    }

    fn put_alignment(&mut self, alignment: u64) {
        if alignment.is_power_of_two() {
            self.put(Column::Alignment, u64::from(alignment.trailing_zeros()) + 1);
        } else {
            self.put(Column::Alignment, 0);
            self.put(Column::Alignment, alignment);
        }
    }

    fn put_touched(&mut self, touched: Option<u64>) -> u8 {
        let Some(pages) = touched else { return 0 };
        self.put(Column::Touched, pages);
        FLAG
    }

    /// Writes the size and the place of a block. Returns the flag, which is set if the request
    /// failed.
    #[inline(always)]
    fn put_block(&mut self, thread: u32, address: u64, size: u64) -> u8 {
        self.put(Column::Size, size);
        if address == 0 {
            return FLAG;
        }
        let coded = self.predictor.encode(thread, size, address);
        self.put(Column::Address, coded.code);
        if let Some(absolute) = coded.absolute {
            self.put(Column::Address, absolute);
        }
        self.remember(address, size);
        0
    }

    #[inline(always)]
    fn remember(&mut self, address: u64, size: u64) {
        let number = self.blocks;
        self.blocks += 1;
        let is_small = size >> (64 - NUMBER_BITS) == 0 && address >> (64 - CHUNK_BITS) == 0;
        if is_small && number >> NUMBER_BITS == 0 {
            *self.recent(address) = Recent {
                key: address << CHUNK_BITS | self.chunk,
                block: size << NUMBER_BITS | number,
            };
        }
    }

    #[inline(always)]
    fn recent(&mut self, address: u64) -> &mut Recent {
        let key = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &mut self.recent[(key >> (64 - RECENT.trailing_zeros())) as usize]
    }

    /// Writes which block is freed: how many blocks ago it was allocated, or 0 and the distance
    /// from the last address of this kind. Returns the block's bytes if they are known.
    #[inline(always)]
    fn put_freed(&mut self, thread: u32, address: u64) -> Option<u64> {
        let key = address << CHUNK_BITS | self.chunk;
        let is_small = address >> (64 - CHUNK_BITS) == 0;
        let recent = self.recent(address);
        if recent.key == key && is_small {
            recent.key = 0;
            let (size, number) = (
                recent.block >> NUMBER_BITS,
                recent.block & ((1 << NUMBER_BITS) - 1),
            );
            self.put(Column::Freed, self.blocks - number);
            self.predictor.freed(thread, size, address);
            return Some(size);
        }
        self.put_missed(thread, address);
        None
    }

    fn put_missed(&mut self, thread: u32, address: u64) {
        let delta = address.wrapping_sub(self.missed) as i64;
        self.put(Column::Freed, 0);
        self.put(Column::Freed, zigzag(delta));
        self.missed = address;
        self.predictor.freed_unknown(thread, address);
    }
}
