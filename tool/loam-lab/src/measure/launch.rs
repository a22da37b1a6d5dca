//! Runs one process from start to end: reads its output line by line, limits its time, and ends its
//! whole process group if necessary.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{kill_process_group, Pid, Signal};

use super::Stop;
use crate::measure::watchdog::Watchdog;

/// A workload prints no line longer than this.
const LINE_LIMIT: usize = 1 << 20;
/// A workload that prints more lines than this is faulty.
const LINES_LIMIT: usize = 1_000_000;
/// How much of standard error is kept.
const STDERR_TAIL: usize = 4096;
/// How often the runner checks for a stop: rarely enough to disturb nothing, often enough for a
/// person.
const POLL: Duration = Duration::from_millis(100);
/// How long a finished process's children may keep its output open.
const LINGER: Duration = Duration::from_secs(1);

/// What to start.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [String],
    /// Its whole environment: nothing is inherited.
    pub environment: &'a BTreeMap<String, String>,
    /// Its time limit.
    pub timeout: Duration,
}

/// How the process ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The process ended with an exit code.
    Exited(i32),
    /// A signal that the runner did not send ended the process.
    Signalled(i32),
    /// The process took too long.
    TimedOut,
    /// The process printed too much, or something that is not text.
    Unreadable(String),
    /// The caller rejected its first line.
    Rejected(String),
    /// The user asked to stop.
    Stopped,
    /// The process could not be started.
    NotStarted(String),
}

/// What the process did.
#[derive(Debug)]
pub struct Observed {
    /// How it ended.
    pub outcome: Outcome,
    /// The lines that the process printed.
    pub lines: Vec<String>,
    /// The end of its standard error.
    pub stderr_tail: String,
    /// From start to end.
    pub seconds: f64,
}

enum Event {
    Line(String),
    Unreadable(String),
    End,
}

/// Runs the process to its end. `on_first_line` sees the process while it runs and may reject it.
pub fn run(
    launch: &Launch,
    stop: &dyn Stop,
    watchdog: &Watchdog,
    on_first_line: impl FnOnce(u32) -> Result<(), String>,
) -> Observed {
    let begin = Instant::now();
    let mut observed = Observed {
        outcome: Outcome::Stopped,
        lines: Vec::new(),
        stderr_tail: String::new(),
        seconds: 0.0,
    };
    let mut child = match spawn(launch) {
        Ok(child) => child,
        Err(error) => {
            observed.outcome = Outcome::NotStarted(error.to_string());
            return observed;
        }
    };
    watchdog.watch(Some(child.id()));
    let events = read_lines(child.stdout.take().expect("stdout is piped"));
    let stderr = read_tail(child.stderr.take().expect("stderr is piped"));
    let deadline = begin + launch.timeout;
    let verdict = follow(
        &mut observed.lines,
        &events,
        deadline,
        stop,
        child.id(),
        on_first_line,
    );
    observed.outcome = match verdict.map_or_else(Err, |()| wait(&mut child, deadline, stop)) {
        Ok(status) => outcome_of(status),
        Err(outcome) => outcome,
    };
    observed.seconds = begin.elapsed().as_secs_f64();
    // The group is ended after a success as well: a workload that leaves processes behind would
    // disturb the next one.
    end_group(&mut child);
    watchdog.watch(None);
    observed.stderr_tail = stderr.recv_timeout(LINGER).unwrap_or_default();
    observed
}

fn spawn(launch: &Launch) -> io::Result<Child> {
    Command::new(launch.program)
        .args(launch.arguments)
        .env_clear()
        .envs(launch.environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: Ctrl-C in the terminal reaches only the lab, which ends the group as
        // a whole.
        .process_group(0)
        .spawn()
}

fn follow(
    lines: &mut Vec<String>,
    events: &Receiver<Event>,
    deadline: Instant,
    stop: &dyn Stop,
    pid: u32,
    on_first_line: impl FnOnce(u32) -> Result<(), String>,
) -> Result<(), Outcome> {
    let mut on_first_line = Some(on_first_line);
    loop {
        match events.recv_timeout(POLL) {
            Ok(Event::Line(line)) => {
                lines.push(line);
                if let Some(check) = on_first_line.take() {
                    check(pid).map_err(Outcome::Rejected)?;
                }
                if lines.len() > LINES_LIMIT {
                    let reason = format!("it printed more than {LINES_LIMIT} lines");
                    return Err(Outcome::Unreadable(reason));
                }
            }
            Ok(Event::Unreadable(reason)) => return Err(Outcome::Unreadable(reason)),
            Ok(Event::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        check_limits(deadline, stop)?;
    }
}

fn check_limits(deadline: Instant, stop: &dyn Stop) -> Result<(), Outcome> {
    if stop.signal().is_some() {
        return Err(Outcome::Stopped);
    }
    if Instant::now() >= deadline {
        return Err(Outcome::TimedOut);
    }
    Ok(())
}

/// Waits for the process after its output has ended: it may still run.
fn wait(child: &mut Child, deadline: Instant, stop: &dyn Stop) -> Result<ExitStatus, Outcome> {
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => return Err(Outcome::NotStarted(error.to_string())),
        }
        check_limits(deadline, stop)?;
        thread::sleep(pause);
        pause = (pause * 2).min(POLL);
    }
}

fn outcome_of(status: ExitStatus) -> Outcome {
    match (status.code(), status.signal()) {
        (Some(code), _) => Outcome::Exited(code),
        (None, Some(signal)) => Outcome::Signalled(signal),
        (None, None) => Outcome::Signalled(0),
    }
}

/// Ends the process and its group, and waits for it.
pub(super) fn end_group(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The group may be gone already, which is the goal.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
}

fn read_lines(stdout: impl Read + Send + 'static) -> Receiver<Event> {
    // The channel is unbounded, because a reader that falls behind would slow the workload down.
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            let event = match (&mut reader)
                .take(LINE_LIMIT as u64)
                .read_until(b'\n', &mut line)
            {
                Ok(0) => Event::End,
                Ok(LINE_LIMIT) => {
                    Event::Unreadable(format!("it printed a line longer than {LINE_LIMIT} bytes"))
                }
                Ok(_) => match String::from_utf8(line) {
                    Ok(text) => Event::Line(text.trim_end().to_owned()),
                    Err(_) => Event::Unreadable("it printed what is no UTF-8 text".to_owned()),
                },
                Err(error) => Event::Unreadable(format!("its output could not be read: {error}")),
            };
            let is_last = !matches!(event, Event::Line(_));
            if sender.send(event).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

fn read_tail(stderr: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stderr);
        let mut tail: Vec<u8> = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(size @ 1..) = reader.read(&mut piece) {
            tail.extend_from_slice(&piece[..size]);
            let excess = tail.len().saturating_sub(STDERR_TAIL);
            tail.drain(..excess);
        }
        // The receiver may have given up waiting.
        let _ = sender.send(String::from_utf8_lossy(&tail).trim().to_owned());
    });
    receiver
}
