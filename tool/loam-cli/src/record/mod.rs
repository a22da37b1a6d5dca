//! `loam record`: start a program with the recorder in front of its allocator, and write down what
//! it does.
//!
//! ```text
//! command -> inspect as `run` does -> open the file -> folder for rings -> start, with
//!            LD_PRELOAD=libloam-record.so[:the allocator][:what was there] LOAM_RECORD=folder
//! process -> find its heap -> open the file -> folder for rings -> ask the heap (attach)
//!         -> on another allocator: probes, or growth (page faults), in one thread, and no rings
//!
//! threads: drain (rings -> events) -+-> write (trace)      sample (/proc) -> write
//!          main: signals, progress, the command's end
//! ```
//!
//! The program runs in this process's group, so a terminal's Ctrl-C reaches it as without us;
//! signals that reach only this process are passed on. Whatever goes wrong here, the program goes
//! on: the recorder switches itself off.

pub mod args;
mod ends;
pub mod growth;
mod probes;
mod progress;
mod rest;
mod start;
mod target;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::Ordering;
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{bail, Context, Result};

use loam_format::trace::{Header, Statistics, WriteError};
use loam_lab::allocators::{discover, spec};
use loam_lab::machine;
use loam_process::layout::Layout;
use loam_process::parts::Libc;
use loam_process::perf::Starts;
use loam_process::process::Pid;
use loam_process::rings::{now, Session};
use loam_record::attach::{Answer, Attached};
use loam_record::board::Board;
use loam_record::cost::NOTABLE;
use loam_record::describe::Describer;
use loam_record::drain::Drainer;
use loam_record::unrecorded::Unrecorded;
use loam_record::{describe, sample, write};

use crate::ending::{Ending, Watch};
use crate::exit::{Coded, Exit};
use crate::output;
use crate::run;
use args::{RecordOptions, Subject, Way, COST};
use ends::Ends;
use progress::Progress;
use start::Start;
use target::Target;

/// Messages that may wait for the writer; the drainer bounds the events in them.
const WAITING: usize = 1_024;
/// How often the main thread looks at signals and at the command.
const TICK: Duration = Duration::from_millis(20);

/// After so long without an answer it is said what is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// A process that ends loses its memory before it is seen to end.
const ENDING: Duration = Duration::from_millis(200);

/// Runs the verb.
pub fn run(options: &RecordOptions, layout: &Layout) -> Result<Exit> {
    match &options.subject {
        Subject::Command { program, arguments } => record(options, program, arguments, layout),
        Subject::Process { pid, way, limit } => match way {
            Way::Growth => growth::record(options, *pid, &mut Ends::of_process(*limit)?),
            Way::Probes(cost) => {
                if options.stack_bytes > 0 || options.drops_when_full {
                    bail!(
                        "--cost sets probes in a running process, which have stacks and no rings: \
                         leave out --stacks and --when-full"
                    );
                }
                probes::record(options, *pid, &mut Ends::of_process(*limit)?, *cost)
            }
            Way::Best => match Attached::find(*pid)? {
                Some(attached) => record_process(options, attached, *limit, layout),
                None => sampled(options, *pid, &mut Ends::of_process(*limit)?),
            },
        },
    }
}

/// Samples a process by probes or, where these are refused, by the growth of its heap.
fn sampled(options: &RecordOptions, pid: Pid, ends: &mut Ends) -> Result<Exit> {
    match probes::refused(pid)? {
        None => probes::record(options, pid, ends, COST),
        Some(why) => {
            output::say(&format!(
                "loam: {why}; the growth of its heap is recorded instead (--growth)"
            ));
            growth::record(options, pid, ends)
        }
    }
}

fn record(
    options: &RecordOptions,
    named: &OsStr,
    arguments: &[OsString],
    layout: &Layout,
) -> Result<Exit> {
    let program = run::resolve_command(named)?;
    let layout = &run::layout_for(layout, &program, arguments)?;
    let recorder = start::find_recorder(layout)?;
    let allocator = match &options.allocator {
        Some(name) => {
            // Without their versions, which take a tenth of a second to learn.
            let available = discover::unversioned(layout);
            spec::pick(std::slice::from_ref(name), &available)?.pop()
        }
        None => None,
    };
    run::require_preloadable(
        &program,
        arguments,
        &recorder,
        options.force,
        "be recorded",
        "loam record",
    )?;
    if let (Some(_), Some(whole), false) = (options.most, &options.output, options.overwrite) {
        let sample = rest::path_beside(whole);
        if sample.exists() {
            let shown = output::path(&sample);
            bail!(
                "{shown} exists, and the sample may have to be written there; --overwrite \
                 replaces it, or name another file with --output"
            );
        }
    }
    let target = Target::open(options)?;
    let rings = start::rings_folder(&target.folder())?;
    let began = now();
    let session = begin_session(options, rings.path())?;
    let words = start::words(named, arguments);
    let header = header_of(options, &words);

    let start = Start {
        named,
        arguments,
        program: &program,
        recorder: &recorder,
        allocator: allocator.as_ref(),
        rings: rings.path(),
    };
    // Where the kernel does not allow it, programs that are not recorded are not told.
    let starts = Starts::of_children().ok();
    let child = start.spawn()?;
    let starts = starts.map(|starts| Unrecorded::new(starts, child.id() as i32));
    // After the start: the program inherits which signals are blocked, and the watch blocks them.
    let ending = Watch::each_signal().begin()?;
    let (file, path) = match target.settle(&name_of(named), child.id()) {
        Ok(settled) => settled,
        Err(error) => {
            // The program runs: it goes on without us.
            let _ = session.end();
            output::print_error(&error);
            return follow_unrecorded(child);
        }
    };
    let recording = Recording {
        board: Arc::new(Board::with_cost(options.most)),
        ending,
        path,
    };
    let describer = Describer::new(layout, child.id(), &words, header.environment.clone());
    recording.follow(
        Followed::Started(child),
        file,
        &header,
        options,
        (session, began, describer, starts),
    )
}

fn record_process(
    options: &RecordOptions,
    attached: Attached,
    limit: Option<Duration>,
    layout: &Layout,
) -> Result<Exit> {
    let layout = &layout.for_libc(Libc::of_process(attached.pid()));
    let recorder = start::find_recorder(layout)?;
    let attached = Arc::new(attached);
    let pid = attached.pid();
    let target = Target::open(options)?;
    let rings = start::rings_folder(&target.folder())?;
    let began = now();
    let session = begin_session(options, rings.path())?;
    attached.require_same_places(&recorder, rings.path())?;
    attached.let_in(rings.path())?;
    let words = describe::words_of(pid);
    let header = header_of(options, &words);
    let ending = Watch::each_signal().begin()?;
    let name = words.first().map(|word| name_of(OsStr::new(word)));
    let (file, path) = target.settle(&name.unwrap_or_default(), pid as u32)?;
    attached.ask(&recorder, rings.path())?;
    let recording = Recording {
        board: Arc::new(Board::default()),
        ending,
        path,
    };
    // No process is a command's, whose end would be waited for.
    let describer = Describer::new(layout, 0, &words, header.environment.clone());
    recording.follow(
        Followed::Attached(attached, limit),
        file,
        &header,
        options,
        (session, began, describer, None),
    )
}

fn begin_session(options: &RecordOptions, rings: &Path) -> Result<Session> {
    let session = Session::begin(rings, options.drops_when_full, options.stack_bytes);
    session.with_context(|| {
        let shown = output::path(rings);
        format!("the recording can not begin: {shown} can not be written")
    })
}

fn header_of(options: &RecordOptions, words: &[String]) -> Header {
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    Header {
        stack_bytes: options.stack_bytes,
        ..describe::header(&machine::current(), words, started)
    }
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

/// What the main thread waits for.
enum Followed {
    Started(Child),
    /// A process that runs already, for so long.
    Attached(Arc<Attached>, Option<Duration>),
}

struct Recording {
    board: Arc<Board>,
    ending: Ending,
    path: PathBuf,
}

impl Recording {
    fn follow(
        self,
        followed: Followed,
        file: File,
        header: &Header,
        options: &RecordOptions,
        (session, began, describer, starts): (Session, u64, Describer, Option<Unrecorded>),
    ) -> Result<Exit> {
        let (notes, taken) = mpsc::sync_channel(WAITING);
        let attached = match &followed {
            Followed::Attached(attached, _) => Some(attached.clone()),
            Followed::Started(_) => None,
        };
        let drainer = Drainer::new(
            session,
            began,
            describer,
            self.board.clone(),
            notes.clone(),
            attached.clone(),
            starts,
        );
        let max_size = options.max_size;
        let board = &self.board;
        let (refused, left, streams, written) = thread::scope(|scope| {
            let writer = scope.spawn(move || write::write(file, header, max_size, &taken, board));
            let sampler = scope.spawn(move || sample::sample(began, &notes, board));
            let drainer = scope.spawn(|| drainer.run());
            let (refused, left) = match followed {
                Followed::Started(child) => (None, self.attend(child)),
                Followed::Attached(attached, limit) => {
                    (self.attend_process(&attached, limit), None)
                }
            };
            let streams = drainer.join();
            // Its sender goes with it, so the writer ends.
            let _ = sampler.join();
            (refused, left, streams, writer.join())
        });
        let streams =
            streams.map_err(|_| anyhow::anyhow!("the drainer failed; please report it"))?;
        let written =
            written.map_err(|_| anyhow::anyhow!("the writer failed; please report it"))?;
        if let (Some(attached), 0) = (attached, streams) {
            return Err(unrecorded(&attached, refused));
        }
        let exit = self.report(streams, written);
        match (left, self.board.costly()) {
            (Some(child), Some(pid)) => {
                if let Err(error) = exit {
                    output::print_error(&error);
                }
                let ends = Ends::of_program(self.ending, child);
                rest::sample(options, &self.path, pid, ends)
            }
            _ => exit,
        }
    }

    /// The same for a process that runs already; why its heap does not record, if it said so. The
    /// first signal ends the recording: the process is not ours.
    fn attend_process(&self, attached: &Attached, limit: Option<Duration>) -> Option<String> {
        let mut progress = Progress::begin();
        let begun = Instant::now();
        let (mut is_begun, mut is_told, mut gone) = (None, false, None);
        let mut refused = None;
        while !self.board.is_drained.load(Ordering::SeqCst) {
            let is_long = is_begun
                .zip(limit)
                .is_some_and(|(since, limit): (Instant, _)| since.elapsed() >= limit);
            if is_long || !self.ending.take_signals().is_empty() {
                self.board.end_as_wanted();
            }
            match attached.answer() {
                Answer::Recording if is_begun.is_none() => {
                    is_begun = Some(Instant::now());
                    let pid = attached.pid();
                    progress.tell(&format!("loam: recording process {pid}; Ctrl-C ends it"));
                }
                Answer::Refused(why) => {
                    refused.get_or_insert(why);
                    self.board.end_as_wanted();
                }
                Answer::Idle if is_begun.is_some() && !self.board.is_stopped() => {
                    let pid = attached.pid();
                    let reason = format!("the heap of process {pid} has stopped recording");
                    self.board.end_recording(reason);
                }
                Answer::Waiting if !is_told && begun.elapsed() > PATIENCE => {
                    is_told = true;
                    progress.say(&format!(
                        "process {} has not called its heap yet; recording begins when it does",
                        attached.pid()
                    ));
                }
                _ => {}
            }
            if attached.is_gone() {
                let since: Instant = *gone.get_or_insert_with(Instant::now);
                self.board.is_over.store(true, Ordering::SeqCst);
                // It lives on as another program.
                if since.elapsed() > ENDING {
                    self.board.end_as_wanted();
                }
            }
            for note in self.board.take_notes() {
                progress.say(&note);
            }
            progress.show(&self.board);
            thread::sleep(TICK);
        }
        progress.end();
        refused
    }

    /// Until all is drained: takes signals, collects the command, shows how far it has come. The
    /// command, if it runs on.
    fn attend(&self, mut child: Child) -> Option<Child> {
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
        self.board.command().is_none().then_some(child)
    }

    fn report(&self, streams: u32, written: Result<Statistics, WriteError>) -> Result<Exit> {
        for note in self.board.take_notes() {
            output::print_warning(&note);
        }
        let shown = output::path(&self.path);
        let own = match self.board.command() {
            Some((_, status)) => exit_of(status),
            None if self.board.reason().is_none() => Exit::Done,
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
                    "{shown}: {error}; recording ended there, and the program went on. The first \
                     {} of the file can be read",
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
                "{shown} holds no events: no process loaded the recorder. Is the program static, \
                 or does it start others with an environment of their own?"
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
        if self.board.costly().is_some() {
            output::say(&format!(
                "loam: {shown} has every event up to there; for a replay of the whole program, \
                 record it without --cost"
            ));
        }
        let share = self.board.cost().share();
        if let Some(share) =
            share.filter(|share| *share >= NOTABLE && self.board.costly().is_none())
        {
            output::say(&format!(
                "loam: recording took about {:.0} % of the program's processor time; `--cost 10%` \
                 ends it where it takes more, and samples the rest",
                100.0 * share
            ));
        }
        Ok(own)
    }
}

/// Why nothing was recorded of a process.
fn unrecorded(attached: &Attached, refused: Option<String>) -> anyhow::Error {
    let pid = attached.pid();
    let message = match refused {
        Some(why) => format!("process {pid} can not be recorded: {why}"),
        None if attached.is_gone() => {
            format!("process {pid} ended before it called its heap; nothing was recorded")
        }
        None => format!("process {pid} did not call its heap; nothing was recorded"),
    };
    let exit = Exit::Error;
    Coded { exit, message }.into()
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
            "loam: 1000 events in 4.00 KiB (3.50 bytes an event), 3 dropped: a b.trace; next: loam \
             replay 'a b.trace'"
        );
    }
}
