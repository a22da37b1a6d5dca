//! Reads a trace chunk by chunk. Sound chunks are handed out; damages are counted and described.
//!
//! ```text
//!   head sound?   payload there?   checksum right?
//!   no  -> Lost, the end           no -> Cut, the end        (a chunk's length is believed only if
//!   yes                            yes                        what stands behind it can be a head)
//!                                                  no -> Damage, next head sound? -> go on
//!                                                  yes -> the chunk
//! ```

use std::fmt;
use std::io::{self, Read};

use thiserror::Error;

use super::chunk::{ChunkHead, ChunkKind, CHUNK_HEAD, FILE_HEAD, MAGIC, VERSION};
use super::decode::DecodeError;

/// Why a file is not a trace that this version reads.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The input returned an error.
    #[error(
        "the trace can not be read at byte {offset}: {source}; copy the file to another disk, \
             or record again"
    )]
    Io {
        /// The offset.
        offset: u64,
        /// The reason.
        source: io::Error,
    },
    /// It does not begin like a trace.
    #[error(
        "this is no trace of `loam record`: it begins with {0}, and a trace begins with `LOAMTRC`; \
         `loam trace import` makes a trace of another program's recording"
    )]
    NoTrace(String),
    /// It is empty.
    #[error(
        "the file is empty: the recording was stopped before the program started; record again"
    )]
    Empty,
    /// It ends before or within the first chunk.
    #[error(
        "the file ends at byte {0}, before its header is complete; copy it again, or record \
         again"
    )]
    CutHead(u64),
    /// Its numbers have another byte order.
    #[error(
        "the trace has its bytes in the order of another machine; `loam record` writes the lowest \
         byte first everywhere, so another program has changed the file: copy it again, or record \
         again"
    )]
    ByteOrder,
    /// A later version wrote it.
    #[error(
        "the trace has format version {0}, and this tool reads version {VERSION}; read it with \
             the `loam` that recorded it or a later one"
    )]
    Newer(u16),
    /// The first chunk is not a readable header.
    #[error("the trace has no readable header ({0}); copy the file again, or record again")]
    NoHeader(String),
}

/// A part of the file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the chunk.
    pub offset: u64,
    /// Its kind, if it is known.
    pub kind: Option<ChunkKind>,
    /// Its rows, according to its head.
    pub rows: u32,
    /// What is wrong.
    pub what: Wrong,
}

/// What is wrong with a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// The file ends within it.
    Cut,
    /// Its checksum is wrong; the chunk is skipped.
    Checksum,
    /// Its head can not be one. The rest of the file is lost.
    Head,
    /// zstd can not decompress it.
    Compression,
    /// Its payload contradicts itself.
    Payload(DecodeError),
    /// Its JSON can not be read.
    Json(String),
    /// With it, the texts of all streams would take more than `MOST_DESCRIBED`.
    TooMuch,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.map_or("unknown", ChunkKind::name);
        let at = self.offset;
        match &self.what {
            Wrong::Cut => write!(
                f,
                "at byte {at}: the file ends within a chunk ({kind}); what comes before it is whole"
            ),
            Wrong::Checksum => write!(
                f,
                "at byte {at}: a chunk ({kind}, {} rows) has a wrong checksum and is passed over",
                self.rows
            ),
            Wrong::Head => write!(
                f,
                "at byte {at}: this is no chunk; it and what follows can not be read"
            ),
            Wrong::Compression => write!(
                f,
                "at byte {at}: a chunk ({kind}) can not be decompressed and is passed over"
            ),
            Wrong::Payload(error) => write!(f, "at byte {at}: a chunk ({kind}) is wrong: {error}"),
            Wrong::Json(error) => write!(f, "at byte {at}: a chunk ({kind}) is wrong: {error}"),
            Wrong::TooMuch => write!(
                f,
                "at byte {at}: a chunk ({kind}) is passed over: the descriptions of all processes \
                 would take more than {} of memory",
                crate::units::bytes(super::items::MOST_DESCRIBED as f64)
            ),
        }
    }
}

/// A sound chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Its offset in the file.
    pub offset: u64,
    /// Its kind.
    pub kind: ChunkKind,
    /// The stream that it belongs to.
    pub stream: u32,
    /// Its rows.
    pub rows: u32,
    /// Its bytes in the file.
    pub bytes: u64,
}

/// Reads chunks.
pub struct Reader<R> {
    input: R,
    offset: u64,
    ended: bool,
    stored: Vec<u8>,
    raw: Vec<u8>,
    decompressor: zstd::bulk::Decompressor<'static>,
    damage: Vec<Damage>,
    damaged: u64,
}

/// How many damages are kept; further ones are only counted.
const KEPT: usize = 1_000;

impl<R: Read> Reader<R> {
    /// Begins to read.
    pub fn new(mut input: R) -> Result<Reader<R>, ReadError> {
        let mut head = [0; FILE_HEAD];
        let got =
            fill(&mut input, &mut head).map_err(|source| ReadError::Io { offset: 0, source })?;
        if got == 0 {
            return Err(ReadError::Empty);
        }
        if got < FILE_HEAD && MAGIC.starts_with(&head[..got.min(8)]) {
            return Err(ReadError::CutHead(got as u64));
        }
        if got < FILE_HEAD || &head[..8] != MAGIC {
            let first = String::from_utf8_lossy(&head[..got.min(8)]).into_owned();
            return Err(ReadError::NoTrace(format!("{first:?}")));
        }
        let version = u16::from_le_bytes([head[8], head[9]]);
        if (1..=VERSION).contains(&version.swap_bytes()) {
            return Err(ReadError::ByteOrder);
        }
        if !(1..=VERSION).contains(&version) {
            return Err(ReadError::Newer(version));
        }
        Ok(Reader {
            input,
            offset: FILE_HEAD as u64,
            ended: false,
            stored: Vec::new(),
            raw: Vec::new(),
            decompressor: zstd::bulk::Decompressor::new()
                .map_err(|source| ReadError::Io { offset: 0, source })?,
            damage: Vec::new(),
            damaged: 0,
        })
    }

    /// The next sound chunk of a known kind, with its payload. `None`: the trace ends, or its
    /// readable part.
    pub fn next_chunk(&mut self) -> Result<Option<(Chunk, &[u8])>, ReadError> {
        while let Some((offset, head, bytes)) = self.next_head()? {
            if !self.payload(offset, &head)? {
                return Ok(None);
            }
            let kind = ChunkKind::of_number(head.kind);
            if ChunkHead::checksum_of(&bytes, &self.stored) != head.checksum {
                self.note(offset, Some(&head), Wrong::Checksum);
                continue;
            }
            // A kind of a later version is skipped.
            let Some(kind) = kind else { continue };
            self.raw.clear();
            self.raw.reserve(head.raw as usize);
            let raw = self
                .decompressor
                .decompress_to_buffer(&self.stored, &mut self.raw);
            if !raw.is_ok_and(|length| length == head.raw as usize) {
                self.note(offset, Some(&head), Wrong::Compression);
                continue;
            }
            let chunk = Chunk {
                offset,
                kind,
                stream: head.stream,
                rows: head.rows,
                bytes: CHUNK_HEAD as u64 + u64::from(head.stored),
            };
            return Ok(Some((chunk, &self.raw)));
        }
        Ok(None)
    }

    /// The damages so far; at most a thousand are kept.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// The number of damaged chunks so far.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Records that a chunk which was handed out contradicts itself.
    pub fn reject(&mut self, chunk: &Chunk, what: Wrong) {
        self.damaged += 1;
        if self.damage.len() < KEPT {
            self.damage.push(Damage {
                offset: chunk.offset,
                kind: Some(chunk.kind),
                rows: chunk.rows,
                what,
            });
        }
    }

    fn note(&mut self, offset: u64, head: Option<&ChunkHead>, what: Wrong) {
        self.damaged += 1;
        if self.damage.len() < KEPT {
            self.damage.push(Damage {
                offset,
                kind: head.and_then(|head| ChunkKind::of_number(head.kind)),
                rows: head.map_or(0, |head| head.rows),
                what,
            });
        }
    }

    /// The next sound head, and its offset.
    fn next_head(&mut self) -> Result<Option<(u64, ChunkHead, [u8; CHUNK_HEAD])>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        let offset = self.offset;
        let mut bytes = [0; CHUNK_HEAD];
        let got =
            fill(&mut self.input, &mut bytes).map_err(|source| ReadError::Io { offset, source })?;
        self.offset += got as u64;
        if got < CHUNK_HEAD {
            self.ended = true;
            if got > 0 {
                self.note(offset, None, Wrong::Cut);
            }
            return Ok(None);
        }
        let head = ChunkHead::parse(&bytes);
        if !head.is_sound() {
            self.ended = true;
            self.note(offset, None, Wrong::Head);
            return Ok(None);
        }
        Ok(Some((offset, head, bytes)))
    }

    /// Reads the payload; false if the file ends within it. Memory grows with the bytes that exist,
    /// not with the length in the head.
    fn payload(&mut self, offset: u64, head: &ChunkHead) -> Result<bool, ReadError> {
        self.stored.clear();
        let wanted = u64::from(head.stored);
        let got = (&mut self.input)
            .take(wanted)
            .read_to_end(&mut self.stored)
            .map_err(|source| ReadError::Io { offset, source })?;
        self.offset += got as u64;
        if (got as u64) < wanted {
            self.ended = true;
            self.note(offset, Some(head), Wrong::Cut);
            return Ok(false);
        }
        Ok(true)
    }
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
