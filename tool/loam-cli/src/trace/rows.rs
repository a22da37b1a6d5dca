//! Rows of a table for other programs, as CSV, JSON lines or Parquet. A row is a flat struct; its fields are the
//! columns in all three formats.

use std::io::{self, Write};

use serde::Serialize;

use super::args::Format;
use super::parquet::Parquet;

/// The kind of values in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers.
    Whole,
    /// Numbers with a fraction.
    Real,
    /// Text.
    Text,
    /// Yes or no.
    Truth,
}

/// A row of a table.
pub trait Row: Serialize {
    /// The table's name.
    const TABLE: &'static str;
    /// Its columns, in the order of its fields.
    const COLUMNS: &'static [(&'static str, Kind)];
}

/// Receives the rows of a table.
pub trait Sink {
    /// Takes a row.
    fn row(&mut self, row: &impl Row) -> io::Result<()>;
}

/// Writes rows.
pub enum Rows<W: Write + Send> {
    /// Comma-separated values with a header.
    Csv(Box<csv::Writer<W>>),
    /// A JSON object in each line.
    Jsonl(W),
    /// Parquet. The file begins with its first row.
    Parquet(Box<Parquet<W>>),
}

impl<W: Write + Send> Rows<W> {
    /// A writer for rows of `R` in a format that has rows. `header` is the trace's, for formats that store it.
    pub fn new<R: Row>(format: Format, header: &str, out: W) -> io::Result<Rows<W>> {
        Ok(match format {
            Format::Csv => Rows::Csv(Box::new(csv::Writer::from_writer(out))),
            Format::Parquet => Rows::Parquet(Box::new(Parquet::new::<R>(header, &[], out)?)),
            _ => Rows::Jsonl(out),
        })
    }

    /// Ends the table.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Rows::Csv(mut writer) => writer.flush(),
            Rows::Jsonl(mut out) => out.flush(),
            Rows::Parquet(writer) => writer.finish(),
        }
    }
}

impl<W: Write + Send> Sink for Rows<W> {
    fn row(&mut self, row: &impl Row) -> io::Result<()> {
        match self {
            Rows::Csv(writer) => writer
                .serialize(row)
                .map_err(|error| match error.into_kind() {
                    csv::ErrorKind::Io(error) => error,
                    other => io::Error::other(format!("{other:?}")),
                }),
            Rows::Jsonl(out) => {
                serde_json::to_writer(&mut *out, row).map_err(io::Error::from)?;
                out.write_all(b"\n")
            }
            Rows::Parquet(writer) => writer.row(row),
        }
    }
}
