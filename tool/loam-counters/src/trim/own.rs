//! A process on Loam: its heap is asked in its own memory, as for a recording
//! (`formats/counters.md`), and a thread of the heap trims. Nothing is stopped, and a tool that
//! dies leaves at most a request behind.

use std::thread;
use std::time::{Duration, Instant};

use loam_format::memory::ReadError;
use loam_process::mappings;
use loam_process::process::{resident_bytes, Identity, Pid};
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
    let resident = resident_bytes(identity.key.pid).unwrap_or(0);
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
    let before = resident_bytes(pid).unwrap_or(0);
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
                return Err(failure(silent(is_stopped(identity))));
            }
            _ if begun.elapsed() > LONGEST => return Err(failure("its heap still trims")),
            _ => thread::sleep(Duration::from_millis(2)),
        }
    }
    let after = resident_bytes(pid).unwrap_or(0);
    Ok(Outcome {
        resident: (before, after),
        bytes: before.saturating_sub(after),
        took: begun.elapsed(),
        ..Outcome::default()
    })
}

/// Why a heap did not answer.
fn silent(is_stopped: bool) -> String {
    let (what, again) = match is_stopped {
        true => ("is stopped".to_owned(), "goes on and calls"),
        false => (
            format!("has not called its heap for {} seconds", SILENCE.as_secs()),
            "calls",
        ),
    };
    format!(
        "it is on Loam, and {what}, so that the heap could not answer; what is still free stays \
         until the process {again} its heap again"
    )
}

fn is_stopped(identity: &Identity) -> bool {
    Identity::sketch(identity.key.pid).is_ok_and(|now| matches!(now.state, 'T' | 't'))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_silent_heap_it_is_said_that_free_pages_stay() {
        let idle = silent(false);
        assert!(
            idle.contains("has not called its heap for 5 seconds"),
            "{idle}"
        );
        assert!(
            idle.ends_with("stays until the process calls its heap again"),
            "{idle}"
        );
        let stopped = silent(true);
        assert!(stopped.contains("and is stopped, so that"), "{stopped}");
        assert!(
            stopped.ends_with("goes on and calls its heap again"),
            "{stopped}"
        );
    }
}
