//! What is looked at: a process that runs, or a core file. Both are read through one interface.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use loam_format::memory::{Memory, Piece, ReadError};
use loam_process::allocator;
use loam_process::glibc::layout::Version;
use loam_process::glibc::{self, Residency};
use loam_process::mappings::{self, Mapping};
use loam_process::pagemap::{Pagemap, Whereabouts};
use loam_process::process::{Pid, ProcessError};
use loam_process::remote::ProcessMemory;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// A thread's registers, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thread {
    /// The system's number of it.
    pub id: u64,
    /// The stack pointer; none while the thread runs.
    pub stack: Option<u64>,
    /// Other registers. A sleeping thread's are those of its system call.
    pub registers: Vec<u64>,
    /// Whether all registers are known.
    pub is_whole: bool,
}

/// A process or a core.
pub trait Target: Sync {
    /// Its memory.
    fn memory(&self) -> &(dyn Memory + Sync);
    /// Its mappings, in the order of their addresses.
    fn mappings(&self) -> &[Mapping];
    /// Parts of a range that hold something. What holds nothing is zero or a file's, and is not
    /// read, because a read would give the process pages.
    fn present(&self, start: u64, end: u64) -> Vec<(u64, u64)>;
    /// Its threads.
    fn threads(&self) -> Vec<Thread>;
    /// The file of a mapping, as the process sees it.
    fn file(&self, mapping: &Mapping) -> Option<File>;
    /// The version of its C library.
    fn glibc(&self) -> Option<Version>;
    /// What tells which pages of the heap hold something.
    fn residency(&self) -> Residency;
    /// Whether it is still the same after a look: a core is.
    fn is_still(&self) -> bool;
    /// The allocator, by its name.
    fn allocator(&self) -> Option<String> {
        allocator::by_library(self.mappings()).map(|one| one.name)
    }
    /// Whether a part of it is missing that it once had: a core may be cut off.
    fn is_cut(&self) -> bool {
        false
    }
    /// What can not be seen, in words.
    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The memory of a target, for code that is generic over memories.
pub struct Bytes<'a>(pub &'a dyn Target);

impl Memory for Bytes<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.0.memory().read(address, buffer)
    }

    fn gather(&self, pieces: &[Piece], buffer: &mut [u8]) -> Result<(), ReadError> {
        self.0.memory().gather(pieces, buffer)
    }
}

impl dyn Target + '_ {
    /// Fills the buffer with what can be read; the rest is zero. The answer is how many bytes could
    /// not be read.
    pub fn fill(&self, address: u64, buffer: &mut [u8]) -> u64 {
        let end = address.saturating_add(buffer.len() as u64);
        let mut unread = 0;
        let mut done = 0;
        for (start, behind) in self.present(address, end) {
            let (start, behind) = (start.max(address), behind.min(end));
            if start >= behind {
                continue;
            }
            let place = (start - address) as usize..(behind - address) as usize;
            buffer[done.min(place.start)..place.start].fill(0);
            done = place.end;
            if self
                .memory()
                .read(start, &mut buffer[place.clone()])
                .is_ok()
            {
                continue;
            }
            // A page of it is gone.
            let mut at = start;
            while at < behind {
                let next = ((at / PAGE + 1) * PAGE).min(behind);
                let piece = (at - address) as usize..(next - address) as usize;
                if self.memory().read(at, &mut buffer[piece.clone()]).is_err() {
                    buffer[piece].fill(0);
                    unread += next - at;
                }
                at = next;
            }
        }
        buffer[done..].fill(0);
        unread
    }

    /// A word.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory().read(address, &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// A text that ends with a zero, of at most so many bytes, if all of it can be printed.
    pub fn text(&self, address: u64, most: usize) -> Option<String> {
        let mut bytes = Vec::new();
        while bytes.len() < most {
            let at = address.checked_add(bytes.len() as u64)?;
            // To the end of its 256 bytes, so that no page is entered without need.
            let length = (256 - at % 256) as usize;
            let piece = self.memory().bytes(at, length).ok()?;
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    bytes.extend_from_slice(&piece[..end]);
                    let text = String::from_utf8(bytes).ok()?;
                    return text.chars().all(|one| !one.is_control()).then_some(text);
                }
                None => bytes.extend(piece),
            }
        }
        None
    }
}

/// A process that runs.
pub struct Live {
    pid: Pid,
    memory: ProcessMemory,
    mappings: Vec<Mapping>,
    pages: Option<Pagemap>,
    glibc: Option<Version>,
}

impl Live {
    /// Opens a process.
    pub fn open(pid: Pid) -> Result<Live, ProcessError> {
        let mappings = mappings::read_names(pid)?;
        let mut live = Live {
            pid,
            memory: ProcessMemory::of(pid),
            pages: Pagemap::open(pid).ok(),
            glibc: None,
            mappings,
        };
        let file = glibc::file_of(&live.mappings);
        live.glibc = file.and_then(|file| glibc::layout::version_of(pid, file));
        Ok(live)
    }

    fn registers(&self, id: u64) -> io::Result<Thread> {
        let path = format!("/proc/{}/task/{id}/syscall", self.pid);
        Ok(parse_syscall(id, &std::fs::read_to_string(path)?))
    }
}

/// The line of `/proc/PID/task/TID/syscall`: number, six arguments, stack pointer, program counter;
/// or `-1`, stack pointer, program counter; or `running`.
fn parse_syscall(id: u64, line: &str) -> Thread {
    let words: Vec<u64> = line
        .split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix("0x"))
        .filter_map(|word| u64::from_str_radix(word, 16).ok())
        .collect();
    let stack = words.len().checked_sub(2).map(|place| words[place]);
    Thread {
        id,
        stack,
        registers: words,
        is_whole: false,
    }
}

impl Target for Live {
    fn memory(&self) -> &(dyn Memory + Sync) {
        &self.memory
    }

    fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    fn present(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let Some(pages) = &self.pages else {
            return vec![(start, end)];
        };
        let first = start / PAGE;
        let count = end.div_ceil(PAGE).saturating_sub(first);
        let mut found: Vec<(u64, u64)> = Vec::new();
        let mut page = first;
        let told = pages.find(first, count, |whereabouts| {
            if whereabouts != Whereabouts::Nowhere {
                match found.last_mut() {
                    Some((_, end)) if *end == page * PAGE => *end += PAGE,
                    _ => found.push((page * PAGE, (page + 1) * PAGE)),
                }
            }
            page += 1;
        });
        if told.is_err() {
            return vec![(start, end)];
        }
        found
    }

    fn threads(&self) -> Vec<Thread> {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return Vec::new();
        };
        let ids = tasks.filter_map(|one| one.ok()?.file_name().to_str()?.parse().ok());
        ids.map(|id| {
            self.registers(id).unwrap_or(Thread {
                id,
                ..Thread::default()
            })
        })
        .collect()
    }

    fn file(&self, mapping: &Mapping) -> Option<File> {
        let pid = self.pid;
        let exact = format!(
            "/proc/{pid}/map_files/{:x}-{:x}",
            mapping.start, mapping.end
        );
        let name = mapping.name.trim_start_matches('/');
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        let seen = PathBuf::from(format!("/proc/{pid}/root")).join(name);
        loam_process::apart::step_to_file(&seen);
        File::open(exact).or_else(|_| File::open(seen)).ok()
    }

    fn glibc(&self) -> Option<Version> {
        self.glibc
    }

    fn allocator(&self) -> Option<String> {
        allocator::of_process(self.pid, &self.mappings, false).map(|one| one.name)
    }

    fn residency(&self) -> Residency {
        Residency::open(self.pid)
    }

    fn is_still(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_thread_tells_its_stack_pointer() {
        let line = "230 0x0 0x0 0x7ffc1 0x7ffc2 0x0 0x5 0x7ffcaa00 0x7f1234\n";
        let thread = parse_syscall(7, line);
        assert_eq!(thread.stack, Some(0x7ffc_aa00));
        assert!(thread.registers.contains(&0x7ffc1));
        assert_eq!(parse_syscall(7, "-1 0x10 0x20\n").stack, Some(0x10));
        assert_eq!(parse_syscall(7, "running\n").stack, None);
    }

    #[test]
    fn what_holds_nothing_is_not_read() {
        let live = Live::open(std::process::id() as Pid).unwrap();
        let mut room: Vec<u8> = Vec::with_capacity(64 << 20);
        room.push(7);
        let start = room.as_ptr() as u64;
        let held: u64 = live
            .present(start, start + (64 << 20))
            .iter()
            .map(|(start, end)| end - start)
            .sum();
        assert!((PAGE..=32 << 20).contains(&held), "{held}");
        let mut bytes = [1; 32];
        assert_eq!((&live as &dyn Target).fill(start, &mut bytes), 0);
        assert_eq!(bytes[0], 7);
    }
}
