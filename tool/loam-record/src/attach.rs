//! A process that runs already, on Loam: what is asked of its heap, in its own memory
//! (`formats/counters.md`).
//!
//! ```text
//! idle -> asked (us) -> starting -> recording -> stop asked (us) -> stopping -> idle
//!                    -> refused (and why)
//! ```
//!
//! The heap answers in the process's next call that takes a slow path, which is one of some
//! hundred. A process that does not call its heap does not answer, and there is nothing to record
//! of it.

use std::os::unix::fs::{chown, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use loam_counters::request::{Request, Version};
use loam_format::bytes::text;
use loam_format::memory::ReadError;
use loam_format::plain;
use loam_process::mappings;
use loam_process::process::{Identity, Pid, ProcessKey, Stat};
use loam_process::rings;

/// Of the layout of the request, which the directory names.
const VERSION: u32 = 1;
/// Where a request's texts lie, and how long they may be.
const RECORDER: (u64, usize) = (8, 1024);
const FOLDER: (u64, usize) = (8 + 1024, 512);
const WHY: (u64, usize) = (8 + 1024 + 512, 248);

/// How long the end of a recording is waited for whose tool was killed.
const FORMER: Duration = Duration::from_secs(10);

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const RECORDING: u32 = 3;
const STOP_ASKED: u32 = 4;
const REFUSED: u32 = 6;

/// How a request stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The process has not called its heap yet.
    Waiting,
    /// It begins.
    Starting,
    /// It records.
    Recording,
    /// It does not record, or no more.
    Idle,
    /// Why not.
    Refused(String),
    /// The process has ended, or has become another program.
    Gone,
}

/// A process whose heap can be asked.
#[derive(Debug)]
pub struct Attached {
    pid: Pid,
    started: u64,
    request: Request,
    is_gone: AtomicBool,
}

impl Attached {
    /// Finds the heap of a process; none if it is not Loam's.
    pub fn find(pid: Pid) -> Result<Option<Attached>> {
        let identity = Identity::sketch(pid)?;
        identity.require_memory()?;
        let ProcessKey { pid, started } = identity.key;
        let mappings = mappings::read_files(pid)
            .with_context(|| format!("process {pid} can not be recorded"))?;
        let request = match Request::find(pid, &mappings) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(None),
            Err(error) => bail!("process {pid} can not be recorded: {error}"),
        };
        if request.version(Version::Recording) != VERSION {
            bail!(
                "the libloam of process {pid} (version {}) can not be recorded by this loam while \
                 it runs; start the program anew with `loam record -- COMMAND`",
                request.library()
            );
        }
        Ok(Some(Attached {
            pid,
            started,
            request,
            is_gone: AtomicBool::new(false),
        }))
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the process, which may be another user's, into a folder that this process has made.
    pub fn let_in(&self, folder: &Path) -> Result<()> {
        let owner = std::fs::metadata(format!("/proc/{}", self.pid))?;
        if owner.uid() == std::fs::metadata(folder)?.uid() {
            return Ok(());
        }
        let own = |path: &Path| chown(path, Some(owner.uid()), Some(owner.gid()));
        let files = std::fs::read_dir(folder)?;
        files
            .flatten()
            .try_for_each(|file| own(&file.path()))
            .and_then(|()| own(folder))
            .with_context(|| format!("{} can not be given away", plain::path(folder)))
    }

    /// Fails unless the process sees the recorder and the rings where this process does, and counts
    /// processes as it does.
    pub fn require_same_places(&self, recorder: &Path, folder: &Path) -> Result<()> {
        let pid = self.pid;
        let numbers = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let is_elsewhere = numbers("self") != numbers(&pid.to_string());
        let place = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
        let is_hidden = |path: &&Path| {
            let inside = path.strip_prefix("/").unwrap_or(path);
            let seen = place(&Path::new(&format!("/proc/{pid}/root")).join(inside));
            seen.ok() != place(path).ok()
        };
        let hidden = [recorder, folder].into_iter().find(is_hidden);
        let why = match hidden {
            None if !is_elsewhere => return Ok(()),
            None => "counts processes in a namespace of its own".to_owned(),
            Some(path) => format!("does not see {}", plain::path(path)),
        };
        bail!(
            "process {pid} {why}, as in a container, so its heap can not be recorded from here. \
             Copy this file into it and record there: docker cp loam X:/tmp/loam && docker exec X \
             /tmp/loam record --pid 1; from here `loam record --pid {pid} --growth` works"
        );
    }

    /// Asks the heap to record into a folder.
    pub fn ask(&self, recorder: &Path, folder: &Path) -> Result<()> {
        let pid = self.pid;
        self.end_former()?;
        for (path, (at, room)) in [(recorder, RECORDER), (folder, FOLDER)] {
            let mut bytes = path.as_os_str().as_encoded_bytes().to_vec();
            bytes.push(0);
            if bytes.len() > room {
                bail!("the path {} is too long", plain::path(path));
            }
            self.write(at, &bytes)?;
        }
        self.write(0, &ASKED.to_le_bytes())?;
        let called = self.request.call();
        called.with_context(|| format!("process {pid} can not be asked"))
    }

    /// Ends the recording of a tool that is gone; one that is there is not disturbed.
    fn end_former(&self) -> Result<()> {
        let pid = self.pid;
        if matches!(self.state()?, IDLE | REFUSED | ASKED) {
            return Ok(());
        }
        let former = text(&self.request.bytes(FOLDER.0, FOLDER.1)?);
        if rings::is_drained(Path::new(&former)) {
            bail!("process {pid} is being recorded already");
        }
        let begun = Instant::now();
        while matches!(self.answer(), Answer::Recording | Answer::Starting) {
            self.ask_to_stop();
            if begun.elapsed() > FORMER {
                bail!(
                    "process {pid} was being recorded when `loam record` was killed, and has not \
                     called its heap since then; try again when it does"
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// How it stands.
    pub fn answer(&self) -> Answer {
        match self.state() {
            Ok(IDLE) => Answer::Idle,
            Ok(ASKED) => Answer::Waiting,
            Ok(RECORDING | STOP_ASKED) => Answer::Recording,
            Ok(REFUSED) => {
                let why = self.request.bytes(WHY.0, WHY.1);
                Answer::Refused(text(&why.unwrap_or_default()))
            }
            Ok(_) => Answer::Starting,
            Err(_) => Answer::Gone,
        }
    }

    /// Asks the heap to stop; an answer may not come.
    pub fn ask_to_stop(&self) {
        let next = match self.answer() {
            Answer::Waiting => IDLE,
            Answer::Recording => STOP_ASKED,
            _ => return,
        };
        // A process that is gone has stopped.
        let _ = self.write(0, &next.to_le_bytes());
    }

    /// Whether the process that was found has ended, or has become another program.
    pub fn is_gone(&self) -> bool {
        let is_there = || {
            let stat = Stat::read(self.pid);
            stat.is_ok_and(|stat| stat.started == self.started && !stat.is_dead())
                && self.request.is_there()
        };
        if !self.is_gone.load(Ordering::Relaxed) && !is_there() {
            self.is_gone.store(true, Ordering::Relaxed);
        }
        self.is_gone.load(Ordering::Relaxed)
    }

    fn state(&self) -> Result<u32, ReadError> {
        self.request.word(0)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let written = self.request.write(at, bytes);
        written.with_context(|| format!("process {} can not be asked", self.pid))
    }
}
