//! Rows as a Parquet file: zstd, dictionaries, row groups of `GROUP` rows, the trace's header as
//! metadata.
//!
//! Numbers are signed and have 64 bits, since not every reader knows other types; larger numbers
//! become the largest one. Each column may be null. A row is a struct of plain fields; `serde_json`
//! takes it apart.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde::Serialize;
use serde_json::Value;

use super::rows::{Kind, Row, Sink};

/// Rows in a group: as many as DuckDB reads at once.
const GROUP: usize = 122_880;
/// The key of the trace's header in the file's metadata.
const HEADER_KEY: &str = "loam.trace.header";

/// A file that is being written.
pub struct Parquet<W: Write + Send> {
    file: SerializedFileWriter<W>,
    names: Vec<&'static str>,
    columns: Vec<Column>,
    /// Columns with one value in all rows.
    same: Vec<(usize, Option<String>)>,
    rows: usize,
}

impl<W: Write + Send> Parquet<W> {
    /// A file for rows of `R`, with additional text columns that have one value in all rows.
    pub fn new<R: Row>(
        header: &str,
        same: &[(&'static str, Option<&str>)],
        out: W,
    ) -> io::Result<Parquet<W>> {
        let further = same.iter().map(|(name, _)| (*name, Kind::Text));
        let columns: Vec<(&str, Kind)> = R::COLUMNS.iter().copied().chain(further).collect();
        let fields = columns.iter().map(|(name, kind)| {
            let kind = match kind {
                Kind::Whole => "INT64",
                Kind::Real => "DOUBLE",
                Kind::Text => "BINARY",
                Kind::Truth => "BOOLEAN",
            };
            let note = if kind == "BINARY" { " (UTF8)" } else { "" };
            format!("OPTIONAL {kind} {name}{note};")
        });
        let message = format!("message {} {{ {} }}", R::TABLE, fields.collect::<String>());
        let schema = parse_message_type(&message).map_err(io_error)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(format!("loam {}", loam_format::VERSION))
            .set_key_value_metadata(Some(vec![KeyValue::new(
                HEADER_KEY.to_owned(),
                header.to_owned(),
            )]))
            .build();
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties));
        Ok(Parquet {
            file: file.map_err(io_error)?,
            names: columns.iter().map(|(name, _)| *name).collect(),
            columns: columns.iter().map(|(_, kind)| Column::new(*kind)).collect(),
            same: same
                .iter()
                .enumerate()
                .map(|(at, (_, text))| (R::COLUMNS.len() + at, text.map(str::to_owned)))
                .collect(),
            rows: 0,
        })
    }

    fn add(&mut self, row: &impl Serialize) -> io::Result<()> {
        let Value::Object(mut fields) = serde_json::to_value(row)? else {
            return Err(io::Error::other("a row is no struct"));
        };
        let own = self.columns.len() - self.same.len();
        for (name, column) in self.names.iter().zip(&mut self.columns[..own]) {
            let value = fields.remove(*name);
            let fits = value.is_some_and(|value| column.take(value));
            if !fits {
                return Err(io::Error::other(format!("{name} does not fit its column")));
            }
        }
        if let Some(name) = fields.keys().next() {
            return Err(io::Error::other(format!("{name} has no column")));
        }
        for (at, text) in &self.same {
            self.columns[*at].take(text.clone().map_or(Value::Null, Value::String));
        }
        self.rows += 1;
        if self.rows == GROUP {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the end of the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        let mut out = self.file.into_inner().map_err(io_error)?;
        out.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        let mut group = self.file.next_row_group().map_err(io_error)?;
        for column in &mut self.columns {
            column.write(&mut group).map_err(io_error)?;
        }
        group.close().map_err(io_error)?;
        Ok(())
    }
}

impl<W: Write + Send> Sink for Parquet<W> {
    fn row(&mut self, row: &impl Row) -> io::Result<()> {
        self.add(row)
    }
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// The values of a column that are not null, and the rows that have one.
enum Column {
    Whole(Vec<i64>, Vec<i16>),
    Real(Vec<f64>, Vec<i16>),
    Text(Vec<ByteArray>, Vec<i16>),
    Truth(Vec<bool>, Vec<i16>),
}

impl Column {
    fn new(kind: Kind) -> Column {
        match kind {
            Kind::Whole => Column::Whole(Vec::new(), Vec::new()),
            Kind::Real => Column::Real(Vec::new(), Vec::new()),
            Kind::Text => Column::Text(Vec::new(), Vec::new()),
            Kind::Truth => Column::Truth(Vec::new(), Vec::new()),
        }
    }

    fn known(&mut self) -> &mut Vec<i16> {
        match self {
            Column::Whole(_, known)
            | Column::Real(_, known)
            | Column::Text(_, known)
            | Column::Truth(_, known) => known,
        }
    }

    fn null(&mut self) {
        self.known().push(0);
    }

    /// Adds a value; false if it is of another kind.
    fn take(&mut self, value: Value) -> bool {
        match (&mut *self, value) {
            (column, Value::Null) => {
                column.null();
                return true;
            }
            (Column::Whole(values, _), Value::Number(number)) if !number.is_f64() => {
                values.push(number.as_i64().unwrap_or(i64::MAX));
            }
            (Column::Real(values, _), Value::Number(number)) => {
                values.push(number.as_f64().unwrap_or(f64::NAN));
            }
            (Column::Text(values, _), Value::String(text)) => {
                values.push(ByteArray::from(text.into_bytes()));
            }
            (Column::Truth(values, _), Value::Bool(truth)) => values.push(truth),
            _ => return false,
        }
        self.known().push(1);
        true
    }

    fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        match self {
            Column::Whole(values, known) => write::<Int64Type, W>(group, values, known),
            Column::Real(values, known) => write::<DoubleType, W>(group, values, known),
            Column::Text(values, known) => write::<ByteArrayType, W>(group, values, known),
            Column::Truth(values, known) => write::<BoolType, W>(group, values, known),
        }
    }
}

fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<T::T>,
    known: &mut Vec<i16>,
) -> Result<(), ParquetError> {
    let column = group.next_column()?;
    let mut column = column.ok_or_else(|| ParquetError::General("a column too many".into()))?;
    column.typed::<T>().write_batch(values, Some(known), None)?;
    values.clear();
    known.clear();
    column.close()
}
