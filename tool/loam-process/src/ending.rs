//! How this process ends from outside: a signal asks for it, or a stream that it needs is gone.
//!
//! ```text
//! signals (blocked in every thread) -> signalfd -+
//!                                                +-> poll in a thread of its own
//! terminals and pipes (hang-up, no reader) ------+     |
//!                                                      +-> Ending -> the verb's loop
//!                                                      +-> ends the process itself: at once, or
//!                                                          where the verb has not after its grace
//! ```
//!
//! The thread waits for nothing else, so a verb ends too while its work hangs: in a file system
//! that does not answer, or in a write to a terminal that is stopped. A signal that the caller has
//! this process ignore (`nohup`) stays ignored. `run` has no such thread: the program that it
//! becomes takes signals by itself.

use std::io::{self, IsTerminal};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{self, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

/// Signals that ask a process to end.
const ASKING: [Signal; 5] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGPIPE,
    Signal::SIGTERM,
];

/// The signal that ends even a verb which is told of each.
const IMPATIENT: usize = 4;

/// How long the last act before the process ends may take, should the terminal be stopped.
const LAST_ACT: Duration = Duration::from_millis(200);

/// Why a verb is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// This signal came.
    Signal(Signal),
    /// A terminal was closed or cut off.
    NoTerminal,
    /// The reader of a pipe went away.
    NoReader,
}

impl Reason {
    /// The signal that came, or that the system has for such a case.
    pub fn signal(self) -> u8 {
        let signal = match self {
            Reason::Signal(signal) => signal,
            Reason::NoTerminal => Signal::SIGHUP,
            Reason::NoReader => Signal::SIGPIPE,
        };
        signal as i32 as u8
    }
}

/// What is watched, and what happens then.
#[derive(Debug)]
pub struct Watch {
    signals: Vec<Signal>,
    streams: Vec<BorrowedFd<'static>>,
    manner: Manner,
}

#[derive(Debug, Clone, Copy)]
enum Manner {
    /// The process ends as by the signal itself.
    AtOnce,
    /// The verb ends in good order; a second signal ends it at once.
    InGoodOrder,
    /// Each signal is told to the verb; the fourth one ends the process.
    Each,
    /// The same, but not later than this, and the last act is done in any case.
    Within(Duration, fn()),
}

impl Watch {
    /// For verbs that leave nothing behind.
    pub fn at_once(streams: &[BorrowedFd<'static>]) -> Watch {
        Watch {
            signals: ASKING.to_vec(),
            streams: streams.to_vec(),
            manner: Manner::AtOnce,
        }
    }

    /// For a server that takes the other signals by itself, and which the end of a connection must
    /// not end: what a write of its own causes is sent to the thread that wrote, and the watch sees
    /// only what is sent to the process.
    pub fn pipe_signal_only() -> Watch {
        Watch {
            signals: vec![Signal::SIGPIPE],
            streams: Vec::new(),
            manner: Manner::AtOnce,
        }
    }

    /// For verbs that finish something first, however long that takes.
    pub fn in_good_order(streams: &[BorrowedFd<'static>]) -> Watch {
        Watch {
            manner: Manner::InGoodOrder,
            ..Watch::at_once(streams)
        }
    }

    /// For a verb that passes signals on, and takes a second one as meant for itself.
    pub fn each_signal() -> Watch {
        Watch {
            manner: Manner::Each,
            ..Watch::at_once(&[])
        }
    }

    /// For verbs that own the terminal. They are told to pause (Ctrl-Z) too, and that they go on.
    pub fn of_terminal(streams: &[BorrowedFd<'static>], grace: Duration, last_act: fn()) -> Watch {
        let mut watch = Watch::at_once(streams);
        watch.signals.extend([Signal::SIGTSTP, Signal::SIGCONT]);
        watch.manner = Manner::Within(grace, last_act);
        watch
    }

    /// Begins. Called before there is any other thread: those inherit which signals are blocked.
    /// `leave` ends the process where the verb does not.
    pub fn begin(self, leave: fn(Reason) -> !) -> io::Result<Ending> {
        let ignored = ignored();
        let mut wanted = SigSet::empty();
        // Every Rust program ignores SIGPIPE; that says nothing about the caller's wish.
        let heeded = |signal: &Signal| *signal == Signal::SIGPIPE || !ignored.contains(*signal);
        for signal in self.signals.iter().copied().filter(heeded) {
            wanted.add(signal);
        }
        // A caller that blocks signals, as some do around starting a process, must not make it
        // immortal.
        let mut others = SigSet::empty();
        for signal in ASKING.into_iter().filter(|s| !wanted.contains(*s)) {
            others.add(signal);
        }
        others.thread_unblock()?;
        wanted.thread_block()?;
        let begun = SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(io::Error::from)
            .and_then(|signals| {
                let ending = Ending::default();
                let watcher = Watcher {
                    ending: ending.clone(),
                    manner: self.manner,
                    leave,
                    signals,
                    wanted,
                    streams: self
                        .streams
                        .iter()
                        .map(|stream| (*stream, stream.is_terminal()))
                        .collect(),
                };
                thread::Builder::new()
                    .name("ending".to_owned())
                    .spawn(move || watcher.watch())?;
                Ok(ending)
            });
        if begun.is_err() {
            wanted.thread_unblock()?;
        }
        begun
    }
}

/// The signals that this process ignores; none where that can not be told.
fn ignored() -> SigSet {
    let mut set = SigSet::empty();
    let status = procfs::process::Process::myself().and_then(|process| process.status());
    let mask = status.map_or(0, |status| status.sigign);
    for signal in Signal::iterator() {
        if mask >> (signal as i32 - 1) & 1 == 1 {
            set.add(signal);
        }
    }
    set
}

#[derive(Debug, Default)]
struct Notes {
    reason: Option<Reason>,
    /// Not taken yet, and how many there were.
    signals: Vec<Signal>,
    count: usize,
    is_to_pause: bool,
    went_on: bool,
}

/// What a verb asks to know whether it is to end.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    shared: Arc<(Mutex<Notes>, Condvar)>,
}

impl Ending {
    /// Why the verb is to end, if it is.
    pub fn reason(&self) -> Option<Reason> {
        self.notes().reason
    }

    /// The same, after at most so long.
    pub fn wait(&self, limit: Duration) -> Option<Reason> {
        let goes_on = |notes: &mut Notes| notes.reason.is_none();
        let waited = self
            .shared
            .1
            .wait_timeout_while(self.notes(), limit, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0.reason
    }

    /// The signals that came since the last call.
    pub fn take_signals(&self) -> Vec<Signal> {
        std::mem::take(&mut self.notes().signals)
    }

    /// Whether the process is to stop until it is continued; told once.
    pub fn takes_pause(&self) -> bool {
        std::mem::take(&mut self.notes().is_to_pause)
    }

    /// Whether the process was stopped, and continued; told once.
    pub fn went_on(&self) -> bool {
        std::mem::take(&mut self.notes().went_on)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops this process, or all that the terminal would stop with it (`sh -c "loam top"`), as if
/// nobody had taken the signal: the system knows when there is no shell that could continue it, and
/// stops nothing then.
pub fn pause(whole_group: bool) {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTSTP);
    let _ = stop.thread_unblock();
    let own = rustix::process::getpid();
    let _ = match whole_group {
        true => rustix::process::kill_current_process_group(rustix::process::Signal::TSTP),
        false => rustix::process::kill_process(own, rustix::process::Signal::TSTP),
    };
    let _ = stop.thread_block();
}

struct Watcher {
    ending: Ending,
    manner: Manner,
    leave: fn(Reason) -> !,
    signals: SignalFd,
    wanted: SigSet,
    streams: Vec<(BorrowedFd<'static>, bool)>,
}

impl Watcher {
    fn watch(mut self) {
        let mut deadline: Option<Instant> = None;
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if let (Some(Duration::ZERO), Some(reason)) = (left, self.ending.reason()) {
                self.end(reason);
            }
            let gone = match self.wait(left) {
                Ok(gone) => gone,
                // Out of memory for a moment: nothing else can happen.
                Err(_) => {
                    thread::sleep(LAST_ACT);
                    continue;
                }
            };
            let mut news = gone;
            while let Ok(Some(info)) = self.signals.read_signal() {
                match Signal::try_from(info.ssi_signo as i32) {
                    Ok(Signal::SIGTSTP) => self.ending.notes().is_to_pause = true,
                    Ok(Signal::SIGCONT) => self.ending.notes().went_on = true,
                    Ok(signal) => {
                        let mut notes = self.ending.notes();
                        notes.signals.push(signal);
                        notes.count += 1;
                        news = Some(Reason::Signal(signal));
                    }
                    Err(_) => {}
                }
            }
            let Some(reason) = news else { continue };
            let first = self.ending.reason();
            if first.is_none() {
                self.ending.notes().reason = Some(reason);
                self.ending.shared.1.notify_all();
            }
            match self.manner {
                Manner::AtOnce => self.end(first.unwrap_or(reason)),
                Manner::Each if self.ending.notes().count < IMPATIENT => {}
                _ if first.is_some() => self.end(first.unwrap_or(reason)),
                Manner::InGoodOrder | Manner::Each => {}
                Manner::Within(grace, _) => deadline = Some(Instant::now() + grace),
            }
        }
    }

    /// Waits for a signal, a stream's end, or the time; says which stream ended, and forgets all of
    /// them then.
    fn wait(&mut self, limit: Option<Duration>) -> io::Result<Option<Reason>> {
        let signals = PollFd::new(&self.signals, PollFlags::IN);
        // Nothing is asked of a stream: a hang-up and a missing reader are told unasked.
        let streams = self.streams.iter();
        let streams =
            streams.map(|(stream, _)| PollFd::from_borrowed_fd(*stream, PollFlags::empty()));
        let mut all: Vec<PollFd> = std::iter::once(signals).chain(streams).collect();
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        });
        match poll(&mut all, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_gone =
            |stream: &PollFd| stream.revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let gone = all[1..].iter().position(is_gone);
        let gone = gone.map(|place| match self.streams[place].1 {
            true => Reason::NoTerminal,
            false => Reason::NoReader,
        });
        if gone.is_some() {
            self.streams.clear();
        }
        Ok(gone)
    }

    /// Ends the process: the main thread may hang.
    fn end(&self, reason: Reason) -> ! {
        if let Manner::Within(_, last_act) = self.manner {
            // In yet another thread, for a stopped terminal keeps whoever writes to it.
            let act = thread::spawn(last_act);
            let end = Instant::now() + LAST_ACT;
            while !act.is_finished() && Instant::now() < end {
                thread::sleep(LAST_ACT / 20);
            }
        } else if let (Manner::AtOnce, Reason::Signal(signal)) = (self.manner, reason) {
            // A shell wants to know that a signal did it: it ends its loops then.
            let _ = self.wanted.thread_unblock();
            let _ = signal::raise(signal);
        }
        (self.leave)(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_terminal_is_a_hang_up() {
        assert_eq!(Reason::NoReader.signal(), 13);
        assert_eq!(Reason::NoTerminal.signal(), 1);
        assert_eq!(Reason::Signal(Signal::SIGTERM).signal(), 15);
    }

    #[test]
    fn without_news_a_verb_goes_on_after_the_time() {
        let ending = Ending::default();
        assert_eq!(ending.wait(Duration::from_millis(1)), None);
        ending.notes().reason = Some(Reason::NoReader);
        assert_eq!(
            ending.wait(Duration::from_secs(3600)),
            Some(Reason::NoReader)
        );
    }
}
