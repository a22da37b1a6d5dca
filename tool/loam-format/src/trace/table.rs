//! Tables of numbers, each in a chunk: samples of a process, pages of live blocks, stacks and
//! frames, the index.
//!
//! A table is the number of its columns, then each column with its length. A column has the
//! differences from row to row. An unknown value is stored as 0, a known one as the value plus one,
//! so that a reader needs no second column for that. Columns are only added at the end: a reader
//! uses those that it knows.

use super::decode::DecodeError;
use super::varint::{put, unzigzag, zigzag, Input};

/// A row of a table. Its columns are in the file's order.
pub trait Row: Sized {
    /// Names of the columns in the declared list.
    const COLUMNS: &'static [&'static str];
    /// The value in column `column`.
    fn get(&self, column: usize) -> Option<u64>;
    /// Sets the value in column `column`.
    fn set(&mut self, column: usize, value: Option<u64>);
    /// A row of unknown values.
    fn unknown() -> Self;
}

/// Encodes rows as the payload of a chunk.
#[cfg(test)]
pub fn encode<R: Row>(rows: &[R], out: &mut Vec<u8>) {
    encode_first(rows, R::COLUMNS.len(), out);
}

/// Encodes the first columns of rows as the payload of a chunk.
pub fn encode_first<R: Row>(rows: &[R], columns: usize, out: &mut Vec<u8>) {
    put(out, columns as u64);
    let mut bytes = Vec::new();
    for column in 0..columns {
        bytes.clear();
        let mut last = 0u64;
        for row in rows {
            let value = row.get(column).map_or(0, |value| value.saturating_add(1));
            put(&mut bytes, zigzag(value.wrapping_sub(last) as i64));
            last = value;
        }
        put(out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }
}

/// Decodes the rows of a payload.
pub fn decode<R: Row>(payload: &[u8], rows: u32) -> Result<Vec<R>, DecodeError> {
    let mut input = Input::new(payload);
    let columns = input.number()?;
    let mut out: Vec<R> = Vec::new();
    for column in 0..columns {
        let mut values = input.counted()?;
        let Some(column) = usize::try_from(column)
            .ok()
            .filter(|at| *at < R::COLUMNS.len())
        else {
            continue;
        };
        let mut last = 0u64;
        for row in 0..rows as usize {
            last = last.wrapping_add(unzigzag(values.number()?) as u64);
            if row == out.len() {
                out.push(R::unknown());
            }
            out[row].set(column, last.checked_sub(1));
        }
        if !values.is_empty() {
            return Err(DecodeError::Long);
        }
    }
    match out.len() == rows as usize {
        true => Ok(out),
        false => Err(DecodeError::Short),
    }
}

/// Declares a table's row: its columns, their order and their names.
macro_rules! row {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $column:ident = $text:literal,)* }) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
        pub struct $name { $($(#[$inner])* pub $column: Option<u64>,)* }

        impl Row for $name {
            const COLUMNS: &'static [&'static str] = &[$($text,)*];
            fn get(&self, column: usize) -> Option<u64> {
                [$(self.$column,)*][column]
            }
            fn set(&mut self, column: usize, value: Option<u64>) {
                *[$(&mut self.$column,)*][column] = value;
            }
            fn unknown() -> $name {
                $name::default()
            }
        }
    };
}

row! {
    /// A process as the system shows it, seen from outside. Counts and times are since its start. A
    /// figure that was not read is `None`.
    Sample {
        /// Nanoseconds since the recording began.
        time = "time",
        /// Number of events of the stream that were written before; the writer sets it.
        event = "event",
        /// Resident bytes of anonymous memory (`RssAnon`).
        resident_anonymous = "resident_anonymous",
        /// Resident bytes of files (`RssFile`).
        resident_file = "resident_file",
        /// Resident bytes of shared memory (`RssShmem`).
        resident_shared = "resident_shared",
        /// Resident bytes of the mappings in which blocks lie.
        resident_heap = "resident_heap",
        /// Bytes in swap.
        swapped = "swapped",
        /// Bytes that the kernel may take at any time (`LazyFree`).
        huge = "huge",
        /// Bytes that the kernel may take (`LazyFree`).
        lazily_freed = "lazily_freed",
        /// Minor faults.
        minor_faults = "minor_faults",
        /// Major faults.
        major_faults = "major_faults",
        /// Nanoseconds in user mode.
        user_time = "user_time",
        /// Nanoseconds in the system.
        system_time = "system_time",
        /// Threads.
        threads = "threads",
        /// Mappings.
        mappings = "mappings",
    }
}

row! {
    /// The pages of a live block that were resident during a look.
    Touch {
        /// Nanoseconds since the recording began.
        time = "time",
        /// The block.
        address = "address",
        /// Its resident pages.
        pages = "pages",
    }
}

row! {
    /// The stack of a block that was chosen for the sample.
    Stack {
        /// Number of the event that allocated it, in the stream.
        event = "event",
        /// Number of the innermost frame. None: the stack is not known.
        frame = "frame",
        /// 1: frames further out are missing, since the stack was longer than the copied part, or
        /// could not be followed to its end.
        cut = "cut",
        /// How many blocks it stands for, in thousandths. None: what the header's `stack_bytes` and
        /// the block's size say. Only traces of version 2 have it.
        #[serde(skip_serializing_if = "Option::is_none")]
        weight = "weight",
    }
}

impl Stack {
    /// The columns of version 1.
    pub(super) const UNWEIGHTED: usize = Stack::COLUMNS.len() - 1;

    /// The probability with which a block of this size was chosen. `mean`: the header's
    /// `stack_bytes`.
    pub fn chance(&self, size: u64, mean: u64) -> f64 {
        match self.weight {
            Some(weight) => (1000.0 / weight.max(1) as f64).min(1.0),
            None => chance(size, mean),
        }
    }
}

/// The probability that a block of this size is chosen for the sample, if `mean` is the average
/// distance in bytes.
pub fn chance(size: u64, mean: u64) -> f64 {
    -f64::exp_m1(-(size as f64) / mean as f64)
}

row! {
    /// A frame: a place in the code, and the frame that called it. Stacks share the frames of a
    /// common beginning.
    Frame {
        /// Its number in the stream.
        number = "number",
        /// Number of the calling frame; none: this is the outermost frame.
        caller = "caller",
        /// Index of the process's module that it lies in; none: it lies in no file.
        module = "module",
        /// Address of the instruction, or of the last byte of the call, as the module's file
        /// numbers them. Without a module it is an address in memory.
        address = "address",
    }
}

row! {
    /// The place of a chunk, and its content.
    IndexRow {
        /// Offset in the file.
        offset = "offset",
        /// Its kind, as a number.
        kind = "kind",
        /// Its stream.
        stream = "stream",
        /// Its rows.
        rows = "rows",
        /// Number of its first event in its stream.
        first_event = "first_event",
        /// Time of its first event, in nanoseconds.
        first_time = "first_time",
        /// Time of its last event, in nanoseconds.
        last_time = "last_time",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_back_with_what_is_not_known() {
        let rows = vec![
            Touch {
                time: Some(0),
                address: Some(u64::MAX - 1),
                pages: None,
            },
            Touch {
                time: Some(u64::MAX - 1),
                address: None,
                pages: Some(3),
            },
        ];
        let mut bytes = Vec::new();
        encode(&rows, &mut bytes);
        assert_eq!(decode::<Touch>(&bytes, 2).unwrap(), rows);
        assert_eq!(decode::<Touch>(&bytes, 1), Err(DecodeError::Long));
        assert_eq!(decode::<Touch>(&bytes, 3), Err(DecodeError::Short));
    }

    #[test]
    fn columns_of_a_later_version_are_passed_over_and_those_of_an_earlier_one_not_known() {
        let sample = Sample {
            time: Some(5),
            event: Some(6),
            resident_anonymous: Some(7),
            resident_file: Some(8),
            ..Sample::default()
        };
        let mut bytes = Vec::new();
        encode(std::slice::from_ref(&sample), &mut bytes);
        let touch = &decode::<Touch>(&bytes, 1).unwrap()[0];
        assert_eq!(
            (touch.time, touch.address, touch.pages),
            (Some(5), Some(6), Some(7))
        );
        bytes.clear();
        encode(std::slice::from_ref(touch), &mut bytes);
        let again = &decode::<Sample>(&bytes, 1).unwrap()[0];
        assert_eq!(
            (again.resident_anonymous, again.resident_file),
            (Some(7), None)
        );
    }
}
