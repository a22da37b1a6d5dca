//! Rows of a table for other programs, as CSV, JSON lines or Parquet. A row is a flat struct; its
//! fields are the columns in all three formats.

use std::io::{self, Write};

use serde::Serialize;

use loam_format::plain;

use super::parquet::Parquet;
use super::Format;

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

/// Writes text with its invisible characters escaped: names of programs, threads and marks come
/// from the trace, and a table is often printed on a terminal. In JSON the escaped form means the
/// same.
pub struct Visible<W: Write> {
    out: W,
    /// The begin of a character whose end has not been written yet.
    rest: Vec<u8>,
}

impl<W: Write> Visible<W> {
    /// In front of that output.
    pub fn new(out: W) -> Visible<W> {
        let rest = Vec::new();
        Visible { out, rest }
    }
}

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.rest.len(),
        };
        let text = String::from_utf8_lossy(&self.rest[..whole]);
        self.out.write_all(plain::lines(&text).as_bytes())?;
        self.rest.drain(..whole);
        Ok(bytes.len())
    }

    /// Every text ends with a whole character, so that the rest is empty behind the last one.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes rows.
pub enum Rows<W: Write + Send> {
    /// Comma-separated values with a header.
    Csv(Box<csv::Writer<Visible<W>>>),
    /// A JSON object in each line.
    Jsonl(Visible<W>),
    /// Parquet. The file begins with its first row.
    Parquet(Box<Parquet<W>>),
}

impl<W: Write + Send> Rows<W> {
    /// A writer for rows of `R` in a format that has rows. `header` is the trace's, for formats
    /// that store it.
    pub fn new<R: Row>(format: Format, header: &str, out: W) -> io::Result<Rows<W>> {
        Ok(match format {
            Format::Csv => Rows::Csv(Box::new(csv::Writer::from_writer(Visible::new(out)))),
            Format::Parquet => Rows::Parquet(Box::new(Parquet::new::<R>(header, &[], out)?)),
            _ => Rows::Jsonl(Visible::new(out)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct NameRow {
        name: &'static str,
        process: u32,
    }

    impl Row for NameRow {
        const TABLE: &'static str = "names";
        const COLUMNS: &'static [(&'static str, Kind)] =
            &[("name", Kind::Text), ("process", Kind::Whole)];
    }

    /// The table of a thousand rows, so that the CSV writer's own buffer ends within characters.
    fn table(format: Format, name: &'static str) -> String {
        let mut out = Vec::new();
        let mut rows = Rows::new::<NameRow>(format, "{}", &mut out).unwrap();
        for process in 0..1000 {
            rows.row(&NameRow { name, process }).unwrap();
        }
        rows.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cells_with_characters_that_control_a_terminal_are_escaped() {
        let name = "\u{1b}]0;x\u{7}\r\u{9b}2J\u{202e}größe 語,\"end\nnext";
        let csv = table(Format::Csv, name);
        let escaped = r#""\u001b]0;x\u0007\u000d\u009b2J\u202egröße 語,""end"#;
        let expected: String = (0..1000)
            .map(|process| format!("{escaped}\nnext\",{process}\n"))
            .collect();
        assert_eq!(csv, format!("name,process\n{expected}"));

        let lines = table(Format::Jsonl, name);
        assert!(lines.chars().all(|c| c == '\n' || plain::shows(c)));
        for line in lines.lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(row["name"], name);
        }
    }
}
