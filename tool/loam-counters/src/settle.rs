//! Copies records of a process while it runs.
//!
//! ```text
//!  plan     where the records lie            runs of records, side by side or far apart
//!  pieces   what of them is read             one piece a run where it has no great gaps
//!  settle   when a copy is taken as it is    lock free, and no thread took it meanwhile
//! ```
//!
//! A call of the system copies pieces in their order within a microsecond or two. The evidence that
//! a copy is of one moment is therefore read in the same call: the record a second time, or, for
//! records under another record's lock, that lock before and after. Only the copies that did not
//! settle are read again.
//!
//! Why that suffices: the lock word is not 0 while a thread writes, and the number of acquisitions
//! grows before the thread writes. Two equal copies of a record, one taken completely before the
//! other, show every word as it was between them. For a *bracket* the lock's words are read twice
//! before the records and once after: the lock was free between the first two readings, and no
//! thread took it until the third.

use std::cell::Cell;
use std::ops::Deref;
use std::time::{Duration, Instant};

use loam_format::bytes::u32_at;
use loam_format::counters::copies::{is_equal, length_of, Copies, Spot, READ_ALONG};
use loam_format::counters::directory::Table;
use loam_format::memory::{Memory, Piece, ReadError};

/// How much effort to spend on copies that are of one moment.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The most copies of one record.
    tries: u32,
    /// The most time for a table.
    time: Duration,
    /// The first pause between two tries.
    nap: Duration,
}

impl Patience {
    /// For a single look that a caller waits for.
    pub const THOROUGH: Patience = Patience {
        tries: 64,
        time: Duration::from_millis(20),
        nap: NAP,
    };
    /// For one look of many, where the next one comes soon.
    pub const LIVE: Patience = Patience {
        tries: 12,
        time: Duration::from_millis(4),
        nap: NAP,
    };
}

/// Tries that follow each other without a pause. If a thread holds the lock for longer than these
/// take, the reader sleeps between tries: for 50 us, then twice as long each time.
const QUICK_TRIES: u32 = 4;
const NAP: Duration = Duration::from_micros(50);

/// Counts tries, and pauses between them.
pub struct Trial {
    patience: Patience,
    began: Instant,
    tries: u32,
}

impl Trial {
    /// Begins counting.
    pub fn new(patience: Patience) -> Trial {
        Trial {
            patience,
            began: Instant::now(),
            tries: 0,
        }
    }

    /// Whether there is another try. May sleep before it.
    pub fn goes_on(&mut self) -> bool {
        self.tries += 1;
        if self.tries == 1 {
            return true;
        }
        if self.tries > self.patience.tries || self.began.elapsed() >= self.patience.time {
            return false;
        }
        let nap = self.tries.checked_sub(QUICK_TRIES + 1);
        if let Some(doublings) = nap {
            std::thread::sleep(self.patience.nap * (1 << doublings.min(4)));
        }
        true
    }
}

/// Records of a bracket that are read between two looks at the lock: some 12 KiB of blocks'
/// records, which takes 2 us. If a part does not settle, its halves are tried.
const BRACKETED: usize = 64;

/// Reads copies out of memory while its owner runs.
pub trait Settle {
    /// Reads all records once, even if the owner writes meanwhile.
    fn read(&mut self, table: &Table, memory: &impl Memory) -> Result<(), ReadError>;

    /// Reads records that have a lock each. False if a copy may mix two moments.
    fn settle(
        &mut self,
        table: &Table,
        lock: u64,
        memory: &impl Memory,
        patience: Patience,
    ) -> Result<bool, ReadError>;

    /// Stores all records, which were read twice, and returns those that are not settled.
    fn take_twice(&mut self, table: &Table, lock: u64, spots: &[Spot], copied: &[u8])
        -> Vec<usize>;

    /// Reads records under another record's lock in several parts, each between two looks at the
    /// lock. False if a copy may mix two moments.
    fn bracket(
        &mut self,
        table: &Table,
        seal: &Seal,
        memory: &impl Memory,
        patience: Patience,
    ) -> Result<bool, ReadError>;
}

impl Settle for Copies {
    fn read(&mut self, table: &Table, memory: &impl Memory) -> Result<(), ReadError> {
        attempt(self, |copies| {
            let spots = copies.spots(table, 0, copies.records.len());
            fill(copies, memory, &spots)
        })
    }

    fn settle(
        &mut self,
        table: &Table,
        lock: u64,
        memory: &impl Memory,
        patience: Patience,
    ) -> Result<bool, ReadError> {
        attempt(self, |copies| {
            // First all records are read twice; then those that were written meanwhile, each twice
            // in a row.
            let everything = copies.spots(table, 0, copies.records.len());
            let twice = [everything.as_slice(), everything.as_slice()];
            let copied = gather(memory, &twice.concat())?;
            let mut open = copies.take_twice(table, lock, &everything, &copied);
            let is_settled = |copies: &Copies, first: &[u8], place: usize| {
                let last = copies.bytes(table, &copies.records[place]);
                is_equal(table, first, last) && is_free(table, lock, last)
            };
            let mut trial = Trial::new(patience);
            while !open.is_empty() && trial.goes_on() {
                let spots: Vec<Vec<Spot>> = open
                    .iter()
                    .map(|place| copies.spots(table, *place, place + 1))
                    .collect();
                let twice = spots
                    .iter()
                    .flat_map(|own| [own.as_slice(), own.as_slice()]);
                let copied = gather(memory, &twice.collect::<Vec<_>>().concat())?;
                let mut rest = &*copied;
                let mut still = Vec::new();
                for (place, own) in open.into_iter().zip(&spots) {
                    let length = length_of(own);
                    copies.take(own, &rest[..length]);
                    let before = copies.bytes(table, &copies.records[place]).to_vec();
                    copies.take(own, &rest[length..2 * length]);
                    rest = &rest[2 * length..];
                    if !is_settled(copies, &before, place) {
                        still.push(place);
                    }
                }
                open = still;
            }
            Ok(open.is_empty())
        })
    }

    fn take_twice(
        &mut self,
        table: &Table,
        lock: u64,
        spots: &[Spot],
        copied: &[u8],
    ) -> Vec<usize> {
        let (one, two) = copied.split_at(copied.len() / 2);
        // Most of the time nothing has changed.
        let first = (one != two).then(|| {
            let mut first = self.clone();
            first.take(spots, one);
            first
        });
        self.take(spots, two);
        let is_open = |place: &usize| {
            let bytes = self.bytes(table, &self.records[*place]);
            let is_same = first.as_ref().is_none_or(|first| {
                is_equal(table, first.bytes(table, &first.records[*place]), bytes)
            });
            !is_same || !is_free(table, lock, bytes)
        };
        (0..self.records.len()).filter(is_open).collect()
    }

    fn bracket(
        &mut self,
        table: &Table,
        seal: &Seal,
        memory: &impl Memory,
        patience: Patience,
    ) -> Result<bool, ReadError> {
        attempt(self, |copies| {
            let mut trial = Trial::new(patience);
            let count = copies.records.len();
            let mut open: Vec<(usize, usize)> = (0..count)
                .step_by(BRACKETED)
                .map(|first| (first, (first + BRACKETED).min(count)))
                .collect();
            while !open.is_empty() && trial.goes_on() {
                let parts: Vec<Vec<Spot>> = open
                    .iter()
                    .map(|(first, behind)| copies.spots(table, *first, *behind))
                    .collect();
                let mut all = Vec::new();
                for part in &parts {
                    seal.around(&mut all, part);
                }
                let copied = gather(memory, &all)?;
                let mut rest = &*copied;
                let mut still = Vec::new();
                for ((first, behind), part) in open.into_iter().zip(&parts) {
                    let (inner, held) = seal.open(&mut rest, length_of(part));
                    copies.take(part, inner);
                    let middle = first + (behind - first).div_ceil(2);
                    if !held {
                        still.extend([(first, middle), (middle, behind)]);
                    }
                }
                still.retain(|(first, behind)| first < behind);
                open = still;
            }
            Ok(open.is_empty())
        })
    }
}

/// Gaps between ranges may be unreadable, and images lack them. In that case the ranges are read
/// one by one.
fn attempt<T>(
    copies: &mut Copies,
    mut read: impl FnMut(&mut Copies) -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    match read(copies) {
        Err(ReadError::Unmapped { .. }) if copies.read_around() => read(copies),
        result => result,
    }
}

fn fill(copies: &mut Copies, memory: &impl Memory, spots: &[Spot]) -> Result<(), ReadError> {
    if let [only] = spots {
        return memory.read(only.address, copies.room_of(only));
    }
    let copied = gather(memory, spots)?;
    copies.take(spots, &copied);
    Ok(())
}

/// The most memory that a thread keeps for gathered bytes. Chosen: several times what a look at a
/// small program reads at once.
const ROOM: usize = 1 << 20;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Gathered bytes, in memory that is used again: new memory would first be cleared, in vain.
pub struct Gathered {
    room: Vec<u8>,
    length: usize,
}

impl Deref for Gathered {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.room[..self.length]
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        let room = std::mem::take(&mut self.room);
        if room.len() <= ROOM {
            SPARE.set(room);
        }
    }
}

/// Reads pieces, all in one call if the system allows so many.
pub fn gather(memory: &impl Memory, spots: &[Spot]) -> Result<Gathered, ReadError> {
    let piece = |spot: &Spot| Piece {
        address: spot.address,
        length: spot.length,
    };
    let pieces: Vec<Piece> = spots.iter().map(piece).collect();
    let length = length_of(spots);
    let mut room = SPARE.take();
    if room.len() < length {
        room.resize(length, 0);
    }
    let mut gathered = Gathered { room, length };
    memory.gather(&pieces, &mut gathered.room[..length])?;
    Ok(gathered)
}

/// The words of a lock that show whether a thread has taken it.
#[derive(Debug, Clone)]
pub struct Seal {
    spots: Vec<Spot>,
    length: usize,
    /// Offset of the lock word among these bytes.
    word: usize,
}

impl Seal {
    /// The seal of the lock in a table's only record, if it has one: the lock word and the number
    /// of acquisitions. If a library does not count acquisitions, the seal is the whole record.
    pub fn of(table: &Table) -> Option<Seal> {
        let lock = table.lock?;
        let counted = table.field("lock_acquisitions");
        let near = counted.map(|field| {
            let low = lock.min(field.offset);
            (low, (lock + 4).max(field.offset + field.width))
        });
        let ranges = match near {
            Some((low, high)) if high - low <= READ_ALONG => vec![(low, high)],
            _ => table.ranges.clone(),
        };
        let mut seal = Seal {
            spots: Vec::new(),
            length: 0,
            word: 0,
        };
        for (low, high) in ranges {
            if (low..high).contains(&lock) {
                seal.word = seal.length + (lock - low) as usize;
            }
            let length = (high - low) as usize;
            seal.spots.push(Spot {
                address: table.address.wrapping_add(low),
                length,
                at: 0,
            });
            seal.length += length;
        }
        Some(seal)
    }

    /// Adds pieces to the list, with the looks at the lock before and after them.
    pub fn around(&self, all: &mut Vec<Spot>, inner: &[Spot]) {
        all.extend(&self.spots);
        all.extend(&self.spots);
        all.extend(inner);
        all.extend(&self.spots);
    }

    /// Takes the bytes that `around` requested from the front. Returns the bytes of the pieces, and
    /// whether no thread had the lock.
    pub fn open<'a>(&self, rest: &mut &'a [u8], length: usize) -> (&'a [u8], bool) {
        let (first, behind) = rest.split_at(self.length);
        let (second, behind) = behind.split_at(self.length);
        let (inner, behind) = behind.split_at(length);
        let (third, behind) = behind.split_at(self.length);
        *rest = behind;
        let is_free = u32_at(first, self.word) == Some(0);
        (inner, is_free && first == second && second == third)
    }
}

fn is_free(table: &Table, lock: u64, bytes: &[u8]) -> bool {
    u32_at(bytes, (lock - table.low) as usize) == Some(0)
}

#[cfg(test)]
mod tests;
