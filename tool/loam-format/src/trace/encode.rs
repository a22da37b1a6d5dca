//! Events of one chunk become columns.

use super::columns::{
    Column, ALLOCATE, BEGINS, DROPPED, ENDS, EXEC, EXISTING, FLAG, FORK, FREE, FROM, IN_PLACE,
    OTHER, TO, TRIM,
};
use super::event::{Event, Record};
use super::predict::{table, Predictor};
use super::varint::{put, zigzag};

/// Places for recent blocks; a power of two. The encoder alone knows them: a block that it has forgotten costs a
/// longer number and no more, so this may change without a change of the format. 2^16 places are 1 MiB, what a
/// core's own cache holds.
const RECENT: usize = 1 << 16;

/// A recent block: its number in this chunk and its bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    address: u64,
    chunk: u32,
    number: u32,
}

/// The nanoseconds that times are counted in. A power of two, as every recorder's is, costs no division.
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

/// A chunk of events that grows.
#[derive(Debug)]
pub struct Encoder {
    columns: [Vec<u8>; Column::ALL.len()],
    predictor: Predictor,
    recent: Box<[Recent; RECENT]>,
    /// Bytes of the blocks of this chunk, by number.
    sizes: Vec<u64>,
    /// Resizes that have begun: thread and address.
    resizing: Vec<(u32, u64)>,
    chunk: u32,
    rows: u32,
    is_closed: bool,
    unit: Unit,
    first_time: u64,
    last_time: u64,
    missed: u64,
    run: Option<(u32, u64)>,
}

impl Encoder {
    /// An encoder of times in units of `unit` nanoseconds.
    pub fn new(unit: u64) -> Encoder {
        Encoder {
            columns: Default::default(),
            predictor: Predictor::default(),
            recent: table(),
            sizes: Vec::new(),
            resizing: Vec::new(),
            chunk: 1,
            rows: 0,
            is_closed: false,
            unit: Unit::of(unit.max(1)),
            first_time: 0,
            last_time: 0,
            missed: 0,
            run: None,
        }
    }

    /// Events so far.
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

    /// Adds events until the chunk is closed: by the last of so many rows, or by the first that is so many nanoseconds
    /// later than the chunk's first. How many it took.
    pub fn push_until(&mut self, records: &[Record], most: u32, age: u64) -> usize {
        let mut taken = 0;
        for record in records {
            self.push(record);
            taken += 1;
            let first = self.unit.nanoseconds(self.first_time);
            if self.rows == most || record.time.saturating_sub(first) >= age {
                self.is_closed = true;
                break;
            }
        }
        taken
    }

    /// Whether the chunk is to be finished.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Adds an event. Times that go back are taken for the last one.
    #[inline(always)]
    pub fn push(&mut self, record: &Record) {
        let time = self.unit.count(record.time);
        if self.rows == 0 {
            self.first_time = time;
            self.last_time = time;
        }
        let delta = time.saturating_sub(self.last_time);
        self.last_time += delta;
        self.put(Column::Time, delta);
        match &mut self.run {
            Some((thread, length)) if *thread == record.thread => *length += 1,
            other => {
                let ended = other.replace((record.thread, 1));
                self.put_run(ended);
            }
        }
        let operation = self.put_event(record.thread, &record.event);
        self.columns[Column::Operation as usize].push(operation);
        self.rows += 1;
    }

    /// Appends the chunk to `out`, which `number` events of the stream come before, and begins the next one. Returns
    /// the bytes of each column.
    pub fn finish(&mut self, number: u64, out: &mut Vec<u8>) -> [u64; Column::ALL.len()] {
        let run = self.run.take();
        self.put_run(run);
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
        self.is_closed = false;
        self.missed = 0;
        self.sizes.clear();
        self.resizing.clear();
        self.predictor.begin_chunk();
        self.chunk = self.chunk.wrapping_add(1);
        if self.chunk == 0 {
            self.recent.fill(Recent::default());
            self.chunk = 1;
        }
        bytes
    }

    #[inline]
    fn put(&mut self, column: Column, value: u64) {
        put(&mut self.columns[column as usize], value);
    }

    fn put_run(&mut self, run: Option<(u32, u64)>) {
        if let Some((thread, length)) = run {
            self.put(Column::Thread, u64::from(thread));
            self.put(Column::Thread, length);
        }
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
                let own = self.put_freed(thread, address);
                if family.is_sized() {
                    let difference = size.wrapping_sub(own.unwrap_or(0)) as i64;
                    self.put(Column::Extra, zigzag(difference));
                }
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

    /// The size and the place of a block that was handed out; the flag, if it was not.
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
        let number = self.sizes.len() as u32;
        self.sizes.push(size);
        *self.recent(address) = Recent {
            address,
            chunk: self.chunk,
            number,
        };
    }

    #[inline(always)]
    fn recent(&mut self, address: u64) -> &mut Recent {
        let key = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &mut self.recent[(key >> (64 - RECENT.trailing_zeros())) as usize]
    }

    /// Which block goes: how many blocks ago it was handed out, or 0 and its distance from the last such one. Returns
    /// its bytes where they are known.
    #[inline(always)]
    fn put_freed(&mut self, thread: u32, address: u64) -> Option<u64> {
        let chunk = self.chunk;
        let recent = self.recent(address);
        if recent.address == address && recent.chunk == chunk {
            recent.chunk = chunk.wrapping_sub(1);
            let number = recent.number;
            let size = self.sizes[number as usize];
            self.put(Column::Freed, self.sizes.len() as u64 - u64::from(number));
            self.predictor.freed(thread, size, address);
            return Some(size);
        }
        let delta = address.wrapping_sub(self.missed) as i64;
        self.put(Column::Freed, 0);
        self.put(Column::Freed, zigzag(delta));
        self.missed = address;
        self.predictor.freed_unknown(thread, address);
        None
    }
}
