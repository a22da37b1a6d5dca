//! The records themselves, copied out of a process while it runs on.
//!
//! The rules are those of `formats/counters.md`, "Reading consistently": a record under a lock is read
//! until two copies agree and the lock is free; what hangs together under one lock is read between
//! two equal copies of the record that has the lock. Every loop has an end that the process can not
//! move: tries, records and bytes are bounded.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::bytes::{number_at, text, u32_at, u64_at};
use super::directory::{Directory, Kind, Table};
use crate::observe::remote::{Memory, ReadError};

/// Copies of a record that are compared before it is taken as it is.
const TRIES: usize = 64;
/// How long a table that changes all the time is tried again.
const PATIENCE: Duration = Duration::from_millis(20);
/// What is read of one process in one pass, at most. A heap of 1 TiB shows about 130 MiB.
const MOST_BYTES: u64 = 256 << 20;
/// A record costs more to keep than its bytes.
const COST_OF_A_RECORD: u64 = 128;

/// One record's bytes, from the first to the last that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it lies.
    pub address: u64,
    /// The place among its parent's records.
    pub parent: usize,
    /// Its number in an array, or in the list.
    pub number: u64,
    bytes: Vec<u8>,
}

/// All records of a process, by table.
#[derive(Debug, Clone)]
pub struct Raw {
    /// What they are.
    pub directory: Directory,
    /// In the directory's order; none where the table could not be read.
    records: Vec<Option<Vec<Record>>>,
    /// Tables of which some record may be a mixture of two moments.
    pub torn: Vec<String>,
    /// Tables that could not be read, or only in part.
    pub lost: Vec<String>,
}

/// A record with what its bytes mean.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    table: &'a Table,
    /// The record.
    pub record: &'a Record,
}

impl Row<'_> {
    /// The address of the first byte that matters; what is before it may be a guard.
    pub fn address(&self) -> u64 {
        self.record.address.wrapping_add(self.table.low)
    }

    /// A field's only or first value.
    pub fn get(&self, field: &str) -> Option<u64> {
        self.at(field, 0)
    }

    /// One of a field's values.
    pub fn at(&self, field: &str, index: u64) -> Option<u64> {
        let field = self.table.field(field)?;
        if index >= field.count {
            return None;
        }
        let offset = field.offset + index * field.width - self.table.low;
        number_at(&self.record.bytes, offset as usize, field.width as usize)
    }

    /// All values of a field; empty if there is no such field.
    pub fn all(&self, field: &str) -> Vec<u64> {
        let count = self.table.field(field).map_or(0, |field| field.count);
        (0..count)
            .map_while(|index| self.at(field, index))
            .collect()
    }

    /// A field of single bytes as text.
    pub fn text(&self, field: &str) -> String {
        let bytes: Vec<u8> = self.all(field).into_iter().map(|byte| byte as u8).collect();
        text(&bytes)
    }
}

impl Raw {
    /// Reads every table once.
    pub fn read(memory: &impl Memory, directory: &Directory) -> Result<Raw, ReadError> {
        let mut reader = Reader {
            memory,
            directory,
            left: Cell::new(MOST_BYTES),
            records: vec![None; directory.tables.len()],
            torn: Vec::new(),
            lost: directory.refused.clone(),
        };
        reader.everything()?;
        Ok(Raw {
            directory: directory.clone(),
            records: reader.records,
            torn: reader.torn,
            lost: reader.lost,
        })
    }

    /// Whether both passes saw the same.
    pub fn is_same(&self, other: &Raw) -> bool {
        self.records == other.records && self.torn.is_empty() && self.lost.is_empty()
    }

    /// The records of a table, if it is there and was read.
    pub fn rows(&self, name: &str) -> Option<impl Iterator<Item = Row<'_>> + Clone> {
        let place = self.directory.find(name)?;
        let table = &self.directory.tables[place];
        let records = self.records[place].as_ref()?;
        Some(records.iter().map(move |record| Row { table, record }))
    }

    /// The record of a table that has but one.
    pub fn row(&self, name: &str) -> Option<Row<'_>> {
        self.rows(name)?.next()
    }
}

struct Reader<'a, M> {
    memory: &'a M,
    directory: &'a Directory,
    left: Cell<u64>,
    records: Vec<Option<Vec<Record>>>,
    torn: Vec<String>,
    lost: Vec<String>,
}

/// Why a table was not read; an error that ends everything, or one that costs the table.
type Rows = Result<Vec<Record>, ReadError>;

impl<M: Memory> Reader<'_, M> {
    fn everything(&mut self) -> Result<(), ReadError> {
        // What one lock guards, the record with the lock first.
        let groups: [&[&str]; 2] = [
            &["page_heap", "region", "extent", "block"],
            &["huge", "huge_block"],
        ];
        let mut grouped = HashSet::new();
        for group in groups {
            let places: Vec<usize> = group
                .iter()
                .filter_map(|name| self.directory.find(name))
                .collect();
            let head = self.directory.find(group[0]);
            if head.is_some_and(|head| self.directory.tables[head].lock.is_some()) {
                grouped.extend(places.iter().copied());
                self.bracketed(&places)?;
            }
        }
        for place in 0..self.directory.tables.len() {
            if !grouped.contains(&place) {
                self.single(place)?;
            }
        }
        Ok(())
    }

    /// Reads tables between two equal copies of the first one's record.
    fn bracketed(&mut self, places: &[usize]) -> Result<(), ReadError> {
        let began = Instant::now();
        let (torn, lost) = (self.torn.len(), self.lost.len());
        for attempt in 1.. {
            self.torn.truncate(torn);
            self.lost.truncate(lost);
            for place in places {
                self.single(*place)?;
            }
            let head = places[0];
            let before = self.records[head].clone();
            let after = match self.rows_of(head) {
                Ok(records) => Some(records),
                Err(error) => self.survive(head, error)?,
            };
            // The lock is free in settled copies, so equal ones show that nobody had it between.
            let is_settled = self.torn.len() == torn && self.lost.len() == lost;
            if is_settled && before.is_some() && before == after {
                return Ok(());
            }
            if attempt >= TRIES || began.elapsed() > PATIENCE {
                self.torn.push(self.directory.tables[head].name.clone());
                return Ok(());
            }
        }
        Ok(())
    }

    fn single(&mut self, place: usize) -> Result<(), ReadError> {
        let mut tries = 0;
        self.records[place] = loop {
            match self.rows_of(place) {
                Ok(records) => break Some(records),
                // Just replaced, perhaps: once more, from its parent.
                Err(ReadError::Unmapped { .. }) if tries < 2 => tries += 1,
                Err(error) => break self.survive(place, error)?,
            }
            let parent = self.directory.tables[place].parent;
            if let Some(parent) = parent {
                if let Ok(records) = self.rows_of(parent) {
                    self.records[parent] = Some(records);
                }
            }
        };
        Ok(())
    }

    /// A table that can not be read is missing; a process that can not be read is an error.
    fn survive(
        &mut self,
        place: usize,
        error: ReadError,
    ) -> Result<Option<Vec<Record>>, ReadError> {
        match error {
            ReadError::Unmapped { .. } => {
                self.lost.push(self.directory.tables[place].name.clone());
                Ok(None)
            }
            error => Err(error),
        }
    }

    fn rows_of(&mut self, place: usize) -> Rows {
        let table = &self.directory.tables[place];
        match table.kind {
            Kind::Record => self.settled(place, table, &[(table.address, 0, 0)]),
            Kind::Array => {
                let places = array(table.address, table, table.count, 0);
                self.settled(place, table, &places)
            }
            Kind::List => self.list(place, table, table.address, 0),
            _ => self.inside(place, table),
        }
    }

    /// The records that hang together by pointers, the first at the pointer that lies at the address.
    fn list(&mut self, place: usize, table: &Table, start: u64, parent: usize) -> Rows {
        let Some(link) = table.link else {
            return Ok(Vec::new());
        };
        let mut next = self.pointer(start)?;
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        while next != 0 && (found.len() as u64) < table.count && seen.insert(next) {
            let number = found.len() as u64;
            let record = match self.settled(place, table, &[(next, parent, number)]) {
                Ok(mut records) => records.pop(),
                // The rest of the list can not be found behind a record that can not be read.
                Err(ReadError::Unmapped { .. }) => None,
                Err(error) => return Err(error),
            };
            let Some(record) = record else {
                self.lost.push(table.name.clone());
                break;
            };
            next = link
                .checked_sub(table.low)
                .and_then(|offset| u64_at(&record.bytes, offset as usize))
                .unwrap_or(0);
            found.push(record);
        }
        Ok(found)
    }

    /// Records behind an array of pointers that stands in the parent's record.
    fn group(
        &self,
        table: &Table,
        base: u64,
        parent: usize,
    ) -> Result<Vec<(u64, usize, u64)>, ReadError> {
        // No heap has more of them.
        const MOST_POINTERS: u64 = 4096;
        let each = table.link.unwrap_or(0).clamp(1, MOST_POINTERS);
        let pointers = table.count.div_ceil(each).min(MOST_POINTERS);
        let bytes = self.memory.bytes(base, pointers as usize * 8)?;
        let mut places = Vec::new();
        for pointer in 0..pointers {
            let first = u64_at(&bytes, pointer as usize * 8).unwrap_or(0);
            if first == 0 {
                continue;
            }
            let wanted = each.min(table.count - pointer * each);
            for (address, parent, number) in array(first, table, wanted, parent) {
                places.push((address, parent, pointer * each + number));
            }
            if places.len() as u64 * COST_OF_A_RECORD > self.left.get() {
                break;
            }
        }
        Ok(places)
    }

    /// The records inside those of the parent, or behind a pointer of the parent's.
    fn inside(&mut self, place: usize, table: &Table) -> Rows {
        let Some(parents) = table.parent.and_then(|parent| self.records[parent].clone()) else {
            return Ok(Vec::new());
        };
        let parent_table = &self.directory.tables[table.parent.unwrap_or(place)];
        let mut places = Vec::new();
        let mut chained = Vec::new();
        for (index, parent) in parents.iter().enumerate() {
            let base = parent.address.wrapping_add(table.address);
            match table.kind {
                Kind::Group => places.extend(self.group(table, base, index)?),
                Kind::Chain => chained.extend(self.list(place, table, base, index)?),
                _ => {}
            }
            if matches!(table.kind, Kind::Group | Kind::Chain) {
                continue;
            }
            if table.kind == Kind::Pointed {
                let bits_at = table.link.map(|link| parent.address.wrapping_add(link));
                let (first, bits) = (self.pointer(base)?, self.power(bits_at)?);
                let count = 1u64.checked_shl(bits).unwrap_or(0).min(table.count);
                if first != 0 {
                    places.extend(array(first, table, self.affordable(table, count), index));
                }
                continue;
            }
            let row = Row {
                table: parent_table,
                record: parent,
            };
            match table.name.as_str() {
                // The region's other records are address space that nobody has touched.
                "extent" => {
                    let count = row.get("extents").unwrap_or(0).min(table.count);
                    places.extend(array(base, table, count, index));
                }
                "block" => {
                    let wanted = self.committed(index);
                    let all = array(base, table, table.count, index);
                    places.extend(all.into_iter().filter(|(.., number)| {
                        wanted
                            .iter()
                            .any(|(first, behind)| (*first..*behind).contains(number))
                    }));
                }
                _ => places.extend(array(
                    base,
                    table,
                    self.affordable(table, table.count),
                    index,
                )),
            }
            if places.len() as u64 * COST_OF_A_RECORD > MOST_BYTES {
                break;
            }
        }
        if table.kind == Kind::Chain {
            return Ok(chained);
        }
        self.settled(place, table, &places)
    }

    /// Block numbers of a region that are committed, by its extents.
    fn committed(&self, region: usize) -> Vec<(u64, u64)> {
        let Some(place) = self.directory.find("extent") else {
            return Vec::new();
        };
        let table = &self.directory.tables[place];
        let extents = self.records[place].iter().flatten();
        extents
            .filter(|record| record.parent == region)
            .filter_map(|record| {
                let row = Row { table, record };
                let first = row.get("first_block")?;
                Some((first, first.saturating_add(row.get("committed_blocks")?)))
            })
            .collect()
    }

    fn affordable(&self, table: &Table, count: u64) -> u64 {
        count.min(self.left.get() / (table.high - table.low + COST_OF_A_RECORD))
    }

    fn pointer(&self, address: u64) -> Result<u64, ReadError> {
        let bytes = self.memory.bytes(address, 8)?;
        Ok(u64_at(&bytes, 0).unwrap_or(0))
    }

    fn power(&self, address: Option<u64>) -> Result<u32, ReadError> {
        let Some(address) = address else { return Ok(0) };
        let bytes = self.memory.bytes(address, 4)?;
        Ok(u32_at(&bytes, 0).unwrap_or(0))
    }

    /// Copies of records, each from one moment if it has a lock and is not changed all the time.
    fn settled(&mut self, place: usize, table: &Table, places: &[(u64, usize, u64)]) -> Rows {
        let mut records = self.copies(table, places)?;
        let Some(lock) = table.lock else {
            return Ok(records);
        };
        let again = self.copies(table, places)?;
        let began = Instant::now();
        let mut torn = false;
        for (record, copy) in records.iter_mut().zip(again) {
            let mut last = copy;
            let mut tries = 1;
            let mut is_settled = *record == last && is_free(table, lock, &last);
            while !is_settled && tries < TRIES && began.elapsed() < PATIENCE {
                let mut more = self.copies(table, &[(last.address, last.parent, last.number)])?;
                let Some(next) = more.pop() else { break };
                is_settled = next == last && is_free(table, lock, &next);
                last = next;
                tries += 1;
            }
            torn |= !is_settled;
            *record = last;
        }
        if torn {
            self.torn.push(self.directory.tables[place].name.clone());
        }
        Ok(records)
    }

    fn copies(&self, table: &Table, places: &[(u64, usize, u64)]) -> Rows {
        let length = table.high - table.low;
        let cost = (length + COST_OF_A_RECORD).saturating_mul(places.len() as u64);
        let Some(left) = self.left.get().checked_sub(cost) else {
            return Err(ReadError::Unmapped {
                address: table.address,
                length: cost as usize,
            });
        };
        self.left.set(left);
        let length = length as usize;
        let mut found: Vec<Record> = places
            .iter()
            .map(|(address, parent, number)| Record {
                address: *address,
                parent: *parent,
                number: *number,
                bytes: vec![0; length],
            })
            .collect();
        // Only what matters is read: what lies between may be unreadable, and is not in images.
        for (low, high) in &table.ranges {
            let (from, length) = ((low - table.low) as usize, (high - low) as usize);
            let addresses: Vec<u64> = places
                .iter()
                .map(|(address, ..)| address.wrapping_add(*low))
                .collect();
            let bytes = self.memory.pieces(&addresses, length)?;
            for (record, piece) in found.iter_mut().zip(bytes.chunks_exact(length)) {
                record.bytes[from..from + length].copy_from_slice(piece);
            }
        }
        Ok(found)
    }
}

fn is_free(table: &Table, lock: u64, record: &Record) -> bool {
    u32_at(&record.bytes, (lock - table.low) as usize) == Some(0)
}

/// Address, parent and number of each record of an array.
fn array(first: u64, table: &Table, count: u64, parent: usize) -> Vec<(u64, usize, u64)> {
    // No table is longer; what claims to be is read so far and no further.
    const LONGEST: u64 = 1 << 20;
    let address = |number: u64| first.wrapping_add(number.wrapping_mul(table.stride));
    (0..count.min(LONGEST))
        .map(|number| (address(number), parent, number))
        .collect()
}
