//! The records, copied out of a process while it runs.

use std::sync::Arc;

use crate::bytes::{number_at, text};
use crate::counters::copies::{Copies, Record};
use crate::counters::directory::{Directory, Field, Table};

/// All records of a process, by table.
#[derive(Debug, Clone)]
pub struct Raw {
    /// The description of the tables.
    pub directory: Arc<Directory>,
    /// The tables, in the directory's order; none if the table could not be read. A table that was
    /// not read again is shared with the look before.
    pub tables: Vec<Option<Arc<Copies>>>,
    /// Tables with records that may mix two moments.
    pub torn: Vec<String>,
    /// Tables that could not be read completely.
    pub lost: Vec<String>,
}

/// A record, and the meaning of its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    table: &'a Table,
    bytes: &'a [u8],
    /// The record.
    pub record: &'a Record,
}

impl<'a> Row<'a> {
    /// A record of a table.
    pub fn of(table: &'a Table, copies: &'a Copies, record: &'a Record) -> Row<'a> {
        Row {
            table,
            bytes: copies.bytes(table, record),
            record,
        }
    }

    /// The address of the first byte with a meaning; the bytes before it may be a guard.
    pub fn address(&self) -> u64 {
        self.record.address.wrapping_add(self.table.low)
    }

    /// The first value of a field.
    pub fn get(&self, field: &str) -> Option<u64> {
        self.at(field, 0)
    }

    /// The value of a field at an index.
    pub fn at(&self, field: &str, index: u64) -> Option<u64> {
        self.value(self.table.field(field)?, index)
    }

    /// A field of the record's table, to be passed to `value`.
    pub fn field(&self, field: &str) -> Option<&'a Field> {
        self.table.field(field)
    }

    /// A value of a field that was looked up before.
    pub fn value(&self, field: &Field, index: u64) -> Option<u64> {
        if index >= field.count {
            return None;
        }
        let offset = field.offset + index * field.width - self.table.low;
        number_at(self.bytes, offset as usize, field.width as usize)
    }

    /// All values of a field; empty if there is no such field.
    pub fn all(&self, field: &str) -> Vec<u64> {
        let Some(field) = self.table.field(field) else {
            return Vec::new();
        };
        let width = field.width as usize;
        let bytes = self.bytes.get((field.offset - self.table.low) as usize..);
        let values = bytes.unwrap_or_default().chunks_exact(width);
        let values = values.take(usize::try_from(field.count).unwrap_or(usize::MAX));
        values
            .filter_map(|value| number_at(value, 0, width))
            .collect()
    }

    /// A field of single bytes as text.
    pub fn text(&self, field: &str) -> String {
        let bytes: Vec<u8> = self.all(field).into_iter().map(|byte| byte as u8).collect();
        text(&bytes)
    }

    /// The pointer at an offset of the record, if the bytes there have a meaning.
    pub fn raw(&self, offset: u64) -> Option<u64> {
        number_at(self.bytes, offset.checked_sub(self.table.low)? as usize, 8)
    }
}

impl Raw {
    /// Whether both readings are equal.
    pub fn is_same(&self, other: &Raw) -> bool {
        let both = self.tables.iter().zip(&other.tables);
        let mut tables = self.directory.tables.iter().zip(both);
        self.torn.is_empty()
            && self.lost.is_empty()
            && self.tables.len() == other.tables.len()
            && tables.all(|(table, both)| match both {
                (Some(one), Some(two)) => one.is_same(table, two),
                (None, None) => true,
                _ => false,
            })
    }

    /// The records of a table, if the table exists and was read.
    pub fn rows(&self, name: &str) -> Option<impl Iterator<Item = Row<'_>> + Clone> {
        let place = self.directory.find(name)?;
        let table = &self.directory.tables[place];
        let copies = self.tables[place].as_deref()?;
        let row = move |record| Row::of(table, copies, record);
        Some(copies.records.iter().map(row))
    }

    /// The copies of a table's records.
    pub fn copies(&self, name: &str) -> Option<&Arc<Copies>> {
        self.tables[self.directory.find(name)?].as_ref()
    }

    /// A field of a table, to be passed to `Row::value`.
    pub fn field(&self, table: &str, field: &str) -> Option<&Field> {
        self.directory.tables[self.directory.find(table)?].field(field)
    }

    /// The record of a table with only one record.
    pub fn row(&self, name: &str) -> Option<Row<'_>> {
        self.rows(name)?.next()
    }
}
