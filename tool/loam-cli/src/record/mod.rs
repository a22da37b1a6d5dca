//! `loam record`: start a program with the recorder in front of its allocator, and write down what
//! it does.
//!
//! ```text
//! command -> inspect as `run` does -> open the file -> folder for rings -> start, with
//!            LD_PRELOAD=libloam-record.so[:the allocator][:what was there] LOAM_RECORD=folder
//! process -> find its heap -> open the file -> folder for rings -> ask the heap (attach)
//!         -> on another allocator: probes, or growth (page faults), in one thread, and no rings
//! both    -> loam_record::recording, or growth, or probed -> what is said of it
//! ```
//!
//! An existing file is emptied when the first process is known, or probes or samples are set. A
//! recording that is refused before, or records nothing, leaves the file as it was.
//!
//! The program runs in this process's group, so a terminal's Ctrl-C reaches it as without us;
//! signals that reach only this process are passed on. Whatever goes wrong here, the program goes
//! on: the recorder switches itself off.

pub mod args;
mod growth;
mod probes;
mod progress;
mod rest;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, Result};
use nix::sys::signal::Signal;

use loam_format::trace::{Header, Statistics, WriteError};
use loam_format::units::{bytes, bytes_an_event};
use loam_lab::allocators::{discover, spec};
use loam_process::ending::{Ending, Watch};
use loam_process::layout::Layout;
use loam_process::parts::Libc;
use loam_process::perf::Starts;
use loam_process::process::Pid;
use loam_process::rings::{now, Session};
use loam_record::attach::Attached;
use loam_record::board::Board;
use loam_record::cost::NOTABLE;
use loam_record::describe::{self, Describer};
use loam_record::ends::Ends;
use loam_record::probed;
use loam_record::recording::{Attendant, Followed, Recording};
use loam_record::start::{self, Start};
use loam_record::target::{path_beside, Target};
use loam_record::unrecorded::Unrecorded;

use crate::exit::{leave, Coded, Exit};
use crate::output;
use crate::run;
use args::{RecordOptions, Subject, Way, COST};
use progress::Progress;

/// Runs the verb.
pub fn run(options: &RecordOptions, layout: &Layout) -> Result<Exit> {
    match &options.subject {
        Subject::Command { program, arguments } => record(options, program, arguments, layout),
        Subject::Process { pid, way, limit } => match way {
            Way::Growth => growth::record(options, *pid, &mut ends_of(*limit)?),
            Way::Probes(cost) => {
                if options.stack_bytes > 0 || options.drops_when_full {
                    bail!(
                        "--cost sets probes in a running process, which have stacks and no rings: \
                         leave out --stacks and --when-full"
                    );
                }
                probes::record(options, *pid, &mut ends_of(*limit)?, *cost)
            }
            Way::Best => match Attached::find(*pid)? {
                Some(attached) => record_process(options, attached, *limit, layout),
                None => sampled(options, *pid, &mut ends_of(*limit)?),
            },
        },
    }
}

/// What ends the recording of a process that is not ours.
fn ends_of(limit: Option<Duration>) -> Result<Ends> {
    let ending = Watch::each_signal().begin(leave)?;
    Ok(Ends::of_process(ending, limit))
}

/// Samples a process by probes or, where these are refused, by the growth of its heap.
fn sampled(options: &RecordOptions, pid: Pid, ends: &mut Ends) -> Result<Exit> {
    match probed::refused(pid)? {
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
        let sample = path_beside(whole);
        if sample.exists() {
            let shown = output::path(&sample);
            bail!(
                "{shown} exists, and the sample may have to be written there; --overwrite \
                 replaces it, or name another file with --output"
            );
        }
    }
    let target = Target::open(options.output.as_deref(), options.overwrite)?;
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
    let child = start
        .spawn()
        .map_err(|error| run::not_started(&program, &error))?;
    let starts = starts.map(|starts| Unrecorded::new(starts, child.id() as i32));
    // After the start: the program inherits which signals are blocked, and the watch blocks them.
    let ending = Watch::each_signal().begin(leave)?;
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
        session,
        began,
        describer: Describer::new(layout, child.id(), &words, header.environment.clone()),
        starts,
        file,
        header: &header,
        max_size: options.max_size,
        board: &Arc::new(Board::with_cost(options.most)),
    };
    follow(recording, Followed::Started(child), ending, &path, options)
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
    let target = Target::open(options.output.as_deref(), options.overwrite)?;
    let rings = start::rings_folder(&target.folder())?;
    let began = now();
    let session = begin_session(options, rings.path())?;
    attached.require_same_places(&recorder, rings.path())?;
    attached.let_in(rings.path())?;
    let words = describe::words_of(pid);
    let header = header_of(options, &words);
    let ending = Watch::each_signal().begin(leave)?;
    let name = words.first().map(|word| name_of(OsStr::new(word)));
    let (file, path) = target.settle(&name.unwrap_or_default(), pid as u32)?;
    attached.ask(&recorder, rings.path())?;
    let recording = Recording {
        session,
        began,
        // No process is a command's, whose end would be waited for.
        describer: Describer::new(layout, 0, &words, header.environment.clone()),
        starts: None,
        file,
        header: &header,
        max_size: options.max_size,
        board: &Arc::new(Board::default()),
    };
    let followed = Followed::Attached(attached, limit);
    follow(recording, followed, ending, &path, options)
}

fn begin_session(options: &RecordOptions, rings: &Path) -> Result<Session> {
    start::session(rings, options.drops_when_full, options.stack_bytes)
}

fn header_of(options: &RecordOptions, words: &[String]) -> Header {
    Header {
        stack_bytes: options.stack_bytes,
        ..describe::header(words)
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

/// Records, and says what was recorded.
fn follow(
    recording: Recording,
    followed: Followed,
    ending: Ending,
    path: &Path,
    options: &RecordOptions,
) -> Result<Exit> {
    let board = recording.board.clone();
    let mut shown = Shown {
        progress: Progress::begin(),
        ending,
    };
    let recorded = recording.follow(followed, &mut shown);
    let Shown { progress, ending } = shown;
    progress.end();
    let recorded = recorded?;
    let exit = report(&board, &ending, path, recorded.streams, recorded.written);
    match (recorded.left, board.costly()) {
        (Some(child), Some(pid)) => {
            if let Err(error) = exit {
                output::print_error(&error);
            }
            rest::sample(options, path, pid, Ends::of_program(ending, child))
        }
        _ => exit,
    }
}

/// What a recording tells and asks.
struct Shown {
    progress: Progress,
    ending: Ending,
}

impl Attendant for Shown {
    fn take_signals(&mut self) -> Vec<Signal> {
        self.ending.take_signals()
    }

    fn show(&mut self, board: &Board) {
        self.progress.show(board);
    }

    fn warn(&mut self, text: &str) {
        self.progress.say(text);
    }

    fn tell(&mut self, text: &str) {
        self.progress.tell(text);
    }
}

fn report(
    board: &Board,
    ending: &Ending,
    path: &Path,
    streams: u32,
    written: Result<Statistics, WriteError>,
) -> Result<Exit> {
    for note in board.take_notes() {
        output::print_warning(&note);
    }
    let shown = output::path(path);
    let own = match board.command() {
        Some((_, status)) => exit_of(status),
        None if board.reason().is_none() => Exit::Done,
        // The second signal.
        None => ending.reason().map_or(Exit::Done, Exit::from),
    };
    let statistics = match written {
        Ok(statistics) => statistics,
        Err(error) => {
            let message = format!(
                "{shown}: {error}; recording ended there, and the program went on. The first \
                 {} of the file can be read",
                bytes(board.bytes.load(Ordering::Relaxed) as f64)
            );
            let exit = match own {
                Exit::Done => Exit::Error,
                other => other,
            };
            return Err(Coded { exit, message }.into());
        }
    };
    if streams == 0 {
        bail!(
            "nothing was recorded: no process loaded the recorder. Is the program static, or does \
             it start others with an environment of their own?"
        );
    }
    if let Some(reason) = board.reason() {
        output::print_warning(&format!("recording ended early: {reason}"));
    }
    output::say(&summary(
        &shown,
        &statistics,
        board.dropped.load(Ordering::Relaxed),
    ));
    if board.costly().is_some() {
        output::say(&format!(
            "loam: {shown} has every event up to there; for a replay of the whole program, \
             record it without --cost"
        ));
    }
    let share = board.cost().share();
    if let Some(share) = share.filter(|share| *share >= NOTABLE && board.costly().is_none()) {
        output::say(&format!(
            "loam: recording took about {:.0} % of the program's processor time; `--cost 10%` \
             ends it where it takes more, and samples the rest",
            100.0 * share
        ));
    }
    Ok(own)
}

fn summary(shown: &str, statistics: &Statistics, dropped: u64) -> String {
    let events = statistics.events;
    let each = match events {
        0 => String::new(),
        _ => format!(" ({})", bytes_an_event(statistics.file_bytes, events)),
    };
    let lost = match dropped {
        0 => "none dropped".to_owned(),
        dropped => format!("{dropped} dropped"),
    };
    format!(
        "loam: {events} events in {}{each}, {lost}: {shown}; next: loam replay {}",
        bytes(statistics.file_bytes as f64),
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
            "loam: 1000 events in 4.00 KiB (4.10 bytes an event), 3 dropped: a b.trace; next: loam \
             replay 'a b.trace'"
        );
    }
}
