//! The block `loam_counters`: the tables that a process shows, and the places of their fields.
//!
//! Nothing in the block is trusted. Counts and sizes have limits, offsets are added with checks,
//! and a table with an inconsistent description is left out as if the library did not have it.

use thiserror::Error;

use crate::bytes::{text, u32_at, u64_at};
use crate::counters::list::LIST;
use crate::memory::{Memory, ReadError};

/// The magic number at the block's beginning.
pub const MAGIC: &[u8; 8] = b"LOAMCNTR";
/// Bytes of the block's header that this reader uses.
const HEADER: usize = 80;
/// No library has a directory larger than this.
const LARGEST_BLOCK: u64 = 1 << 20;
const MOST_TABLES: u32 = 256;
const MOST_FIELDS: u32 = 8192;
/// The most bytes of a record, from its first to its last field.
const LARGEST_RECORD: u64 = 256 << 10;
/// Stands for a number that is absent.
const NONE: u32 = u32::MAX;

/// Why the block can not be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DirectoryError {
    /// The bytes could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no block at the address: the library has not started yet, or the address is wrong.
    #[error("its heap has not started yet, or what is there is no directory of counters")]
    NotThere,
    /// The block has a later format.
    #[error(
        "it shows counters of format {found}, and this loam reads format {}; use a loam as new as \
         the library, version {library}",
        LIST.version
    )]
    Newer {
        /// The version of that format.
        found: u32,
        /// The library's version.
        library: String,
    },
    /// The block contradicts itself.
    #[error("its directory of counters is damaged: {0}")]
    Damaged(&'static str),
}

/// How a table's records lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One record, at an address.
    Record,
    /// Records side by side, at an address.
    Array,
    /// Records in a list. A pointer at an address leads to the first record.
    List,
    /// Records side by side in each record of the parent.
    Nested,
    /// Records that a pointer in each record of the parent points to.
    Pointed,
    /// Records that several pointers in each record of the parent point to, a fixed number for each
    /// pointer.
    Group,
    /// Records in a list. A pointer in each record of the parent leads to the first one.
    Chain,
    /// Records side by side, in each record of the parent, or at an address. Only those who look at
    /// single blocks read them.
    Detail,
    /// As [`Kind::Chain`], and only those who look at single blocks read them. Without a link there
    /// is one record.
    DetailChain,
}

impl Kind {
    /// Whether readers of counters pass such a table over: it has as many records as there are
    /// blocks.
    pub fn is_detail(self) -> bool {
        matches!(self, Kind::Detail | Kind::DetailChain)
    }

    fn of(number: u32) -> Option<Kind> {
        Some(match number {
            1 => Kind::Record,
            2 => Kind::Array,
            3 => Kind::List,
            4 => Kind::Nested,
            5 => Kind::Pointed,
            6 => Kind::Group,
            7 => Kind::Chain,
            8 => Kind::Detail,
            9 => Kind::DetailChain,
            _ => return None,
        })
    }
}

/// The place of a field in a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Bytes from the record's beginning.
    pub offset: u64,
    /// Bytes of a value.
    pub width: u64,
    /// Number of values.
    pub count: u64,
}

impl Field {
    fn end(&self) -> u64 {
        self.offset + self.width * self.count
    }
}

/// A table of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// How its records lie.
    pub kind: Kind,
    /// The table of the parent's records.
    pub parent: Option<usize>,
    /// Depends on the kind: the address of the first record or of a pointer to it, or an offset in
    /// the parent's record.
    pub address: u64,
    /// Bytes from record to record.
    pub stride: u64,
    /// Number of records; for a list, the most.
    pub count: u64,
    /// Depends on the kind: the offset of the next pointer, or of the power of two in the parent's
    /// record, or the records of each pointer.
    pub link: Option<u64>,
    /// Offset of the lock word.
    pub lock: Option<u64>,
    /// Its fields, by name.
    pub fields: Vec<Field>,
    /// The bytes of a record that are fields, links or lock words: beginnings and ends, in order.
    pub ranges: Vec<(u64, u64)>,
    /// Offset of the first byte in `ranges`.
    pub low: u64,
    /// Offset behind the last byte in `ranges`.
    pub high: u64,
}

impl Table {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let place = self
            .fields
            .binary_search_by(|field| field.name.as_str().cmp(name));
        place.ok().map(|place| &self.fields[place])
    }

    /// Computes `ranges`. False if they have too many bytes.
    fn measure(&mut self) -> bool {
        self.fields.sort_by(|a, b| a.name.cmp(&b.name));
        self.fields.dedup_by(|next, kept| next.name == kept.name);
        let of_fields = self.fields.iter().map(|field| (field.offset, field.end()));
        let lock = self.lock.map(|offset| (offset, offset + 4));
        let next = matches!(self.kind, Kind::List | Kind::Chain | Kind::DetailChain)
            .then(|| self.link.map(|offset| (offset, offset + 8)));
        let mut all: Vec<(u64, u64)> = of_fields.chain(lock).chain(next.flatten()).collect();
        all.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (low, high) in all {
            match ranges.last_mut() {
                Some((_, end)) if low <= *end => *end = high.max(*end),
                _ => ranges.push((low, high)),
            }
        }
        self.low = ranges.first().map_or(0, |(low, _)| *low);
        self.high = ranges.last().map_or(0, |(_, high)| *high);
        self.ranges = ranges;
        self.high - self.low <= LARGEST_RECORD
    }
}

/// The description of a process's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// The format's version.
    pub version: u32,
    /// The library's version, as text.
    pub library: String,
    /// The valid tables. A parent comes before its children.
    pub tables: Vec<Table>,
    /// Names of the invalid tables.
    pub refused: Vec<String>,
}

impl Directory {
    /// Reads the block at the address.
    pub fn read(memory: &impl Memory, address: u64) -> Result<Directory, DirectoryError> {
        Directory::decode(&Directory::block(memory, address)?)
    }

    /// The bytes of the block at the address, if this reader may know its format.
    pub fn block(memory: &impl Memory, address: u64) -> Result<Vec<u8>, DirectoryError> {
        let head = memory.bytes(address, HEADER)?;
        if head.get(..8) != Some(MAGIC) || u64_at(&head, 40) != Some(address) {
            return Err(DirectoryError::NotThere);
        }
        let number = |offset| u32_at(&head, offset).unwrap_or(0);
        let version = number(8);
        let library = text(&head[48..80]);
        if version > LIST.version {
            return Err(DirectoryError::Newer {
                found: version,
                library,
            });
        }
        let total = u64::from(number(16));
        if total > LARGEST_BLOCK || total < HEADER as u64 {
            return Err(DirectoryError::Damaged("its size makes no sense"));
        }
        Ok(memory.bytes(address, total as usize)?)
    }

    /// Decodes the bytes of a block.
    pub fn decode(block: &[u8]) -> Result<Directory, DirectoryError> {
        let number = |offset| u32_at(block, offset).unwrap_or(0);
        let library = text(block.get(48..80).unwrap_or_default());
        let shape = Shape {
            header: number(12) as usize,
            table_size: number(20) as usize,
            tables: number(24),
            field_size: number(28) as usize,
            fields: number(32),
        };
        shape.decode(block, number(8), library)
    }

    /// The table of that name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.tables.iter().position(|table| table.name == name)
    }
}

/// The sizes that the block gives for its own parts.
struct Shape {
    header: usize,
    table_size: usize,
    tables: u32,
    field_size: usize,
    fields: u32,
}

impl Shape {
    fn decode(
        &self,
        block: &[u8],
        version: u32,
        library: String,
    ) -> Result<Directory, DirectoryError> {
        if self.tables > MOST_TABLES || self.fields > MOST_FIELDS {
            return Err(DirectoryError::Damaged(
                "it claims too many tables or fields",
            ));
        }
        if self.table_size < 56 || self.field_size < 40 {
            return Err(DirectoryError::Damaged("its entries are too short"));
        }
        let tables_end = (self.tables as usize)
            .checked_mul(self.table_size)
            .and_then(|size| size.checked_add(self.header));
        let end = (self.fields as usize)
            .checked_mul(self.field_size)
            .and_then(|size| size.checked_add(tables_end?));
        let (Some(tables_end), Some(end)) = (tables_end, end) else {
            return Err(DirectoryError::Damaged("its size makes no sense"));
        };
        if end > block.len() {
            return Err(DirectoryError::Damaged("it is shorter than its tables"));
        }
        // The tables by the block's numbers. An invalid table is none.
        let mut tables: Vec<Option<Table>> = block[self.header..tables_end]
            .chunks_exact(self.table_size)
            .map(table_of)
            .collect();
        for entry in block[tables_end..end].chunks_exact(self.field_size) {
            let number = u32_at(entry, 24).map(|number| number as usize);
            let table = number.and_then(|number| tables.get_mut(number)?.as_mut());
            if let (Some(table), Some(field)) = (table, field_of(entry)) {
                table.fields.push(field);
            }
        }
        Ok(sort(tables, version, library))
    }
}

/// Puts parents before their children and leaves out tables with an invalid parent.
fn sort(mut tables: Vec<Option<Table>>, version: u32, library: String) -> Directory {
    let mut directory = Directory {
        version,
        library,
        tables: Vec::new(),
        refused: Vec::new(),
    };
    let mut places: Vec<Option<usize>> = vec![None; tables.len()];
    loop {
        let mut progress = false;
        for number in 0..tables.len() {
            let Some(table) = &tables[number] else {
                continue;
            };
            let needs_parent = match table.kind {
                Kind::Record | Kind::Array | Kind::List => false,
                Kind::Detail => table.parent.is_some(),
                _ => true,
            };
            let parent = table.parent.and_then(|parent| *places.get(parent)?);
            if needs_parent && parent.is_none() {
                continue;
            }
            let mut table = tables[number].take().expect("it was there");
            table.parent = parent.filter(|_| needs_parent);
            progress = true;
            if table.measure() {
                places[number] = Some(directory.tables.len());
                directory.tables.push(table);
            } else {
                directory.refused.push(table.name);
            }
        }
        if !progress {
            let orphans = tables.into_iter().flatten().map(|table| table.name);
            directory.refused.extend(orphans);
            return directory;
        }
    }
}

fn table_of(entry: &[u8]) -> Option<Table> {
    let number = |offset| u32_at(entry, offset);
    let known = |value: u32| (value != NONE).then_some(u64::from(value));
    Some(Table {
        name: text(entry.get(..24)?),
        kind: Kind::of(number(24)?)?,
        parent: known(number(28)?).map(|parent| parent as usize),
        address: u64_at(entry, 32)?,
        stride: number(40)?.into(),
        count: number(44)?.into(),
        link: known(number(48)?),
        lock: known(number(52)?),
        fields: Vec::new(),
        ranges: Vec::new(),
        low: 0,
        high: 0,
    })
}

fn field_of(entry: &[u8]) -> Option<Field> {
    let number = |offset| u32_at(entry, offset).map(u64::from);
    let field = Field {
        name: text(entry.get(..24)?),
        offset: number(28)?,
        width: number(32)?,
        count: number(36)?,
    };
    (matches!(field.width, 1 | 2 | 4 | 8) && field.count > 0).then_some(field)
}
