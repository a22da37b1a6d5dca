//! Copies of records: their places in a process, the pieces of memory that hold them, and their
//! bytes.

use super::directory::Table;

/// The place of a record in a process, and of its bytes among the copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Its address in the process.
    pub address: u64,
    /// The index of its parent's record.
    pub parent: usize,
    /// Its number in an array, or in the list.
    pub number: u64,
    at: usize,
}

/// Address, parent and number of a record.
pub type Place = (u64, usize, u64);

impl Record {
    fn place(&self) -> Place {
        (self.address, self.parent, self.number)
    }
}

/// Gaps of at most this many bytes, in and between records, are copied with the records. A separate
/// piece costs the kernel about as much as copying 2 KiB. If records have more gaps, they are read
/// range by range.
pub const READ_ALONG: u64 = 512;
/// What a record costs to keep, beside its bytes.
pub const COST_OF_A_RECORD: u64 = 128;

/// Copies of records of one table.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    /// The records, in the order of the table.
    pub records: Vec<Record>,
    bytes: Vec<u8>,
    /// Whether gaps are copied too.
    along: bool,
}

impl Copies {
    /// Room for the records at these places.
    pub fn plan(table: &Table, places: &[Place]) -> Copies {
        let length = table.high - table.low;
        let read: u64 = table.ranges.iter().map(|(low, high)| high - low).sum();
        let mut copies = Copies {
            records: Vec::with_capacity(places.len()),
            bytes: Vec::new(),
            along: length - read <= READ_ALONG,
        };
        let mut end = 0;
        let mut before: Option<(u64, usize)> = None;
        for &(address, parent, number) in places {
            // The record follows the one before, or is interleaved with it (fields that are arrays
            // of their own). Both keep their distance among the copies.
            let step = before.and_then(|(last, at)| {
                let step = address.checked_sub(last)?;
                let is_near =
                    copies.along && step - length.min(step) <= READ_ALONG.min(length + 64);
                (step < length || is_near).then_some(at + step as usize)
            });
            let at = step.unwrap_or(end);
            copies.records.push(Record {
                address,
                parent,
                number,
                at,
            });
            before = Some((address, at));
            end = at + length as usize;
        }
        copies.bytes = vec![0; end];
        copies
    }

    /// Joins the copies of several parts.
    pub fn joined(parts: Vec<Copies>) -> Copies {
        let mut all = Copies {
            along: parts.iter().all(|part| part.along),
            ..Copies::default()
        };
        for part in parts {
            let start = all.bytes.len();
            all.bytes.extend(part.bytes);
            let moved = part.records.into_iter().map(|record| Record {
                at: start + record.at,
                ..record
            });
            all.records.extend(moved);
        }
        all
    }

    /// Whether the records lie at these places.
    pub fn lie_at(&self, places: &[Place]) -> bool {
        let own = self.records.iter().map(Record::place);
        own.eq(places.iter().copied())
    }

    /// The cost of the copies.
    pub fn cost(&self) -> u64 {
        self.bytes.len() as u64 + COST_OF_A_RECORD * self.records.len() as u64
    }

    /// The bytes of a record, from its first to its last field.
    pub fn bytes(&self, table: &Table, record: &Record) -> &[u8] {
        let length = (table.high - table.low) as usize;
        &self.bytes[record.at..record.at + length]
    }

    /// Whether both copies of a table show the same. Bytes in gaps are ignored.
    pub fn is_same(&self, table: &Table, other: &Copies) -> bool {
        let is_same = |(one, two): (&Record, &Record)| {
            one.place() == two.place()
                && is_equal(table, self.bytes(table, one), other.bytes(table, two))
        };
        self.records.len() == other.records.len()
            && self.records.iter().zip(&other.records).all(is_same)
    }

    /// The pieces of some of the records.
    pub fn spots(&self, table: &Table, first: usize, behind: usize) -> Vec<Spot> {
        let length = (table.high - table.low) as usize;
        let mut spots: Vec<Spot> = Vec::new();
        for record in &self.records[first..behind] {
            let start = record.address.wrapping_add(table.low);
            if !self.along {
                spots.extend(table.ranges.iter().map(|(low, high)| Spot {
                    address: record.address.wrapping_add(*low),
                    length: (high - low) as usize,
                    at: record.at + (low - table.low) as usize,
                }));
                continue;
            }
            let end = record.at + length;
            match spots.last_mut() {
                // Among the copies, the record follows the one before at the same distance as in
                // the process.
                Some(last) if start.wrapping_sub(last.address) == (record.at - last.at) as u64 => {
                    last.length = end - last.at;
                }
                _ => spots.push(Spot {
                    address: start,
                    length,
                    at: record.at,
                }),
            }
        }
        if !self.along {
            // Pieces of neighbouring records may be adjacent. They are joined, because each piece
            // has a cost.
            spots.sort_unstable_by_key(|spot| spot.address);
            spots.dedup_by(|next, kept| {
                let length = kept.length as u64;
                let is_next = kept.address.checked_add(length) == Some(next.address)
                    && kept.at + kept.length == next.at;
                if is_next {
                    kept.length += next.length;
                }
                is_next
            });
        }
        spots
    }

    /// Gaps are no longer copied from now on. Returns false if they were not copied before either.
    pub fn read_around(&mut self) -> bool {
        std::mem::take(&mut self.along)
    }

    /// The room for the bytes of a piece.
    pub fn room_of(&mut self, spot: &Spot) -> &mut [u8] {
        &mut self.bytes[spot.at..spot.at + spot.length]
    }

    /// Stores gathered bytes in their places.
    pub fn take(&mut self, spots: &[Spot], copied: &[u8]) {
        let mut rest = copied;
        for spot in spots {
            let (bytes, behind) = rest.split_at(spot.length);
            self.room_of(spot).copy_from_slice(bytes);
            rest = behind;
        }
    }
}

/// A piece of memory, and its place among the copies.
#[derive(Debug, Clone, Copy)]
pub struct Spot {
    /// Its address in the process.
    pub address: u64,
    /// Its bytes.
    pub length: usize,
    /// Its offset among the copies.
    pub at: usize,
}

/// The sum of the pieces' bytes.
pub fn length_of(spots: &[Spot]) -> usize {
    spots.iter().map(|spot| spot.length).sum()
}

/// Whether two copies of a record show the same. Bytes in gaps are ignored.
pub fn is_equal(table: &Table, one: &[u8], two: &[u8]) -> bool {
    table.ranges.iter().all(|(low, high)| {
        let (from, to) = ((low - table.low) as usize, (high - table.low) as usize);
        one[from..to] == two[from..to]
    })
}
