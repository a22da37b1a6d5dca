//! A command of the user's, run for real: the memory of its processes, and their processor time.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{getrusage, UsageWho};
use thiserror::Error;

use loam_process::process::private_bytes;

use super::launch::end_group;
use super::watchdog::Watchdog;
use super::Stop;

/// The pauses between two looks: short for a program that ends at once, and then a hundredth of a
/// processor at most for looks that take a fifth of a millisecond.
const FIRST: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(20);
/// A command with more processes than this is looked at in part.
const MOST: usize = 1000;

/// What one run took.
#[derive(Debug, Clone, Copy)]
pub struct Real {
    /// Resident bytes that belong to no file, of all its processes, on average over time.
    pub average: f64,
    /// The most of these that a look saw.
    pub peak: f64,
    /// Processor time of the processes that were waited for, in seconds.
    pub processor: f64,
    /// How the command ended.
    pub status: ExitStatus,
}

/// Why there are no figures.
#[derive(Debug, Error)]
pub enum RealError {
    /// The command could not be started.
    #[error("it can not be started: {0}")]
    NotStarted(#[from] std::io::Error),
    /// It took too long.
    #[error("it had not ended after {} s, and was ended (--timeout)", .0.as_secs())]
    TimedOut(Duration),
    /// The user asked to stop.
    #[error("interrupted")]
    Stopped(u8),
}

/// Runs the command to its end, with nothing to read, and what it prints thrown away. The
/// environment is this process's with changes.
///
/// The processor time is that of all children of this process that end meanwhile: nothing else may
/// run beside it.
pub fn run(
    program: &Path,
    words: &[OsString],
    environment: &[(OsString, OsString)],
    timeout: Duration,
    stop: &dyn Stop,
    watchdog: &Watchdog,
) -> Result<Real, RealError> {
    let before = processor();
    let (name, arguments) = words.split_first().expect("a command has a name");
    let mut child = Command::new(program)
        .arg0(name)
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    watchdog.watch(Some(child.id()));
    let looked = look(&mut child, timeout, stop);
    // What it left behind would disturb the next run.
    end_group(&mut child);
    watchdog.watch(None);
    let (average, peak, status) = looked?;
    Ok(Real {
        average,
        peak,
        processor: (processor() - before).max(0.0),
        status,
    })
}

fn processor() -> f64 {
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, |usage| {
        seconds(usage.user_time()) + seconds(usage.system_time())
    })
}

/// Average, peak and end.
fn look(
    child: &mut Child,
    timeout: Duration,
    stop: &dyn Stop,
) -> Result<(f64, f64, ExitStatus), RealError> {
    let begun = Instant::now();
    let (mut area, mut peak, mut last, mut since) = (0.0, 0.0f64, 0.0, begun);
    let mut pause = FIRST;
    loop {
        let status = child.try_wait()?;
        let now = Instant::now();
        area += last * (now - since).as_secs_f64();
        since = now;
        if let Some(status) = status {
            let whole = (now - begun).as_secs_f64();
            return Ok((area / whole.max(f64::MIN_POSITIVE), peak, status));
        }
        if let Some(signal) = stop.signal() {
            return Err(RealError::Stopped(signal));
        }
        if now - begun >= timeout {
            return Err(RealError::TimedOut(timeout));
        }
        last = memory(child.id() as i32) as f64;
        peak = peak.max(last);
        thread::sleep(pause);
        pause = (pause * 2).min(LATER);
    }
}

/// The private bytes of a process and of all that it started.
fn memory(root: i32) -> u64 {
    let (mut pids, mut sum) = (vec![root], 0u64);
    let mut looked = 0;
    while let Some(pid) = pids.pop() {
        sum = sum.saturating_add(private_bytes(pid).unwrap_or(0));
        looked += 1;
        if looked < MOST {
            pids.extend(children(pid));
        }
    }
    sum
}

/// Each thread has a list of the processes that it started.
fn children(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| {
            let list = std::fs::read(thread.path().join("children"));
            String::from_utf8(list.ok()?).ok()
        });
    let mut found = Vec::new();
    for list in lists {
        found.extend(
            list.split_ascii_whitespace()
                .filter_map(|word| word.parse::<i32>().ok()),
        );
    }
    found
}
