//! A recording by rings: three threads take what the processes write, while the caller's thread
//! waits for the end and shows how far it has come.
//!
//! ```text
//! threads: drain (rings -> events) -+-> write (trace)      sample (/proc) -> write
//!          the caller's: signals, progress, the command's end
//! ```

use std::process::Child;
use std::sync::atomic::Ordering;
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, Result};
use nix::sys::signal::Signal;

use loam_format::trace::{Header, Statistics, WriteError};
use loam_format::units::Unit;
use loam_lab::traces::file::NewFile;
use loam_process::rings::Session;

use crate::attach::{Answer, Attached};
use crate::board::Board;
use crate::describe::Describer;
use crate::drain::Drainer;
use crate::unrecorded::Unrecorded;
use crate::{sample, start, write};

/// Messages that may wait for the writer; the drainer bounds the events in them.
const WAITING: usize = 1_024;
/// How often the caller's thread looks at signals and at the command.
pub const TICK: Duration = Duration::from_millis(20);

/// After so long without an answer it is said what is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// A process that ends loses its memory before it is seen to end.
const ENDING: Duration = Duration::from_millis(200);

/// What a recording asks of, and tells, the program that shows it.
pub trait Attendant {
    /// The signals that came since the last call.
    fn take_signals(&mut self) -> Vec<Signal>;
    /// Shows how far it has come.
    fn show(&mut self, board: &Board);
    /// Tells what is wrong.
    fn warn(&mut self, text: &str);
    /// Tells what happens as it should.
    fn tell(&mut self, text: &str);
}

/// What is recorded.
#[derive(Debug)]
pub enum Followed {
    /// A command.
    Started(Child),
    /// A process that runs already, for so long.
    Attached(Arc<Attached>, Option<Duration>),
}

/// A recording before its threads begin.
#[derive(Debug)]
pub struct Recording<'a> {
    /// The rings.
    pub session: Session,
    /// When it began.
    pub began: u64,
    /// What describes processes.
    pub describer: Describer,
    /// What sees programs that are not recorded.
    pub starts: Option<Unrecorded>,
    /// The trace.
    pub file: NewFile,
    /// Its header.
    pub header: &'a Header,
    /// Its largest size.
    pub max_size: Option<u64>,
    /// What the threads tell each other.
    pub board: &'a Arc<Board>,
}

/// What was recorded.
#[derive(Debug)]
pub struct Recorded {
    /// Processes that have events.
    pub streams: u32,
    /// What is in the file, or why it is not whole.
    pub written: Result<Statistics, WriteError>,
    /// The command, if it runs on.
    pub left: Option<Child>,
}

impl Recording<'_> {
    /// Records until the end. Nothing at all from a process that runs already is an error.
    pub fn follow(self, followed: Followed, attendant: &mut impl Attendant) -> Result<Recorded> {
        let (notes, taken) = mpsc::sync_channel(WAITING);
        let attached = match &followed {
            Followed::Attached(attached, _) => Some(attached.clone()),
            Followed::Started(_) => None,
        };
        let drainer = Drainer::new(
            self.session,
            self.began,
            self.describer,
            self.board.clone(),
            notes.clone(),
            attached.clone(),
            self.starts,
        );
        let (began, max_size, header, file) = (self.began, self.max_size, self.header, self.file);
        let (board, begun) = (self.board, Instant::now());
        let (refused, left, streams, written) = thread::scope(|scope| {
            let writer = scope.spawn(move || write::write(file, header, max_size, &taken, board));
            let sampler = scope.spawn(move || sample::sample(began, &notes, board));
            let drainer = scope.spawn(|| drainer.run());
            let (refused, left) = match followed {
                Followed::Started(child) => (None, attend(board, child, attendant)),
                Followed::Attached(attached, limit) => {
                    (attend_process(board, &attached, limit, attendant), None)
                }
            };
            let streams = drainer.join();
            // Its sender goes with it, so the writer ends.
            let _ = sampler.join();
            (refused, left, streams, writer.join())
        });
        let streams = streams.map_err(|_| anyhow!("the drainer failed; please report it"))?;
        let written = written.map_err(|_| anyhow!("the writer failed; please report it"))?;
        let waited = begun.elapsed();
        match (attached, streams) {
            (Some(attached), 0) => Err(nothing_of(&attached, refused, waited)),
            _ => Ok(Recorded {
                streams,
                written,
                left,
            }),
        }
    }
}

/// Until all is drained of a process that runs already. Returns why its heap does not record, if it
/// said so. The first signal ends the recording: the process is not ours.
fn attend_process(
    board: &Board,
    attached: &Attached,
    limit: Option<Duration>,
    attendant: &mut impl Attendant,
) -> Option<String> {
    // Since when the heap records or, before that, is waited for.
    let mut since = Instant::now();
    let (mut is_begun, mut is_told, mut gone) = (false, false, None);
    let mut refused = None;
    while !board.is_drained.load(Ordering::SeqCst) {
        let is_long = limit.is_some_and(|limit| since.elapsed() >= limit);
        if is_long || !attendant.take_signals().is_empty() {
            board.end_as_wanted();
        }
        match attached.answer() {
            // To write down the live blocks of a large heap takes a while.
            Answer::Starting => since = Instant::now(),
            Answer::Recording if !is_begun => {
                (is_begun, since) = (true, Instant::now());
                let pid = attached.pid();
                attendant.tell(&format!("loam: recording process {pid}; Ctrl-C ends it"));
            }
            Answer::Refused(why) => {
                refused.get_or_insert(why);
                board.end_as_wanted();
            }
            Answer::Idle if is_begun && !board.is_stopped() => {
                let pid = attached.pid();
                let reason = format!("the heap of process {pid} has stopped recording");
                board.end_recording(reason);
            }
            Answer::Waiting if !is_told && since.elapsed() > PATIENCE => {
                is_told = true;
                attendant.warn(&format!(
                    "process {} has not called its heap yet; recording begins when it does",
                    attached.pid()
                ));
            }
            _ => {}
        }
        if attached.is_gone() {
            let since: Instant = *gone.get_or_insert_with(Instant::now);
            board.is_over.store(true, Ordering::SeqCst);
            // It lives on as another program.
            if since.elapsed() > ENDING {
                board.end_as_wanted();
            }
        }
        for note in board.take_notes() {
            attendant.warn(&note);
        }
        attendant.show(board);
        thread::sleep(TICK);
    }
    refused
}

/// Until all is drained: takes signals, collects the command, shows how far it has come. Returns
/// the command, if it runs on.
fn attend(board: &Board, mut child: Child, attendant: &mut impl Attendant) -> Option<Child> {
    let mut signals = 0;
    while !board.is_drained.load(Ordering::SeqCst) {
        for signal in attendant.take_signals() {
            signals += 1;
            if signals == 1 {
                start::pass_on(&child, signal);
            } else {
                board.end_recording(format!("interrupted by {signal}; the program goes on"));
            }
        }
        if board.command().is_none() {
            if let Ok(Some(status)) = child.try_wait() {
                board.command_ended(child.id(), status);
            }
        }
        for note in board.take_notes() {
            attendant.warn(&note);
        }
        attendant.show(board);
        thread::sleep(TICK);
    }
    // It may have ended at the same moment.
    if let Ok(Some(status)) = child.try_wait() {
        board.command_ended(child.id(), status);
    }
    board.command().is_none().then_some(child)
}

/// Why nothing was recorded of a process.
fn nothing_of(attached: &Attached, refused: Option<String>, waited: Duration) -> anyhow::Error {
    let pid = attached.pid();
    match refused {
        Some(why) => anyhow!("process {pid} can not be recorded: {why}"),
        None if attached.is_gone() => {
            anyhow!("process {pid} ended before it called its heap; nothing was recorded")
        }
        None => anyhow!(
            "process {pid} did not call its heap in {}; nothing was recorded",
            Unit::Seconds.show(waited.as_secs_f64())
        ),
    }
}
