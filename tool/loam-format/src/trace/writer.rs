//! Writes a trace, chunk by chunk. Flushed data stays readable, whatever happens to the writer.

use std::io::{self, Write};

use thiserror::Error;

use super::chunk::{
    file_head, ChunkKind, Sealer, FILE_HEAD, MAX_RAW, MAX_ROWS, UNWEIGHTED, VERSION,
};
use super::columns::Column;
use super::encode::{Encoder, Source};
use super::event::Record;
use super::header::{End, Header, Mark, Process};
use super::table::{self, Frame, IndexRow, Row, Sample, Stack, Touch};

/// The samples are written when there are this many.
const SAMPLES: usize = 256;
/// The rows of any other table are written when there are this many.
const TABLE_ROWS: usize = 4_096;
/// The most rows of the index in one chunk.
const INDEX_ROWS: usize = MAX_ROWS as usize;

/// Why a trace can not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The output returned an error.
    #[error("the trace can not be written: {0}")]
    Io(#[from] io::Error),
    /// A header or a process is larger than a chunk may be.
    #[error("the {kind} takes {bytes} bytes, and a chunk of a trace holds {MAX_RAW}")]
    TooLarge {
        /// Which part.
        kind: &'static str,
        /// Its size.
        bytes: usize,
    },
}

/// A stream of a writer: one process image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream(pub u32);

/// Bytes of a column before compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnBytes {
    /// Which column.
    pub column: Column,
    /// Its bytes in all chunks so far.
    pub bytes: u64,
}

/// Figures of the written data.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    /// Events in written chunks.
    pub events: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of chunks of events, as the file has them.
    pub event_bytes: u64,
    /// Bytes of each column before compression.
    pub columns: [u64; Column::ALL.len()],
}

impl Statistics {
    /// The columns by name.
    pub fn by_column(&self) -> impl Iterator<Item = ColumnBytes> + '_ {
        Column::ALL.into_iter().map(|column| ColumnBytes {
            column,
            bytes: self.columns[column as usize],
        })
    }
}

/// A stream's chunks that are not written yet.
#[derive(Debug, Default)]
struct Pending {
    encoder: Option<Box<Encoder>>,
    /// Whether the process was described.
    is_described: bool,
    /// Events in written chunks.
    written: u64,
    samples: Vec<Sample>,
    touches: Vec<Touch>,
    marks: Vec<Mark>,
    frames: Vec<Frame>,
    stacks: Vec<Stack>,
}

/// Writes a trace.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    sealer: Sealer,
    weighted: bool,
    unit: u64,
    streams: Vec<Pending>,
    index: Vec<IndexRow>,
    statistics: Statistics,
    raw: Vec<u8>,
    /// The most bytes of the file.
    most: u64,
    is_full: bool,
    /// Streams without an end.
    open: u64,
}

/// Bytes that are kept free below the most for the end of each stream that has none.
const END_RESERVE: u64 = 512;
/// Bytes that are kept free beyond that, for a later description of its process.
const DESCRIPTION_RESERVE: u64 = 1 << 10;
/// The same for each chunk, for its row of the index.
const CHUNK_RESERVE: u64 = 32;
/// A chunk of a bounded file has at most one event for each 32 bytes of the file. An event takes
/// two to eight bytes, so several chunks fit.
const CHUNK_SHARE: u64 = 32;

impl<W: Write> Writer<W> {
    /// Begins a trace: the file's head and the header.
    pub fn new(mut out: W, header: &Header) -> Result<Writer<W>, WriteError> {
        let version = match header.weighted {
            true => VERSION,
            false => UNWEIGHTED,
        };
        out.write_all(&file_head(version))?;
        let mut writer = Writer {
            out,
            sealer: Sealer::new()?,
            weighted: header.weighted,
            unit: header.clock.unit_ns.max(1),
            streams: Vec::new(),
            index: Vec::new(),
            statistics: Statistics {
                file_bytes: FILE_HEAD as u64,
                ..Statistics::default()
            },
            raw: Vec::new(),
            most: u64::MAX,
            is_full: false,
            open: 0,
        };
        writer.json(ChunkKind::Header, 0, 1, header)?;
        Ok(writer)
    }

    /// Bounds the file. A chunk of events or of a table that does not fit any more is left out, and
    /// so is each later one: the trace ends there. A first description of a process and an end are
    /// always written, a later description if the file has room for it.
    pub fn bound(&mut self, most: Option<u64>) {
        self.most = most.unwrap_or(u64::MAX);
    }

    /// Whether something was left out because the file is as large as it may be, or hardly anything
    /// more fits.
    pub fn is_full(&self) -> bool {
        self.is_full || self.reserved() + self.open * DESCRIPTION_RESERVE > self.most
    }

    /// Most rows of a chunk of events: a small file has room for several chunks.
    fn chunk_rows(&self) -> u32 {
        let most = self.most / CHUNK_SHARE;
        most.clamp(1, u64::from(MAX_ROWS)) as u32
    }

    /// Bytes of the file, with those that its end will take.
    fn reserved(&self) -> u64 {
        self.statistics.file_bytes
            + self.index.len() as u64 * CHUNK_RESERVE
            + self.open * END_RESERVE
    }

    /// Adds a stream.
    pub fn process(&mut self, process: &Process) -> Result<Stream, WriteError> {
        let stream = Stream(self.streams.len() as u32);
        self.streams.push(Pending::default());
        self.open += 1;
        self.json(ChunkKind::Process, stream.0, 1, process)?;
        self.streams[stream.0 as usize].is_described = true;
        Ok(stream)
    }

    /// Writes the description of a stream's process again, with everything that is known now.
    pub fn update(&mut self, stream: Stream, process: &Process) -> Result<(), WriteError> {
        self.json(ChunkKind::Process, stream.0, 1, process)
    }

    /// Adds the next event of a stream. The events of a stream come in the process's order.
    pub fn push(&mut self, stream: Stream, record: &Record) -> Result<(), WriteError> {
        self.push_all(stream, std::slice::from_ref(record))
    }

    /// Adds the next events of a stream.
    pub fn push_all(&mut self, stream: Stream, mut records: &[Record]) -> Result<(), WriteError> {
        self.push_from(stream, &mut records)
    }

    /// The same for events that are made while they are encoded.
    pub fn push_from(&mut self, stream: Stream, source: &mut dyn Source) -> Result<(), WriteError> {
        let (unit, rows) = (self.unit, self.chunk_rows());
        while !source.is_empty() {
            let pending = &mut self.streams[stream.0 as usize];
            let encoder = pending
                .encoder
                .get_or_insert_with(|| Box::new(Encoder::of_chunks(unit, rows)));
            source.fill(encoder);
            if encoder.is_closed() {
                self.flush_events(stream.0)?;
            }
        }
        Ok(())
    }

    /// How many events of a stream were pushed.
    pub fn events(&self, stream: Stream) -> u64 {
        let pending = &self.streams[stream.0 as usize];
        pending.written
            + pending
                .encoder
                .as_ref()
                .map_or(0, |encoder| encoder.rows().into())
    }

    /// Adds a sample of the process at `sample.time`. The samples of a stream come in order of
    /// time. The number of the event is set here.
    pub fn sample(&mut self, stream: Stream, mut sample: Sample) -> Result<(), WriteError> {
        sample.event = Some(self.events(stream));
        let samples = &mut self.streams[stream.0 as usize].samples;
        samples.push(sample);
        if samples.len() >= SAMPLES {
            self.flush_tables(stream.0)?;
        }
        Ok(())
    }

    /// Adds the pages of a live block.
    pub fn touch(&mut self, stream: Stream, touch: Touch) -> Result<(), WriteError> {
        let touches = &mut self.streams[stream.0 as usize].touches;
        touches.push(touch);
        if touches.len() >= TABLE_ROWS {
            self.flush_tables(stream.0)?;
        }
        Ok(())
    }

    /// Adds a moment that the program marked. The number of the event is set here.
    pub fn mark(&mut self, stream: Stream, mut mark: Mark) -> Result<(), WriteError> {
        mark.event = self.events(stream);
        let marks = &mut self.streams[stream.0 as usize].marks;
        marks.push(mark);
        if marks.len() >= TABLE_ROWS {
            self.flush_tables(stream.0)?;
        }
        Ok(())
    }

    /// Adds a frame. It must come before the first stack or frame that refers to it.
    pub fn frame(&mut self, stream: Stream, frame: Frame) -> Result<(), WriteError> {
        let frames = &mut self.streams[stream.0 as usize].frames;
        frames.push(frame);
        if frames.len() >= TABLE_ROWS {
            self.flush_tables(stream.0)?;
        }
        Ok(())
    }

    /// Adds the stack of a block.
    pub fn stack(&mut self, stream: Stream, stack: Stack) -> Result<(), WriteError> {
        let stacks = &mut self.streams[stream.0 as usize].stacks;
        stacks.push(stack);
        if stacks.len() >= TABLE_ROWS {
            self.flush_tables(stream.0)?;
        }
        Ok(())
    }

    /// Ends a stream and frees its memory. The count of events is set here.
    pub fn end(&mut self, stream: Stream, mut end: End) -> Result<(), WriteError> {
        self.flush_events(stream.0)?;
        self.flush_tables(stream.0)?;
        let pending = &mut self.streams[stream.0 as usize];
        pending.encoder = None;
        end.events = pending.written;
        self.json(ChunkKind::End, stream.0, 1, &end)?;
        self.open -= 1;
        Ok(())
    }

    /// Writes everything that was pushed. The file up to this point is readable.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        for stream in 0..self.streams.len() as u32 {
            self.flush_events(stream)?;
            self.flush_tables(stream)?;
        }
        Ok(self.out.flush()?)
    }

    /// The figures so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Ends the trace with an index.
    pub fn finish(mut self) -> Result<(W, Statistics), WriteError> {
        self.flush()?;
        let index = std::mem::take(&mut self.index);
        for rows in index.chunks(INDEX_ROWS) {
            self.table(ChunkKind::Index, 0, rows)?;
        }
        self.out.flush()?;
        Ok((self.out, self.statistics))
    }

    fn flush_events(&mut self, stream: u32) -> Result<(), WriteError> {
        let pending = &mut self.streams[stream as usize];
        let Some(encoder) = pending
            .encoder
            .as_mut()
            .filter(|encoder| encoder.rows() > 0)
        else {
            return Ok(());
        };
        let rows = encoder.rows();
        let row = IndexRow {
            first_event: Some(pending.written),
            first_time: Some(encoder.first_time()),
            last_time: Some(encoder.last_time()),
            ..IndexRow::default()
        };
        self.raw.clear();
        let bytes = encoder.finish(pending.written, &mut self.raw);
        let before = self.statistics.file_bytes;
        if !self.write(ChunkKind::Events, stream, rows, row)? {
            return Ok(());
        }
        self.streams[stream as usize].written += u64::from(rows);
        for (sum, bytes) in self.statistics.columns.iter_mut().zip(bytes) {
            *sum += bytes;
        }
        self.statistics.events += u64::from(rows);
        self.statistics.event_bytes += self.statistics.file_bytes - before;
        Ok(())
    }

    fn flush_tables(&mut self, stream: u32) -> Result<(), WriteError> {
        let pending = &mut self.streams[stream as usize];
        let samples = std::mem::take(&mut pending.samples);
        let touches = std::mem::take(&mut pending.touches);
        let marks = std::mem::take(&mut pending.marks);
        let frames = std::mem::take(&mut pending.frames);
        let stacks = std::mem::take(&mut pending.stacks);
        self.table(ChunkKind::Samples, stream, &samples)?;
        self.table(ChunkKind::Touches, stream, &touches)?;
        if !marks.is_empty() {
            self.json(ChunkKind::Marks, stream, marks.len(), &marks)?;
        }
        // The frames of a stack come before it.
        self.table(ChunkKind::Frames, stream, &frames)?;
        let columns = match self.weighted {
            true => Stack::COLUMNS.len(),
            false => Stack::UNWEIGHTED,
        };
        self.columns(ChunkKind::Stacks, stream, &stacks, columns)
    }

    fn table<R: Row>(
        &mut self,
        kind: ChunkKind,
        stream: u32,
        rows: &[R],
    ) -> Result<(), WriteError> {
        self.columns(kind, stream, rows, R::COLUMNS.len())
    }

    fn columns<R: Row>(
        &mut self,
        kind: ChunkKind,
        stream: u32,
        rows: &[R],
        columns: usize,
    ) -> Result<(), WriteError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.raw.clear();
        table::encode_first(rows, columns, &mut self.raw);
        self.write(kind, stream, rows.len() as u32, IndexRow::default())?;
        Ok(())
    }

    fn json<T: serde::Serialize>(
        &mut self,
        kind: ChunkKind,
        stream: u32,
        rows: usize,
        value: &T,
    ) -> Result<(), WriteError> {
        self.raw.clear();
        serde_json::to_writer(&mut self.raw, value).map_err(io::Error::from)?;
        if self.raw.len() > MAX_RAW {
            return Err(WriteError::TooLarge {
                kind: kind.name(),
                bytes: self.raw.len(),
            });
        }
        self.write(kind, stream, rows as u32, IndexRow::default())?;
        Ok(())
    }

    /// Writes a chunk. Its payload is in `raw`. False: it was left out.
    fn write(
        &mut self,
        kind: ChunkKind,
        stream: u32,
        rows: u32,
        row: IndexRow,
    ) -> Result<bool, WriteError> {
        let (reserved, most) = (self.reserved(), self.most);
        let sealed = self.sealer.seal(kind, stream, rows, &self.raw)?;
        let bytes = sealed.len() as u64;
        let whole = reserved + bytes;
        let is_written = match kind {
            ChunkKind::Header | ChunkKind::End | ChunkKind::Index => true,
            ChunkKind::Process => {
                let stream = &self.streams[stream as usize];
                !stream.is_described || whole <= most
            }
            ChunkKind::Events
            | ChunkKind::Samples
            | ChunkKind::Touches
            | ChunkKind::Marks
            | ChunkKind::Frames
            | ChunkKind::Stacks => {
                self.is_full |= whole + self.open * DESCRIPTION_RESERVE > most;
                !self.is_full
            }
        };
        if !is_written {
            return Ok(false);
        }
        self.out.write_all(sealed)?;
        self.index.push(IndexRow {
            offset: Some(self.statistics.file_bytes),
            kind: Some(kind as u64),
            stream: Some(stream.into()),
            rows: Some(rows.into()),
            ..row
        });
        self.statistics.file_bytes += bytes;
        Ok(true)
    }
}
