//! Chunks, the frame of the file. A chunk's head names its kind, its stream and its lengths.
//!
//! ```text
//!  file    0      8        10       12       16
//!          | magic | version | 0      | 0      | chunk | chunk | ...
//!
//!  chunk   0      4        8        12       16       20          24
//!          | kind | stream | stored | raw    | rows   | checksum  | payload: `stored` bytes |
//! ```
//!
//! The checksum (CRC-32) covers the head's first 20 bytes and the payload. The payload is a zstd
//! frame of `raw` bytes.

use std::io;

/// The first bytes of a trace.
pub const MAGIC: &[u8; 8] = b"LOAMTRC\n";
/// The format's version. It changes if an older reader would misread the file; additions do not
/// change it.
pub const VERSION: u16 = 2;
/// That of a trace without weights: older readers read it.
pub const UNWEIGHTED: u16 = 1;
/// Bytes before the first chunk.
pub const FILE_HEAD: usize = 16;
/// Bytes of a chunk's head.
pub const CHUNK_HEAD: usize = 24;
/// The most bytes of a decompressed payload.
pub const MAX_RAW: usize = 16 << 20;
/// The most rows of a chunk.
pub const MAX_ROWS: u32 = 1 << 18;
/// A number from here on is not a kind. The list will never have so many kinds, and the bytes of a
/// text are such numbers.
pub const MAX_KIND: u32 = 1 << 16;
/// The compression level of zstd. It is low because the drainer runs beside the program.
const LEVEL: i32 = 1;

/// The content of a chunk. The numbers are those in the file and never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ChunkKind {
    /// The header, JSON.
    Header = 1,
    /// A process, JSON.
    Process = 2,
    /// Events.
    Events = 3,
    /// Samples.
    Samples = 4,
    /// Pages of live blocks.
    Touches = 5,
    /// The program's own marks, JSON.
    Marks = 6,
    /// Stacks of a sample of blocks.
    Stacks = 7,
    /// The frames of these stacks.
    Frames = 8,
    /// The end of a process, JSON.
    End = 9,
    /// The places of the chunks.
    Index = 10,
}

impl ChunkKind {
    /// All kinds.
    pub const ALL: [ChunkKind; 10] = [
        ChunkKind::Header,
        ChunkKind::Process,
        ChunkKind::Events,
        ChunkKind::Samples,
        ChunkKind::Touches,
        ChunkKind::Marks,
        ChunkKind::Stacks,
        ChunkKind::Frames,
        ChunkKind::End,
        ChunkKind::Index,
    ];

    /// The kind with this number.
    pub fn of_number(number: u32) -> Option<ChunkKind> {
        ChunkKind::ALL
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }

    /// The name in the declared list.
    pub fn name(self) -> &'static str {
        match self {
            ChunkKind::Header => "header",
            ChunkKind::Process => "process",
            ChunkKind::Events => "events",
            ChunkKind::Samples => "samples",
            ChunkKind::Touches => "touches",
            ChunkKind::Marks => "marks",
            ChunkKind::Stacks => "stacks",
            ChunkKind::Frames => "frames",
            ChunkKind::End => "end",
            ChunkKind::Index => "index",
        }
    }
}

/// The head of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHead {
    /// Its kind, as a number.
    pub kind: u32,
    /// The stream that it belongs to.
    pub stream: u32,
    /// Bytes of the payload.
    pub stored: u32,
    /// Bytes of the payload, decompressed.
    pub raw: u32,
    /// Number of rows.
    pub rows: u32,
    /// Checksum.
    pub checksum: u32,
}

impl ChunkHead {
    /// The head in these bytes.
    pub fn parse(bytes: &[u8; CHUNK_HEAD]) -> ChunkHead {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        ChunkHead {
            kind: word(0),
            stream: word(4),
            stored: word(8),
            raw: word(12),
            rows: word(16),
            checksum: word(20),
        }
    }

    /// Whether these numbers can be a chunk's head.
    pub fn is_sound(&self) -> bool {
        (1..MAX_KIND).contains(&self.kind)
            && self.raw as usize <= MAX_RAW
            && self.stored as usize <= zstd::zstd_safe::compress_bound(MAX_RAW)
            && self.rows <= MAX_ROWS
    }

    /// The checksum that the head and this payload should have.
    pub fn checksum_of(bytes: &[u8; CHUNK_HEAD], payload: &[u8]) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&bytes[..CHUNK_HEAD - 4]);
        crc.update(payload);
        crc.finalize()
    }
}

/// The first bytes of a file.
pub fn file_head(version: u16) -> [u8; FILE_HEAD] {
    let mut head = [0; FILE_HEAD];
    head[..8].copy_from_slice(MAGIC);
    head[8..10].copy_from_slice(&version.to_le_bytes());
    head
}

/// Compresses chunks. Its memory is used for many chunks.
pub struct Sealer {
    compressor: zstd::bulk::Compressor<'static>,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl Sealer {
    /// A compressor.
    pub fn new() -> io::Result<Sealer> {
        Ok(Sealer {
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            bytes: Vec::new(),
        })
    }

    /// Appends the chunk, in the form that the file has.
    pub fn seal(
        &mut self,
        kind: ChunkKind,
        stream: u32,
        rows: u32,
        raw: &[u8],
    ) -> io::Result<&[u8]> {
        let bound = CHUNK_HEAD + zstd::zstd_safe::compress_bound(raw.len());
        if self.bytes.len() < bound {
            self.bytes.resize(bound, 0);
        }
        let stored = self
            .compressor
            .compress_to_buffer(raw, &mut self.bytes[CHUNK_HEAD..])?;
        let end = CHUNK_HEAD + stored;
        let words = [kind as u32, stream, stored as u32, raw.len() as u32, rows];
        for (at, word) in words.into_iter().enumerate() {
            self.bytes[4 * at..][..4].copy_from_slice(&word.to_le_bytes());
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.bytes[..CHUNK_HEAD - 4]);
        crc.update(&self.bytes[CHUNK_HEAD..end]);
        self.bytes[CHUNK_HEAD - 4..CHUNK_HEAD].copy_from_slice(&crc.finalize().to_le_bytes());
        Ok(&self.bytes[..end])
    }
}
