//! Rows as a Parquet file: zstd, dictionaries, row groups of `GROUP` rows, the trace's header as metadata.
//!
//! Numbers are signed 64-bit ones, since not every reader knows others; larger ones are cut to the largest. Each column
//! may be null. A serde serializer that knows structs of plain fields takes a row apart; no other shape is a row.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde::ser::{Error, Impossible, SerializeStruct, Serializer};
use serde::Serialize;

use super::rows::{Kind, Row, Sink};

/// Rows of a group: what DuckDB reads in one piece.
const GROUP: usize = 122_880;
/// The key of the trace's header in the file's metadata.
const HEADER_KEY: &str = "loam.trace.header";

/// A file that is written.
pub struct Parquet<W: Write + Send> {
    file: SerializedFileWriter<W>,
    names: Vec<&'static str>,
    columns: Vec<Column>,
    /// Columns that have one value in all rows.
    same: Vec<(usize, Option<String>)>,
    rows: usize,
}

impl<W: Write + Send> Parquet<W> {
    /// A file for rows of `R`, with further columns of text that are the same in all rows.
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
        row.serialize(Fields {
            names: &self.names,
            columns: &mut self.columns,
            next: 0,
        })
        .map_err(io::Error::other)?;
        for (at, text) in &self.same {
            self.columns[*at].text(text.as_deref());
        }
        self.rows += 1;
        if self.rows == GROUP {
            self.flush()?;
        }
        Ok(())
    }

    /// The end of the file.
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

/// The values of a column that are not null, and which rows have one.
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

    fn null(&mut self) {
        match self {
            Column::Whole(_, known)
            | Column::Real(_, known)
            | Column::Text(_, known)
            | Column::Truth(_, known) => known.push(0),
        }
    }

    fn text(&mut self, text: Option<&str>) {
        match (self, text) {
            (Column::Text(values, known), Some(text)) => {
                values.push(ByteArray::from(text));
                known.push(1);
            }
            (column, _) => column.null(),
        }
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

/// Why a row has no place in its table: a mistake of this program.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Misfit(String);

impl Error for Misfit {
    fn custom<T: Display>(message: T) -> Misfit {
        Misfit(message.to_string())
    }
}

fn misfit<T>(what: &str) -> Result<T, Misfit> {
    Err(Misfit(format!("{what} is no part of a flat row")))
}

/// Takes a row apart.
struct Fields<'a> {
    names: &'a [&'static str],
    columns: &'a mut [Column],
    next: usize,
}

impl SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Misfit;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Misfit> {
        let at = self.next;
        self.next += 1;
        if self.names.get(at) != Some(&name) {
            return Err(Misfit(format!("{name} is not column {at} of its table")));
        }
        value.serialize(Value(&mut self.columns[at]))
    }

    fn end(self) -> Result<(), Misfit> {
        Ok(())
    }
}

/// Takes a field.
struct Value<'a>(&'a mut Column);

impl Value<'_> {
    fn whole(self, value: i64) -> Result<(), Misfit> {
        match self.0 {
            Column::Whole(values, known) => {
                values.push(value);
                known.push(1);
                Ok(())
            }
            _ => misfit("a number in another column"),
        }
    }
}

/// Methods for shapes that no row has.
macro_rules! no {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(fn $name(self, $(_: $argument),*) -> Result<$result, Misfit> {
            misfit(stringify!($name))
        })*
    };
}

macro_rules! whole {
    ($($name:ident $kind:ty,)*) => {
        $(fn $name(self, value: $kind) -> Result<(), Misfit> {
            self.whole(i64::try_from(value).unwrap_or(i64::MAX))
        })*
    };
}

type No = Impossible<(), Misfit>;

impl Serializer for Value<'_> {
    type Ok = ();
    type Error = Misfit;
    type SerializeSeq = No;
    type SerializeTuple = No;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = No;
    type SerializeStruct = No;
    type SerializeStructVariant = No;

    whole! { serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64, serialize_u8 u8,
    serialize_u16 u16, serialize_u32 u32, serialize_u64 u64, }

    fn serialize_bool(self, value: bool) -> Result<(), Misfit> {
        match self.0 {
            Column::Truth(values, known) => {
                values.push(value);
                known.push(1);
                Ok(())
            }
            _ => misfit("a truth in another column"),
        }
    }

    fn serialize_f32(self, value: f32) -> Result<(), Misfit> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Misfit> {
        match self.0 {
            Column::Real(values, known) => {
                values.push(value);
                known.push(1);
                Ok(())
            }
            _ => misfit("a fraction in another column"),
        }
    }

    fn serialize_char(self, value: char) -> Result<(), Misfit> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Misfit> {
        match self.0 {
            Column::Text(..) => {
                self.0.text(Some(value));
                Ok(())
            }
            _ => misfit("a text in another column"),
        }
    }

    fn serialize_none(self) -> Result<(), Misfit> {
        self.0.null();
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Misfit> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Misfit> {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Misfit> {
        self.serialize_none()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
    ) -> Result<(), Misfit> {
        self.serialize_str(name)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Misfit> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Misfit> {
        misfit("a variant with a value")
    }

    no! {
        serialize_bytes(&[u8]) -> ();
        serialize_seq(Option<usize>) -> No;
        serialize_tuple(usize) -> No;
        serialize_tuple_struct(&'static str, usize) -> No;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> No;
        serialize_map(Option<usize>) -> No;
        serialize_struct(&'static str, usize) -> No;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> No;
    }
}

/// A row itself: a struct, and nothing else.
impl<'a> Serializer for Fields<'a> {
    type Ok = ();
    type Error = Misfit;
    type SerializeSeq = No;
    type SerializeTuple = No;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = No;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = No;

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields<'a>, Misfit> {
        Ok(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), Misfit> {
        misfit("an optional row")
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Misfit> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Misfit> {
        misfit("a variant")
    }

    no! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_u32(u32) -> ();
        serialize_u64(u64) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_char(char) -> ();
        serialize_str(&str) -> ();
        serialize_bytes(&[u8]) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_unit_variant(&'static str, u32, &'static str) -> ();
        serialize_seq(Option<usize>) -> No;
        serialize_tuple(usize) -> No;
        serialize_tuple_struct(&'static str, usize) -> No;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> No;
        serialize_map(Option<usize>) -> No;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> No;
    }
}
