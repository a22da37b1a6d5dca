//! A process on Loam: its heap is asked in its own memory, as for a recording (`formats/counters.md`), and a thread of the
//! heap trims. Nothing is stopped, and a tool that dies leaves at most a request behind.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use loam_counters::locate;
use loam_format::bytes::{u32_at, u64_at};
use loam_format::memory::Memory;
use loam_process::mappings;
use loam_process::process::{face, private_bytes, Identity, Pid};
use loam_process::remote::ProcessMemory;
use loam_process::trim::Outcome;

use crate::doctor;

/// Of the layout of the request, which the directory names.
const VERSION: u32 = 1;
/// Where the directory says it, and the addresses.
const VERSION_AT: usize = 100;
const REQUEST_AT: usize = 80;
const DETOURS_AT: usize = 88;
const DETOUR_AT: usize = 96;
const HEAD: usize = 128;
/// Where a request has the word of a trim.
const TRIM: u64 = 4;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const REFUSED: u32 = 3;

/// How long a process is waited for that does not call its heap, and one that trims. Chosen: a program that works calls its heap
/// many times a second, and 100 GiB take some ten seconds.
const SILENCE: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);

/// What a trim would give back.
pub fn predict(identity: &Identity) -> Result<Outcome> {
    let begun = Instant::now();
    let resident = resident(identity.key.pid);
    let could = doctor::trimmable(identity)?;
    Ok(Outcome {
        resident: (resident, resident),
        could,
        took: begun.elapsed(),
        ..Outcome::default()
    })
}

/// Asks, and waits for the end.
pub fn trim(identity: &Identity) -> Result<Outcome> {
    let begun = Instant::now();
    let pid = identity.key.pid;
    let before = resident(pid);
    let request = Request::find(pid)?;
    request.ask()?;
    loop {
        match request.state()? {
            IDLE => break,
            REFUSED => {
                request.write(IDLE)?;
                bail!("the system refuses its heap a thread");
            }
            ASKED if begun.elapsed() > SILENCE => {
                request.write(IDLE)?;
                bail!(
                    "it is on Loam, and has not called its heap for {} seconds, so that the heap could not answer; what became \
                     free when its use fell went back then",
                    SILENCE.as_secs()
                );
            }
            _ if begun.elapsed() > LONGEST => bail!("its heap still trims"),
            _ => thread::sleep(Duration::from_millis(2)),
        }
    }
    let after = resident(pid);
    Ok(Outcome {
        resident: (before, after),
        bytes: before.saturating_sub(after),
        took: begun.elapsed(),
        ..Outcome::default()
    })
}

fn resident(pid: Pid) -> u64 {
    private_bytes(face(pid)).unwrap_or(0)
}

/// The word by which a heap is asked.
struct Request {
    memory: ProcessMemory,
    word: u64,
    detours: u64,
    detour: u32,
}

impl Request {
    fn find(pid: Pid) -> Result<Request> {
        let mappings = mappings::read_files(pid)?;
        let directory = locate::find(pid, &mappings)?.context("its heap was not found")?;
        let memory = ProcessMemory::of(pid);
        let head = memory.bytes(directory, HEAD)?;
        if u32_at(&head, VERSION_AT) != Some(VERSION) {
            bail!("its libloam is of a version that can not be asked for a trim; `malloc_trim(0)` in the program does it");
        }
        let word = |at| u64_at(&head, at).unwrap_or(0);
        Ok(Request {
            word: word(REQUEST_AT) + TRIM,
            detours: word(DETOURS_AT),
            detour: u32_at(&head, DETOUR_AT).unwrap_or(0),
            memory,
        })
    }

    fn ask(&self) -> Result<()> {
        // Another tool may have asked: its answer is ours as well.
        if matches!(self.state()?, IDLE | REFUSED) {
            self.write(ASKED)?;
        }
        // The byte alone: the heap sets and clears bits of the other bytes at any time.
        let byte = u64::from(self.detour.trailing_zeros() / 8);
        let bit = self.detour.to_le_bytes()[byte as usize % 4];
        let written = self.memory.write(self.detours + byte, &[bit]);
        written.context("its heap can not be asked")
    }

    fn state(&self) -> Result<u32> {
        let bytes = self.memory.bytes(self.word, 4)?;
        u32_at(&bytes, 0).context("four bytes")
    }

    fn write(&self, state: u32) -> Result<()> {
        let written = self.memory.write(self.word, &state.to_le_bytes());
        written.context("its heap can not be asked")
    }
}
