//! What other processes ask of a running heap, in its own memory: `formats/counters.md`, "A request
//! to record".
//!
//! The words of a request lie where the directory says. The heap looks at them in its next slow
//! call after the bit of its detours was set that sends calls there.

use loam_format::bytes::{text, u32_at, u64_at};
use loam_format::counters::directory::MAGIC;
use loam_format::memory::{Memory, ReadError};
use loam_process::mappings::Mapping;
use loam_process::process::Pid;
use loam_process::remote::ProcessMemory;

use crate::{is_of_peer, locate};

/// Where the directory has the version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Of one to record.
    Recording = 36,
    /// Of one to trim.
    Trim = 100,
}

const REQUEST_AT: usize = 80;
const DETOURS_AT: usize = 88;
const DETOUR_AT: usize = 96;
const HEAD: usize = 128;

/// The request of a heap.
#[derive(Debug)]
pub struct Request {
    memory: ProcessMemory,
    directory: u64,
    head: Vec<u8>,
    words: u64,
}

impl Request {
    /// That of a process's heap; none if the heap is not Loam's.
    pub fn find(pid: Pid, mappings: &[Mapping]) -> Result<Option<Request>, ReadError> {
        let Some(directory) = locate::find(pid, mappings)? else {
            return Ok(None);
        };
        let memory = ProcessMemory::of(pid);
        if is_of_peer(&memory, directory) {
            return Ok(None);
        }
        let head = memory.bytes(directory, HEAD)?;
        let words = u64_at(&head, REQUEST_AT).unwrap_or(0);
        Ok(Some(Request {
            memory,
            directory,
            head,
            words,
        }))
    }

    /// The version of that kind of request; 0 where the library knows none.
    pub fn version(&self, version: Version) -> u32 {
        u32_at(&self.head, version as usize).unwrap_or(0)
    }

    /// The library's version.
    pub fn library(&self) -> String {
        text(self.head.get(48..80).unwrap_or_default())
    }

    /// A word of the request.
    pub fn word(&self, at: u64) -> Result<u32, ReadError> {
        Ok(u32_at(&self.bytes(at, 4)?, 0).unwrap_or(0))
    }

    /// Bytes of the request.
    pub fn bytes(&self, at: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        self.memory.bytes(self.words + at, length)
    }

    /// Writes into the request.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), ReadError> {
        self.memory.write(self.words + at, bytes)
    }

    /// Has the next slow call look at the request.
    pub fn call(&self) -> Result<(), ReadError> {
        // The byte alone: the heap sets and clears bits of the other bytes at any time.
        let detour = u32_at(&self.head, DETOUR_AT).unwrap_or(0);
        let byte = u64::from(detour.trailing_zeros() / 8);
        let bit = detour.to_le_bytes()[byte as usize % 4];
        let detours = u64_at(&self.head, DETOURS_AT).unwrap_or(0);
        self.memory.write(detours + byte, &[bit])
    }

    /// Whether the heap's directory still lies where it was found.
    pub fn is_there(&self) -> bool {
        match self.memory.bytes(self.directory, MAGIC.len()) {
            Ok(bytes) => bytes == MAGIC,
            Err(ReadError::Denied(_)) => true,
            Err(_) => false,
        }
    }
}
