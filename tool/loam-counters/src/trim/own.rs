//! A process on Loam: its heap is asked in its own memory, as for a recording
//! (`formats/counters.md`), and a thread of the heap trims. Nothing is stopped, and a tool that
//! dies leaves at most a request behind.

use std::thread;
use std::time::{Duration, Instant};

use loam_format::memory::ReadError;
use loam_process::mappings;
use loam_process::process::{private_bytes, Identity, Pid};
use loam_process::trim::Outcome;

use super::{failure, Reason};
use crate::diagnosis::Examined;
use crate::request::{Request, Version};

/// Of the layout of the request, which the directory names.
const VERSION: u32 = 1;
/// Where a request has the word of a trim.
const TRIM: u64 = 4;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const REFUSED: u32 = 3;

/// How long a process is waited for that does not call its heap, and one that trims. Chosen: a
/// program that works calls its heap many times a second, and 100 GiB take some ten seconds.
const SILENCE: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);

/// What a trim would give back.
pub fn predict(identity: &Identity) -> Result<Outcome, Reason> {
    let begun = Instant::now();
    let resident = resident(identity.key.pid);
    let evidence = Examined::of(identity).map_err(failure)?.evidence;
    let heap = evidence.heap.map_err(Reason::Failure)?;
    Ok(Outcome {
        resident: (resident, resident),
        could: heap.trim.from_outside(),
        took: begun.elapsed(),
        ..Outcome::default()
    })
}

/// Asks, and waits for the end.
pub fn trim(identity: &Identity) -> Result<Outcome, Reason> {
    let begun = Instant::now();
    let pid = identity.key.pid;
    let before = resident(pid);
    let request = Word::find(pid)?;
    request.ask()?;
    loop {
        match request.state()? {
            IDLE => break,
            REFUSED => {
                request.write(IDLE)?;
                return Err(failure("the system refuses its heap a thread"));
            }
            ASKED if begun.elapsed() > SILENCE => {
                request.write(IDLE)?;
                return Err(failure(format!(
                    "it is on Loam, and has not called its heap for {} seconds, so that the heap \
                     could not answer; what became free when its use fell went back then",
                    SILENCE.as_secs()
                )));
            }
            _ if begun.elapsed() > LONGEST => return Err(failure("its heap still trims")),
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
    private_bytes(pid).unwrap_or(0)
}

/// The word by which a heap is asked.
struct Word(Request);

impl Word {
    fn find(pid: Pid) -> Result<Word, Reason> {
        let mappings = mappings::read_files(pid).map_err(failure)?;
        let request = Request::find(pid, &mappings).map_err(failure)?;
        let request = request.ok_or_else(|| failure("its heap was not found"))?;
        if request.version(Version::Trim) != VERSION {
            return Err(failure(
                "its libloam is of a version that can not be asked for a trim; `malloc_trim(0)` \
                 in the program does it",
            ));
        }
        Ok(Word(request))
    }

    fn ask(&self) -> Result<(), Reason> {
        // Another tool may have asked: its answer is ours as well.
        if matches!(self.state()?, IDLE | REFUSED) {
            self.write(ASKED)?;
        }
        self.0.call().map_err(not_asked)
    }

    fn state(&self) -> Result<u32, Reason> {
        self.0.word(TRIM).map_err(failure)
    }

    fn write(&self, state: u32) -> Result<(), Reason> {
        let written = self.0.write(TRIM, &state.to_le_bytes());
        written.map_err(not_asked)
    }
}

fn not_asked(error: ReadError) -> Reason {
    failure(format!("its heap can not be asked: {error}"))
}
