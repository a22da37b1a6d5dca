//! Images: copies of the memory with the counters, written by the program itself. They serve tests,
//! and readers that may not look into the process.

use thiserror::Error;

use crate::bytes::{u32_at, u64_at};
use crate::memory::{Memory, ReadError};

const MAGIC: &[u8; 8] = b"LOAMIMAG";
const VERSION: u32 = 1;
const HEADER: usize = 64;

/// Why an image can not be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImageError {
    /// The file is not an image.
    #[error("the file is no image of counters")]
    NotAnImage,
    /// The image has a later format.
    #[error(
        "the image has format {found}, and this loam reads format {VERSION}; use a newer loam"
    )]
    Newer {
        /// The version of that format.
        found: u32,
    },
    /// The image contradicts itself.
    #[error("the image is damaged: {0}")]
    Damaged(&'static str),
}

/// A piece of memory: its address, and the place of its bytes in the file.
#[derive(Debug, Clone, Copy)]
struct Piece {
    address: u64,
    length: u64,
    offset: u64,
}

/// An image in memory.
#[derive(Debug, Clone)]
pub struct Image {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// The address of the directory.
    pub block: u64,
    /// The process that it is a copy of.
    pub pid: i32,
    /// When it was taken, in nanoseconds since 1970.
    pub taken: u64,
}

impl Image {
    /// Whether the bytes of a file show that the file is being written.
    pub fn is_being_written(bytes: &[u8]) -> bool {
        u64_at(bytes, 16).is_some_and(|generation| generation % 2 == 1)
    }

    /// The bytes at the beginning of a file that change when the file is written again.
    pub fn head(bytes: &[u8]) -> Option<&[u8]> {
        bytes.get(..HEADER)
    }

    /// Makes an image from the bytes of a file.
    pub fn of(bytes: Vec<u8>) -> Result<Image, ImageError> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(ImageError::NotAnImage);
        }
        let number = |offset| u32_at(&bytes, offset).ok_or(ImageError::Damaged("it is too short"));
        let long = |offset| u64_at(&bytes, offset).ok_or(ImageError::Damaged("it is too short"));
        let version = number(8)?;
        if version > VERSION {
            return Err(ImageError::Newer { found: version });
        }
        let (first, count, size) = (
            number(12)? as usize,
            number(48)? as usize,
            number(52)? as usize,
        );
        let list = count
            .checked_mul(size)
            .and_then(|length| bytes.get(first..first.checked_add(length)?))
            .filter(|_| size >= 24)
            .ok_or(ImageError::Damaged("it is shorter than its list of pieces"))?;
        let pieces = list.chunks_exact(size).filter_map(|entry| {
            Some(Piece {
                address: u64_at(entry, 0)?,
                length: u64_at(entry, 8)?,
                offset: u64_at(entry, 16)?,
            })
        });
        let mut pieces: Vec<Piece> = pieces.collect();
        pieces.sort_by_key(|piece| piece.address);
        let (block, pid, taken) = (long(24)?, long(32)?, long(40)?);
        Ok(Image {
            pieces,
            block,
            pid: i32::try_from(pid).unwrap_or(0),
            taken,
            bytes,
        })
    }
}

impl Memory for Image {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let unmapped = ReadError::Unmapped {
            address,
            length: buffer.len(),
        };
        // A record may extend over several adjacent pieces.
        let mut done = 0;
        while done < buffer.len() {
            let next = address
                .checked_add(done as u64)
                .ok_or_else(|| unmapped.clone())?;
            let bytes = self.at(next).filter(|bytes| !bytes.is_empty());
            let bytes = bytes.ok_or_else(|| unmapped.clone())?;
            let length = bytes.len().min(buffer.len() - done);
            buffer[done..done + length].copy_from_slice(&bytes[..length]);
            done += length;
        }
        Ok(())
    }
}

impl Image {
    /// The image's bytes from the address on, up to the end of their piece.
    fn at(&self, address: u64) -> Option<&[u8]> {
        let behind = self
            .pieces
            .partition_point(|piece| piece.address <= address);
        // Pieces do not overlap, so only the last piece that begins at or before the address can
        // hold it.
        let piece = self.pieces[..behind].last()?;
        let into = address - piece.address;
        let left = usize::try_from(piece.length.checked_sub(into)?).ok()?;
        let start = usize::try_from(piece.offset.checked_add(into)?).ok()?;
        self.bytes.get(start..start.checked_add(left)?)
    }
}
