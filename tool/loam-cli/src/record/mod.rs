//! `loam record`: start a program with the recorder in front of its allocator, and write down what it does.
//!
//! ```text
//! command -> inspect as `run` does -> open the file -> folder for rings -> start, with
//!            LD_PRELOAD=libloam-record.so[:the allocator][:what was there] LOAM_RECORD=folder
//!
//! threads: drain (rings -> events) -+-> write (trace)      sample (/proc) -> write
//!          main: signals, progress, the command's end
//! ```
//!
//! The program runs in this process's group, so a terminal's Ctrl-C reaches it as without us; signals that reach only this
//! process are passed on. Whatever goes wrong here, the program goes on: the recorder switches itself off.

pub mod args;
mod blocks;
mod board;
mod describe;
mod drain;
mod progress;
mod sample;
mod stacks;
mod start;
mod target;
mod write;

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::Ordering;
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use loam_format::trace::{Header, Statistics, WriteError};
use loam_lab::allocators::{discover, spec};
use loam_lab::machine;
use loam_process::layout::Layout;
use loam_process::rings::{now, Session};

use crate::ending::{Ending, Watch};
use crate::exit::{Coded, Exit};
use crate::output;
use crate::run;
use args::RecordOptions;
use board::Board;
use describe::Describer;
use drain::Drainer;
use progress::Progress;
use start::Start;
use target::Target;

/// Messages that may wait for the writer; the drainer bounds the events in them.
const WAITING: usize = 1_024;
/// How often the main thread looks at signals and at the command.
const TICK: Duration = Duration::from_millis(20);

/// Runs the verb.
pub fn run(options: &RecordOptions, layout: &Layout) -> Result<Exit> {
    let recorder = start::find_recorder(layout)?;
    // To look for allocators takes a third of a second: only where one was named.
    let available = options.allocator.as_ref().map(|_| discover::all(layout));
    let allocator = match (&options.allocator, &available) {
        (Some(name), Some(available)) => spec::pick(std::slice::from_ref(name), available)?.pop(),
        _ => None,
    };
    let program = run::resolve_command(&options.program)?;
    run::require_preloadable(
        &program,
        &options.arguments,
        &recorder,
        options.force,
        "be recorded",
        "loam record",
    )?;
    let target = Target::open(options)?;
    let rings = start::rings_folder(&target.folder())?;
    let began = now();
    let session = Session::begin(rings.path(), options.drops_when_full, options.stack_bytes)
        .with_context(|| {
            let shown = output::path(rings.path());
            format!("the recording can not begin: {shown} can not be written")
        })?;
    let words = start::words(options);
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let header = Header {
        stack_bytes: options.stack_bytes,
        ..describe::header(&machine::current(), &words, started)
    };

    let start = Start {
        options,
        program: &program,
        recorder: &recorder,
        allocator: allocator.as_ref(),
        rings: rings.path(),
    };
    let child = start.spawn()?;
    // After the start: the program inherits which signals are blocked, and the watch blocks them.
    let ending = Watch::each_signal().begin()?;
    let (file, path) = match target.settle(&name_of(&options.program), child.id()) {
        Ok(settled) => settled,
        Err(error) => {
            // The program runs: it goes on without us.
            let _ = session.end();
            output::print_error(&error);
            return follow_unrecorded(child);
        }
    };
    let recording = Recording {
        board: Arc::new(Board::default()),
        ending,
        path,
    };
    let describer = Describer::new(
        layout,
        available,
        child.id(),
        &words,
        header.environment.clone(),
    );
    recording.follow(
        child,
        file,
        &header,
        options.max_size,
        (session, began, recorder.clone(), describer),
    )
}

fn name_of(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    name.to_string_lossy().into_owned()
}

fn follow_unrecorded(mut child: Child) -> Result<Exit> {
    let status = child.wait()?;
    Ok(match exit_of(status) {
        Exit::Done => Exit::Error,
        other => other,
    })
}

/// The program's own exit, as a shell would report it.
fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(0), _) => Exit::Done,
        (Some(code), _) => Exit::Program(code as u8),
        (None, Some(signal)) => Exit::Signal(signal as u8),
        (None, None) => Exit::Error,
    }
}

struct Recording {
    board: Arc<Board>,
    ending: Ending,
    path: PathBuf,
}

impl Recording {
    fn follow(
        self,
        child: Child,
        file: File,
        header: &Header,
        max_size: Option<u64>,
        (session, began, recorder, describer): (Session, u64, PathBuf, Describer),
    ) -> Result<Exit> {
        let (notes, taken) = mpsc::sync_channel(WAITING);
        let drainer = Drainer::new(
            session,
            began,
            recorder,
            describer,
            self.board.clone(),
            notes.clone(),
        );
        let board = &self.board;
        let (streams, written) = thread::scope(|scope| {
            let writer = scope.spawn(move || write::write(file, header, max_size, &taken, board));
            let sampler = scope.spawn(move || sample::sample(began, &notes, board));
            let drainer = scope.spawn(|| drainer.run());
            self.attend(child);
            let streams = drainer.join();
            // Its sender goes with it, so the writer ends.
            let _ = sampler.join();
            (streams, writer.join())
        });
        let streams =
            streams.map_err(|_| anyhow::anyhow!("the drainer failed; please report it"))?;
        let written =
            written.map_err(|_| anyhow::anyhow!("the writer failed; please report it"))?;
        self.report(streams, written)
    }

    /// Until all is drained: takes signals, collects the command, shows how far it has come.
    fn attend(&self, mut child: Child) {
        let mut progress = Progress::begin();
        let mut signals = 0;
        while !self.board.is_drained.load(Ordering::SeqCst) {
            for signal in self.ending.take_signals() {
                signals += 1;
                if signals == 1 {
                    start::pass_on(&child, signal);
                } else {
                    self.board
                        .end_recording(format!("interrupted by {signal}; the program goes on"));
                }
            }
            if self.board.command().is_none() {
                if let Ok(Some(status)) = child.try_wait() {
                    self.board.command_ended(child.id(), status);
                }
            }
            for note in self.board.take_notes() {
                progress.say(&note);
            }
            progress.show(&self.board);
            thread::sleep(TICK);
        }
        // It may have ended at the same moment.
        if let Ok(Some(status)) = child.try_wait() {
            self.board.command_ended(child.id(), status);
        }
        progress.end();
    }

    fn report(&self, streams: u32, written: Result<Statistics, WriteError>) -> Result<Exit> {
        for note in self.board.take_notes() {
            output::print_warning(&note);
        }
        let shown = output::path(&self.path);
        let own = match self.board.command() {
            Some((_, status)) => exit_of(status),
            // The second signal.
            None => self
                .ending
                .reason()
                .map_or(Exit::Done, |reason| reason.exit()),
        };
        let statistics = match written {
            Ok(statistics) => statistics,
            Err(error) => {
                let bytes = self.board.bytes.load(Ordering::Relaxed);
                let message = format!(
                    "{shown}: {error}; recording ended there, and the program went on. The first {} of the file can be read",
                    loam_format::units::bytes(bytes as f64)
                );
                let exit = match own {
                    Exit::Done => Exit::Error,
                    other => other,
                };
                return Err(Coded { exit, message }.into());
            }
        };
        if streams == 0 {
            let message = format!(
                "{shown} holds no events: no process loaded the recorder. Is the program static, or does it start others \
                 with an environment of their own?"
            );
            return Err(Coded {
                exit: Exit::Error,
                message,
            }
            .into());
        }
        if let Some(reason) = self.board.reason() {
            output::print_warning(&format!("recording ended early: {reason}"));
        }
        output::say(&summary(
            &shown,
            &statistics,
            self.board.dropped.load(Ordering::Relaxed),
        ));
        Ok(own)
    }
}

fn summary(shown: &str, statistics: &Statistics, dropped: u64) -> String {
    let events = statistics.events;
    let each = match events {
        0 => String::new(),
        _ => format!(
            " ({:.2} bytes an event)",
            statistics.event_bytes as f64 / events as f64
        ),
    };
    let lost = match dropped {
        0 => "none dropped".to_owned(),
        dropped => format!("{dropped} dropped"),
    };
    format!(
        "loam: {events} events in {}{each}, {lost}: {shown}; next: loam replay {}",
        loam_format::units::bytes(statistics.file_bytes as f64),
        loam_format::plain::word(shown)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_what_there_is_and_what_comes_next() {
        let statistics = Statistics {
            events: 1_000,
            file_bytes: 4_096,
            event_bytes: 3_500,
            ..Statistics::default()
        };
        assert_eq!(
            summary("a b.trace", &statistics, 3),
            "loam: 1000 events in 4.00 KiB (3.50 bytes an event), 3 dropped: a b.trace; next: loam replay 'a b.trace'"
        );
    }
}
