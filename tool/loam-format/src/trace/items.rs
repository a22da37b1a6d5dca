//! The content of a trace as items, in the file's order.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;

use super::chunk::{ChunkKind, MAX_ROWS};
use super::decode::{DecodeError, Decoder};
use super::event::Record;
use super::header::{End, Header, Mark, Module, Process};
use super::reader::{Chunk, Damage, ReadError, Reader, Wrong};
use super::table::{self, Frame, Row, Sample, Stack, Touch};

/// An item of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// The description of the process. It is repeated when more is known.
    Process(Process),
    /// An event, with the number of the stream's events before it.
    Event(u64, Record),
    /// A sample of the process.
    Sample(Sample),
    /// Pages of a live block.
    Touch(Touch),
    /// A mark of the program.
    Mark(Mark),
    /// The stack of a block.
    Stack(Stack),
    /// A frame of stacks that come later.
    Frame(Frame),
    /// The process ended.
    End(End),
}

/// Which items are read. Unwanted items are not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Events.
    pub events: bool,
    /// Samples, pages of live blocks, marks, stacks.
    pub tables: bool,
}

impl Wanted {
    /// Everything.
    pub const ALL: Wanted = Wanted {
        events: true,
        tables: true,
    };
}

/// The most memory that the descriptions, ends and marks of all streams may take together, since
/// readers keep them. A chunk of JSON may have 16 MiB in a few kilobytes of the file. Chosen: a
/// build of a hundred thousand processes has a quarter.
pub const MOST_DESCRIBED: u64 = 1 << 30;
/// What a reader has for each stream.
const STREAM: u64 = 1 << 10;

/// What the texts of all streams take. A later description of a process replaces the earlier one;
/// marks add up.
#[derive(Debug, Default)]
struct Described {
    replaced: BTreeMap<(u32, u32), u64>,
    total: u64,
}

impl Described {
    /// Counts the stream of a chunk, or says that it is too much.
    fn begin(&mut self, chunk: &Chunk) -> Result<(), Wrong> {
        if self.replaced.contains_key(&(chunk.stream, 0)) {
            return Ok(());
        }
        if self.total + STREAM > MOST_DESCRIBED {
            return Err(Wrong::TooMuch);
        }
        self.total += STREAM;
        self.replaced.insert((chunk.stream, 0), STREAM);
        Ok(())
    }

    /// Counts a text before it is parsed, or says that it is too much.
    fn add(&mut self, chunk: &Chunk, payload: &[u8]) -> Result<(), Wrong> {
        let is_mark = chunk.kind == ChunkKind::Marks;
        let each = if is_mark {
            size_of::<Mark>()
        } else {
            size_of::<Module>()
        };
        let weight = weight(payload, each as u64);
        let key = (chunk.stream, chunk.kind as u32);
        let before = match is_mark {
            true => 0,
            false => self.replaced.get(&key).copied().unwrap_or(0),
        };
        let total = self.total - before + weight;
        if total > MOST_DESCRIBED {
            return Err(Wrong::TooMuch);
        }
        self.total = total;
        if !is_mark {
            self.replaced.insert(key, weight);
        }
        Ok(())
    }
}

/// At most what a JSON text takes in memory: its bytes, a structure for each brace, a string for
/// each two quotes, twice because a list that grows has room for twice its elements.
fn weight(payload: &[u8], structure: u64) -> u64 {
    let each = |byte: &u8| match byte {
        b'{' => 2 * structure,
        b'"' => size_of::<String>() as u64,
        _ => 0,
    };
    payload.len() as u64 + payload.iter().map(each).sum::<u64>()
}

/// Iterates over a trace's items: `(stream, item)`.
#[derive(Debug)]
pub struct Items<R> {
    reader: Reader<R>,
    header: Header,
    wanted: Wanted,
    only: Option<u32>,
    decoder: Decoder,
    /// The events of the present chunk, its stream, the number of its first event, and the index of
    /// the next event.
    events: Vec<Record>,
    stream: u32,
    first: u64,
    next: usize,
    tables: VecDeque<(u32, Item)>,
    described: Described,
    /// For each stream, the number of events that were handed out or skipped.
    seen: Vec<u64>,
    missing: u64,
}

/// The error for a trace without a header. `found` is the kind of the chunk in its place, if there
/// is one.
fn no_header<R: Read>(reader: &Reader<R>, found: Option<ChunkKind>) -> ReadError {
    match (reader.damage().first(), found) {
        (Some(damage), None) if damage.what == Wrong::Cut => ReadError::CutHead(reader.offset()),
        (Some(damage), _) => ReadError::NoHeader(damage.to_string()),
        (None, Some(kind)) => {
            ReadError::NoHeader(format!("the first chunk is of kind {}", kind.name()))
        }
        (None, None) => ReadError::CutHead(reader.offset()),
    }
}

impl<R: Read> Items<R> {
    /// Begins to read. The header is available at once.
    pub fn new(input: R, wanted: Wanted) -> Result<Items<R>, ReadError> {
        let mut reader = Reader::new(input)?;
        let header = match reader.next_chunk()? {
            Some((chunk, payload)) if chunk.kind == ChunkKind::Header => {
                serde_json::from_slice(payload)
                    .map_err(|error| ReadError::NoHeader(error.to_string()))?
            }
            other => {
                let found = other.map(|(chunk, _)| chunk.kind);
                return Err(no_header(&reader, found));
            }
        };
        Ok(Items {
            reader,
            header,
            wanted,
            only: None,
            decoder: Decoder::default(),
            events: Vec::new(),
            stream: 0,
            first: 0,
            next: 0,
            tables: VecDeque::new(),
            described: Described::default(),
            seen: Vec::new(),
            missing: 0,
        })
    }

    /// Hands out the items of one stream only.
    pub fn only(mut self, stream: u32) -> Items<R> {
        self.only = Some(stream);
        self
    }

    /// The trace's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The damages so far; at most a thousand are kept.
    pub fn damage(&self) -> &[Damage] {
        self.reader.damage()
    }

    /// The number of damaged chunks so far.
    pub fn damaged(&self) -> u64 {
        self.reader.damaged()
    }

    /// The number of events in damaged chunks, as far as later events show it.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.reader.offset()
    }

    /// The next events, without a copy of each: `(stream, number of the first, events)`. An item
    /// that is not an event comes alone.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>, ReadError> {
        loop {
            if let Some((stream, item)) = self.tables.pop_front() {
                return Ok(Some(Batch::Item(stream, Box::new(item))));
            }
            if self.next < self.events.len() {
                let (from, stream) = (
                    std::mem::replace(&mut self.next, self.events.len()),
                    self.stream,
                );
                let first = self.first + from as u64;
                return Ok(Some(Batch::Events(stream, first, &self.events[from..])));
            }
            if !self.refill()? {
                return Ok(None);
            }
        }
    }

    /// Reads one chunk; false at the end.
    fn refill(&mut self) -> Result<bool, ReadError> {
        let Some((chunk, payload)) = self.reader.next_chunk()? else {
            return Ok(false);
        };
        if self.only.is_some_and(|only| only != chunk.stream) {
            return Ok(true);
        }
        let tables = &mut self.tables;
        let is_text = match chunk.kind {
            ChunkKind::Process | ChunkKind::End => true,
            ChunkKind::Marks => self.wanted.tables,
            _ => false,
        };
        let mut described = self.described.begin(&chunk);
        if is_text {
            described = described.and_then(|()| self.described.add(&chunk, payload));
        }
        if let Err(wrong) = described {
            self.reader.reject(&chunk, wrong);
            return Ok(true);
        }
        let wrong = match chunk.kind {
            ChunkKind::Process => json(payload, &chunk, Item::Process, tables),
            ChunkKind::End => json(payload, &chunk, Item::End, tables),
            ChunkKind::Samples if self.wanted.tables => rows(payload, &chunk, Item::Sample, tables),
            ChunkKind::Touches if self.wanted.tables => rows(payload, &chunk, Item::Touch, tables),
            ChunkKind::Stacks if self.wanted.tables => rows(payload, &chunk, Item::Stack, tables),
            ChunkKind::Frames if self.wanted.tables => rows(payload, &chunk, Item::Frame, tables),
            ChunkKind::Marks if self.wanted.tables => marks(payload, &chunk, tables),
            ChunkKind::Events if self.wanted.events => {
                self.events.clear();
                self.next = 0;
                self.stream = chunk.stream;
                let unit = self.header.clock.unit_ns.max(1);
                let decoded = self
                    .decoder
                    .decode(payload, chunk.rows, unit, &mut self.events);
                // The checksum was right, so the writer made an error. Nothing of the chunk is
                // trusted.
                match decoded {
                    Ok(first) => {
                        self.first = first;
                        Ok(())
                    }
                    Err(error) => {
                        self.events.clear();
                        Err(Wrong::Payload(error))
                    }
                }
            }
            _ => Ok(()),
        };
        match wrong {
            Ok(()) if chunk.kind == ChunkKind::Events && self.wanted.events => self.count(&chunk),
            Ok(()) => {}
            Err(wrong) => self.reader.reject(&chunk, wrong),
        }
        Ok(true)
    }

    /// A gap before a chunk's first event means that a chunk was lost.
    fn count(&mut self, chunk: &Chunk) {
        let at = chunk.stream as usize;
        // Streams are numbered from 0 without gaps. A huge number is an error of the writer and is
        // not counted.
        if at >= self.seen.len() {
            if at > self.seen.len() + (1 << 20) {
                return;
            }
            self.seen.resize(at + 1, 0);
        }
        let seen = &mut self.seen[at];
        self.missing += self.first.saturating_sub(*seen);
        *seen = self.first.saturating_add(u64::from(chunk.rows));
    }
}

/// A result of `next_batch`.
#[derive(Debug)]
pub enum Batch<'a> {
    /// Consecutive events of a stream, and the number of the first.
    Events(u32, u64, &'a [Record]),
    /// Any other item.
    Item(u32, Box<Item>),
}

impl<R: Read> Iterator for Items<R> {
    type Item = Result<(u32, Item), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.tables.pop_front() {
                return Some(Ok(item));
            }
            if let Some(record) = self.events.get(self.next) {
                let number = self.first + self.next as u64;
                self.next += 1;
                return Some(Ok((self.stream, Item::Event(number, *record))));
            }
            match self.refill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn json<T: serde::de::DeserializeOwned>(
    payload: &[u8],
    chunk: &Chunk,
    item: fn(T) -> Item,
    out: &mut VecDeque<(u32, Item)>,
) -> Result<(), Wrong> {
    let value = serde_json::from_slice(payload).map_err(|error| Wrong::Json(error.to_string()))?;
    out.push_back((chunk.stream, item(value)));
    Ok(())
}

fn marks(payload: &[u8], chunk: &Chunk, out: &mut VecDeque<(u32, Item)>) -> Result<(), Wrong> {
    let marks: Vec<Mark> =
        serde_json::from_slice(payload).map_err(|error| Wrong::Json(error.to_string()))?;
    if marks.len() > MAX_ROWS as usize {
        return Err(Wrong::Payload(DecodeError::Long));
    }
    out.extend(
        marks
            .into_iter()
            .map(|mark| (chunk.stream, Item::Mark(mark))),
    );
    Ok(())
}

fn rows<T: Row>(
    payload: &[u8],
    chunk: &Chunk,
    item: fn(T) -> Item,
    out: &mut VecDeque<(u32, Item)>,
) -> Result<(), Wrong> {
    let rows: Result<Vec<T>, DecodeError> = table::decode(payload, chunk.rows);
    let rows = rows.map_err(Wrong::Payload)?;
    out.extend(rows.into_iter().map(|row| (chunk.stream, item(row))));
    Ok(())
}
