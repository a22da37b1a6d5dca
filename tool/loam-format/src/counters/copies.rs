//! Copies of records: where they lie in a process, which pieces of it hold them, and their bytes.

use super::directory::Table;

/// Where a record lies, and where its bytes are among the copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Where it lies.
    pub address: u64,
    /// The place among its parent's records.
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

/// Gaps in and between records that are read along rather than around: a piece of its own costs the
/// kernel about as much as copying 2 KiB. Records that are less dense are read range by range.
pub const READ_ALONG: u64 = 512;
/// A record costs more to keep than its bytes.
pub const COST_OF_A_RECORD: u64 = 128;

/// Copies of records of one table.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    /// In the order of the table.
    pub records: Vec<Record>,
    bytes: Vec<u8>,
    /// Gaps are copied too.
    along: bool,
}

impl Copies {
    /// Room for records that lie there.
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
            // Behind the one before, or interleaved with it (fields that are arrays of their own):
            // the distance in the process is that among the copies.
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

    /// Several as one.
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

    /// Whether the records lie there.
    pub fn lie_at(&self, places: &[Place]) -> bool {
        let own = self.records.iter().map(Record::place);
        own.eq(places.iter().copied())
    }

    /// What they cost.
    pub fn cost(&self) -> u64 {
        self.bytes.len() as u64 + COST_OF_A_RECORD * self.records.len() as u64
    }

    /// The bytes of a record, from the first to the last that matters.
    pub fn bytes(&self, table: &Table, record: &Record) -> &[u8] {
        let length = (table.high - table.low) as usize;
        &self.bytes[record.at..record.at + length]
    }

    /// Whether these show the same as others of the same table. What lies in gaps does not count.
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
                // The plan put it behind the one before just as it lies there.
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
            // Those of neighbours may lie side by side; each piece has its price.
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

    /// From now on gaps are read around. False if they were already.
    pub fn read_around(&mut self) -> bool {
        std::mem::take(&mut self.along)
    }

    /// Where the bytes of one piece belong.
    pub fn room_of(&mut self, spot: &Spot) -> &mut [u8] {
        &mut self.bytes[spot.at..spot.at + spot.length]
    }

    /// Puts what was gathered where it belongs.
    pub fn take(&mut self, spots: &[Spot], copied: &[u8]) {
        let mut rest = copied;
        for spot in spots {
            let (bytes, behind) = rest.split_at(spot.length);
            self.room_of(spot).copy_from_slice(bytes);
            rest = behind;
        }
    }
}

/// A piece of memory, and where among the copies it belongs.
#[derive(Debug, Clone, Copy)]
pub struct Spot {
    /// In the process.
    pub address: u64,
    /// In bytes.
    pub length: usize,
    /// In the copies.
    pub at: usize,
}

/// Bytes of pieces together.
pub fn length_of(spots: &[Spot]) -> usize {
    spots.iter().map(|spot| spot.length).sum()
}

/// Whether two copies of a record show the same. What lies in gaps does not count.
pub fn is_equal(table: &Table, one: &[u8], two: &[u8]) -> bool {
    table.ranges.iter().all(|(low, high)| {
        let (from, to) = ((low - table.low) as usize, (high - table.low) as usize);
        one[from..to] == two[from..to]
    })
}
