//! Reads every table of a process once. The rules are in `formats/counters.md`, "Reading
//! consistently".
//!
//! Every loop has a bound that the process can not change: tries, time, records and bytes. A
//! watched process is read repeatedly, so costly data is not read at every look: see `Kept`.

mod group;

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use loam_format::bytes::{u32_at, u64_at};
use loam_format::counters::copies::{length_of, Copies, Place, Spot, COST_OF_A_RECORD};
use loam_format::counters::directory::{Directory, Kind, Table};
use loam_format::counters::raw::{Raw, Row};
use loam_format::memory::{Memory, ReadError};
use loam_process::budget::Budget;

use crate::settle::{gather, Patience, Settle};

/// The most bytes that one pass reads of a process. A heap of 1 TiB shows about 130 MiB.
const MOST_BYTES: u64 = 256 << 20;
/// The table of the bins beside each class's first bin.
const MORE_BIN: &str = "more_bin";
/// The tables that one lock guards: first the table of the record with the lock, then the tables
/// under it. A parent comes before its children, and the long table comes last.
const GROUPS: [&[&str]; 2] = [
    &["page_heap", "region", "extent", "block"],
    &["huge", "huge_block"],
];

/// The data that is kept from look to look.
#[derive(Debug, Default)]
pub struct Kept {
    raw: Option<Raw>,
    /// For each group: when its tables may be read again.
    budgets: [Budget; GROUPS.len()],
}

impl Kept {
    /// The age of the oldest table, if some table was not read in the last look.
    pub fn age(&self) -> Option<Duration> {
        self.budgets.iter().filter_map(Budget::age).max()
    }
}

/// Reads every table once, with the patience of a caller that waits for the result.
pub fn read(memory: &impl Memory, directory: &Arc<Directory>) -> Result<Raw, ReadError> {
    Reader::new(memory, directory, Patience::THOROUGH).everything(None)
}

/// Reads every table once, except unchanged tables and those that are not worth their cost yet.
pub fn read_again(
    memory: &impl Memory,
    directory: &Arc<Directory>,
    kept: &mut Kept,
) -> Result<Raw, ReadError> {
    if kept
        .raw
        .as_ref()
        .is_some_and(|raw| raw.directory != *directory)
    {
        *kept = Kept::default();
    }
    let mut reader = Reader::new(memory, directory, Patience::LIVE);
    reader.before.clone_from(&kept.raw);
    let raw = reader.everything(Some(kept))?;
    kept.raw = Some(raw.clone());
    Ok(raw)
}

struct Reader<'a, M> {
    memory: &'a M,
    directory: &'a Arc<Directory>,
    patience: Patience,
    /// The look before, which helps to guess where the records of lists lie.
    before: Option<Raw>,
    left: Cell<u64>,
    tables: Vec<Option<Arc<Copies>>>,
    torn: Vec<String>,
    lost: Vec<String>,
}

impl<'a, M: Memory> Reader<'a, M> {
    fn new(memory: &'a M, directory: &'a Arc<Directory>, patience: Patience) -> Reader<'a, M> {
        Reader {
            memory,
            directory,
            patience,
            before: None,
            left: Cell::new(MOST_BYTES),
            tables: vec![None; directory.tables.len()],
            torn: Vec::new(),
            lost: directory.refused.clone(),
        }
    }

    fn everything(mut self, mut kept: Option<&mut Kept>) -> Result<Raw, ReadError> {
        self.fixed()?;
        let mut grouped = HashSet::new();
        for (number, group) in GROUPS.iter().enumerate() {
            let find = |name: &&str| self.directory.find(name);
            let Some(head) = find(&group[0]) else {
                continue;
            };
            let others: Vec<usize> = group[1..].iter().filter_map(find).collect();
            let is_locked = self.directory.tables[head].lock.is_some();
            if !is_locked || self.directory.tables[head].kind != Kind::Record {
                continue;
            }
            grouped.insert(head);
            grouped.extend(&others);
            if self.tables[head].is_none() {
                self.single(head)?;
            }
            match kept.as_deref_mut() {
                None => self.group(head, &others)?,
                Some(kept) => self.group_again(head, &others, &mut kept.budgets[number])?,
            }
        }
        for place in 0..self.directory.tables.len() {
            let is_passed_over = self.directory.tables[place].kind.is_detail();
            if !grouped.contains(&place) && !is_passed_over && self.tables[place].is_none() {
                self.single(place)?;
            }
        }
        Ok(Raw {
            directory: Arc::clone(self.directory),
            tables: self.tables,
            torn: self.torn,
            lost: self.lost,
        })
    }

    /// Reads the tables with addresses in the directory, all in one call. A table that fails, or
    /// that was written meanwhile, is left for `single`.
    fn fixed(&mut self) -> Result<(), ReadError> {
        let mut all = Vec::new();
        let mut parts = Vec::new();
        for (place, table) in self.directory.tables.iter().enumerate() {
            let is_fixed = matches!(table.kind, Kind::Record | Kind::Array);
            if !is_fixed || table.name == MORE_BIN {
                continue;
            }
            let Ok(copies) = self.plan(place) else {
                continue;
            };
            if self.affords(&copies).is_err() {
                continue;
            }
            let spots = copies.spots(table, 0, copies.records.len());
            let times = 1 + usize::from(table.lock.is_some());
            let length = times * length_of(&spots);
            all.extend(std::iter::repeat_n(&spots, times).flatten());
            parts.push((place, copies, spots, length));
        }
        let copied = match gather(self.memory, &all) {
            Err(ReadError::Unmapped { .. }) => return Ok(()),
            copied => copied?,
        };
        let mut rest = &*copied;
        for (place, mut copies, spots, length) in parts {
            let table = &self.directory.tables[place];
            let (own, behind) = rest.split_at(length);
            rest = behind;
            let is_settled = match table.lock {
                Some(lock) => copies.take_twice(table, lock, &spots, own).is_empty(),
                None => {
                    copies.take(&spots, own);
                    true
                }
            };
            if is_settled {
                self.tables[place] = Some(Arc::new(copies));
            }
        }
        Ok(())
    }

    fn single(&mut self, place: usize) -> Result<(), ReadError> {
        let mut tries = 0;
        loop {
            match self.copies_of(place) {
                Ok(copies) => {
                    self.tables[place] = Some(Arc::new(copies));
                    return Ok(());
                }
                // The record may just have been replaced, so the parent is read again.
                Err(ReadError::Unmapped { .. }) if tries < 2 => tries += 1,
                Err(error) => return self.survive(place, error),
            }
            if let Some(parent) = self.directory.tables[place].parent {
                if let Ok(copies) = self.copies_of(parent) {
                    self.tables[parent] = Some(Arc::new(copies));
                }
            }
        }
    }

    /// If a table can not be read, it counts as lost. If the process can not be read, that is an
    /// error.
    fn survive(&mut self, place: usize, error: ReadError) -> Result<(), ReadError> {
        match error {
            ReadError::Unmapped { .. } => {
                self.lost.push(self.directory.tables[place].name.clone());
                self.tables[place] = None;
                Ok(())
            }
            error => Err(error),
        }
    }

    fn copies_of(&mut self, place: usize) -> Result<Copies, ReadError> {
        let table = &self.directory.tables[place];
        match table.kind {
            Kind::List => {
                if let Some(guessed) = self.guessed(place)? {
                    return Ok(guessed);
                }
                self.list(table, &[(table.address, 0)])
            }
            Kind::Chain => {
                let parents = table.parent.and_then(|parent| self.tables[parent].clone());
                let records = parents.iter().flat_map(|parents| &parents.records);
                let starts = records
                    .enumerate()
                    .map(|(index, parent)| (parent.address.wrapping_add(table.address), index));
                self.list(table, &starts.collect::<Vec<_>>())
            }
            _ => {
                let copies = self.plan(place)?;
                self.settled(table, copies)
            }
        }
    }

    /// Reads a list in one call, on the guess that its records are those of the look before. This
    /// is true most of the time.
    fn guessed(&mut self, place: usize) -> Result<Option<Copies>, ReadError> {
        let table = &self.directory.tables[place];
        let before = self
            .before
            .as_ref()
            .and_then(|before| before.tables[place].as_ref());
        let (Some(before), Some(link), None) = (before, table.link, table.lock) else {
            return Ok(None);
        };
        let mut copies = Copies::clone(before);
        let mut spots = vec![Spot {
            address: table.address,
            length: 8,
            at: 0,
        }];
        spots.extend(copies.spots(table, 0, copies.records.len()));
        self.affords(&copies)?;
        let copied = match gather(self.memory, &spots) {
            Err(ReadError::Unmapped { .. }) => return Ok(None),
            copied => copied?,
        };
        copies.take(&spots[1..], &copied[8..]);
        let mut next = u64_at(&copied, 0);
        for record in &copies.records {
            if next != Some(record.address) {
                return Ok(None);
            }
            next = Row::of(table, &copies, record).raw(link);
        }
        Ok((next == Some(0)).then_some(copies))
    }

    /// Follows the pointers of a list from each start: the address of the first pointer, and its
    /// parent.
    fn list(&mut self, table: &Table, starts: &[(u64, usize)]) -> Result<Copies, ReadError> {
        let mut found = Vec::new();
        let Some(link) = table.link else {
            return Ok(Copies::default());
        };
        for (start, parent) in starts {
            let mut next = self.pointer(*start)?;
            let mut seen = HashSet::new();
            while next != 0 && (seen.len() as u64) < table.count && seen.insert(next) {
                let place = (next, *parent, seen.len() as u64 - 1);
                let copies = match self.settled(table, self.copies_at(table, &[place])?) {
                    Ok(copies) => copies,
                    // After a record that can not be read, the rest of the list can not be found.
                    Err(ReadError::Unmapped { .. }) => {
                        self.lost.push(table.name.clone());
                        break;
                    }
                    Err(error) => return Err(error),
                };
                let row = copies
                    .records
                    .first()
                    .map(|record| Row::of(table, &copies, record));
                next = row.and_then(|row| row.raw(link)).unwrap_or(0);
                found.push(copies);
            }
        }
        Ok(Copies::joined(found))
    }

    /// Room for the records of a table that is not a list.
    fn plan(&self, place: usize) -> Result<Copies, ReadError> {
        self.copies_at(&self.directory.tables[place], &self.places(place)?)
    }

    /// The places of the records, from the directory or from the parent's records.
    fn places(&self, place: usize) -> Result<Vec<Place>, ReadError> {
        let table = &self.directory.tables[place];
        Ok(match table.kind {
            Kind::Record => vec![(table.address, 0, 0)],
            Kind::Array if table.name == MORE_BIN => self.further_bins(table),
            Kind::Array => array(table.address, table, table.count, 0),
            _ => self.inside(table)?,
        })
    }

    /// A class's further bins, if a thread ever waited for its first bin: before that no thread
    /// uses them. They take half a megabyte, which a small program never touches.
    fn further_bins(&self, table: &Table) -> Vec<Place> {
        let all = || array(table.address, table, table.count, 0);
        let first = self.directory.find("bin");
        let Some((place, bins)) =
            first.and_then(|place| Some((place, self.tables[place].as_deref()?)))
        else {
            return all();
        };
        let first = &self.directory.tables[place];
        let each = (table.count / first.count.max(1)).max(1);
        let (Some(waited), Some(refused)) = (
            first.field("lock_contentions"),
            first.field("lock_refusals"),
        ) else {
            return all();
        };
        let is_used =
            |row: &Row<'_>| row.value(waited, 0) != Some(0) || row.value(refused, 0) != Some(0);
        let rows = bins
            .records
            .iter()
            .map(|record| Row::of(first, bins, record));
        let used = rows.filter(is_used).map(|row| row.record.number);
        let numbers = used.flat_map(|class| {
            let first = class.saturating_mul(each);
            first..first.saturating_add(each).min(table.count)
        });
        let address = |number: u64| {
            table
                .address
                .wrapping_add(number.wrapping_mul(table.stride))
        };
        let places = numbers.map(|number| (address(number), 0, number));
        places.take(LONGEST as usize).collect()
    }

    /// The records that lie inside those of the parent, or behind a pointer of the parent's.
    fn inside(&self, table: &Table) -> Result<Vec<Place>, ReadError> {
        let Some((parent, parents)) = table
            .parent
            .and_then(|parent| Some((parent, self.tables[parent].as_deref()?)))
        else {
            return Ok(Vec::new());
        };
        let mut places = Vec::new();
        for (index, record) in parents.records.iter().enumerate() {
            let base = record.address.wrapping_add(table.address);
            match (table.kind, table.name.as_str()) {
                (Kind::Group, _) => places.extend(self.group_of(table, base, index)?),
                (Kind::Pointed, _) => {
                    let bits_at = table.link.map(|link| record.address.wrapping_add(link));
                    let (first, bits) = (self.pointer(base)?, self.power(bits_at)?);
                    let count = 1u64.checked_shl(bits).unwrap_or(0).min(table.count);
                    if first != 0 {
                        places.extend(array(first, table, self.affordable(table, count), index));
                    }
                }
                // The other records of the region are address space that was never touched.
                (_, "extent") => {
                    let row = Row::of(&self.directory.tables[parent], parents, record);
                    let count = row.get("extents").unwrap_or(0).min(table.count);
                    places.extend(array(base, table, self.affordable(table, count), index));
                }
                (_, "block") => {
                    for (first, behind) in self.committed(index) {
                        let from = first.min(table.count);
                        let count =
                            self.affordable(table, behind.min(table.count).saturating_sub(from));
                        let start = base.wrapping_add(from.wrapping_mul(table.stride));
                        let some = array(start, table, count, index).into_iter();
                        places.extend(
                            some.map(|(address, parent, number)| (address, parent, from + number)),
                        );
                    }
                }
                _ => places.extend(array(
                    base,
                    table,
                    self.affordable(table, table.count),
                    index,
                )),
            }
            if places.len() as u64 * COST_OF_A_RECORD > self.left.get() {
                break;
            }
        }
        Ok(places)
    }

    /// The records behind an array of pointers in the parent's record.
    fn group_of(&self, table: &Table, base: u64, parent: usize) -> Result<Vec<Place>, ReadError> {
        // The most pointers in such an array: no heap has more.
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

    /// The numbers of a region's committed blocks, from its extents: beginnings and ends, in order.
    fn committed(&self, region: usize) -> Vec<(u64, u64)> {
        let extents = self.directory.find("extent");
        let Some((place, copies)) =
            extents.and_then(|place| Some((place, self.tables[place].as_deref()?)))
        else {
            return Vec::new();
        };
        let table = &self.directory.tables[place];
        let own = copies
            .records
            .iter()
            .filter(|record| record.parent == region);
        let mut found: Vec<(u64, u64)> = own
            .filter_map(|record| {
                let row = Row::of(table, copies, record);
                let first = row.get("first_block")?;
                Some((first, first.saturating_add(row.get("committed_blocks")?)))
            })
            .collect();
        found.sort_unstable();
        // Extents do not overlap. If a process claims that they do, the overlapping part is not
        // read twice.
        let mut end = 0;
        for (first, behind) in &mut found {
            *first = (*first).max(end);
            *behind = (*behind).max(*first);
            end = *behind;
        }
        found
    }

    fn affordable(&self, table: &Table, count: u64) -> u64 {
        count.min(self.left.get() / (table.high - table.low + COST_OF_A_RECORD))
    }

    /// Room for records. Fails if reading them would exceed the budget.
    fn copies_at(&self, table: &Table, places: &[Place]) -> Result<Copies, ReadError> {
        let each = table.high - table.low + COST_OF_A_RECORD;
        let cost = each.saturating_mul(places.len() as u64);
        if cost > self.left.get() {
            return Err(too_much(table.address, cost));
        }
        Ok(Copies::plan(table, places))
    }

    /// Takes the cost of reading the records from the budget.
    fn affords(&self, copies: &Copies) -> Result<(), ReadError> {
        let cost = copies.cost();
        let left = self.left.get().checked_sub(cost);
        self.left.set(left.ok_or_else(|| too_much(0, cost))?);
        Ok(())
    }

    /// Copies records. If they have a lock and do not change all the time, each copy is of one
    /// moment.
    fn settled(&mut self, table: &Table, mut copies: Copies) -> Result<Copies, ReadError> {
        self.affords(&copies)?;
        match table.lock {
            None => copies.read(table, self.memory)?,
            Some(lock) => {
                if !copies.settle(table, lock, self.memory, self.patience)? {
                    self.torn.push(table.name.clone());
                }
            }
        }
        Ok(copies)
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
}

fn too_much(address: u64, cost: u64) -> ReadError {
    ReadError::Unmapped {
        address,
        length: cost as usize,
    }
}

/// The most records of one array. No table is longer; of a table that claims more, this many are
/// read.
const LONGEST: u64 = 1 << 20;

/// Address, parent and number of each record of an array.
fn array(first: u64, table: &Table, count: u64, parent: usize) -> Vec<Place> {
    let address = |number: u64| first.wrapping_add(number.wrapping_mul(table.stride));
    (0..count.min(LONGEST))
        .map(|number| (address(number), parent, number))
        .collect()
}
