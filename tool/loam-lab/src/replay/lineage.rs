//! The events of a process, with those of its ancestors before the forks, as beginnings and ends of
//! blocks.

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::path::Path;

use loam_format::trace::{Act, Action, Batch, Item, Items, Ordered, Record, Repairs, Wanted};

use super::room::Room;
use super::survey::Survey;
use super::ReplayError;
use crate::measure::Stop;

/// How many events pass between two checks whether the user wants to stop.
const LOOK: u64 = 1 << 16;

/// The streams in the order of their lives. Each one except the last ends at its fork of the next
/// one.
pub fn of(survey: &Survey, stream: u32) -> Vec<u32> {
    let mut streams = vec![stream];
    let mut at = stream;
    while let Some(parent) = survey.forked_from(at) {
        // In a damaged trace, a process may be its own ancestor.
        if streams.contains(&parent) {
            break;
        }
        streams.push(parent);
        at = parent;
    }
    streams.reverse();
    streams
}

/// The child of a fork, as the parent's events describe it.
struct Forked {
    stream: u32,
    /// Time of the fork in nanoseconds, in whole units of the trace's clock, as events have it.
    at: u64,
}

impl Forked {
    fn of(survey: &Survey, stream: u32) -> Forked {
        let unit = survey.header.clock.unit_ns.max(1);
        let at = survey.processes.get(&stream).map(|one| one.process.at);
        Forked {
            stream,
            // 0: not known.
            at: at
                .filter(|at| *at > 0)
                .map_or(u64::MAX, |at| at / unit * unit),
        }
    }

    /// Whether a fork at that time made this child. The recorder does not know the child's stream
    /// at that time, so the time identifies it.
    fn is(&self, stream: u32, time: u64) -> bool {
        stream == self.stream || (stream == u32::MAX && time == self.at)
    }

    /// Whether the child existed before this event. A fork by system call is not recorded as an
    /// event.
    fn is_before(&self, record: &Record) -> bool {
        record.time > self.at
    }
}

/// The time up to which a stream's samples belong to the lineage: its fork of the next stream.
pub fn until(survey: &Survey, streams: &[u32], stream: u32) -> u64 {
    let at = streams.iter().position(|one| *one == stream);
    let next = at.and_then(|at| streams.get(at + 1));
    next.map_or(u64::MAX, |next| Forked::of(survey, *next).at)
}

/// What a walk hands to its visitor.
#[derive(Debug)]
pub enum Step<'a> {
    /// The meaning of an event.
    Act(&'a Act),
    /// The process forked. The parent's `thread` goes on as the child's thread 0; the other threads
    /// are gone.
    Forked {
        /// The thread that called `fork`.
        thread: u32,
        /// Number of events before the fork. Blocks of the child count their events from here.
        events: u64,
    },
}

/// The result of a walk.
#[derive(Debug, Clone, Copy, Default)]
pub struct Walked {
    /// Events.
    pub events: u64,
    /// What did not fit together.
    pub repairs: Repairs,
    /// Events in chunks that can not be read.
    pub missing: u64,
    /// Nanoseconds of the last event.
    pub last_time: u64,
}

/// Follows the streams and hands each act to `visit`, in an order that is possible.
pub fn walk(
    survey: &Survey,
    streams: &[u32],
    stop: &dyn Stop,
    mut visit: impl FnMut(Step) -> Result<(), ReplayError>,
) -> Result<Walked, ReplayError> {
    let path = &survey.path;
    let mut ordered = Ordered::new();
    let mut acts: Vec<Act> = Vec::new();
    let mut walked = Walked::default();
    let mut before = 0;
    let room = Room::of_this_process();
    for (at, stream) in streams.iter().enumerate() {
        let child = streams.get(at + 1).map(|child| Forked::of(survey, *child));
        let wanted = Wanted {
            events: true,
            tables: false,
        };
        let mut items = open(path, wanted)?.only(*stream);
        let (mut forked, mut last_thread) = (None, 0);
        'stream: while let Some(batch) = items.next_batch().map_err(|source| ReplayError::Read {
            path: path.to_owned(),
            source,
        })? {
            let Batch::Events(_, first, records) = batch else {
                continue;
            };
            for (number, record) in (before + first..).zip(records) {
                if child.as_ref().is_some_and(|child| child.is_before(record)) {
                    forked = Some((last_thread, number));
                    break 'stream;
                }
                last_thread = record.thread;
                walked.events += 1;
                if walked.events % LOOK == 0 {
                    if let Some(signal) = stop.signal() {
                        return Err(ReplayError::Interrupted(signal));
                    }
                }
                walked.last_time = walked.last_time.max(record.time);
                ordered.push_numbered(number, record, &mut acts);
                for act in acts.drain(..) {
                    if let Action::Fork { child: to } = act.action {
                        if child.as_ref().is_some_and(|child| child.is(to, act.time)) {
                            forked = Some((act.thread, number + 1));
                        }
                    }
                    visit(Step::Act(&act))?;
                }
                if forked.is_some() {
                    break 'stream;
                }
            }
            room.holds(ordered.held(), path)?;
        }
        walked.missing += items.missing();
        if let Some((thread, events)) = forked {
            before = events;
            visit(Step::Forked { thread, events })?;
        }
    }
    ordered.finish(&mut acts);
    for act in &acts {
        visit(Step::Act(act))?;
    }
    walked.repairs = ordered.repairs();
    Ok(walked)
}

/// Opens the file of a trace.
fn file(path: &Path) -> Result<File, ReplayError> {
    let no_file = |what, remedy| ReplayError::NoFile {
        path: path.to_owned(),
        what,
        remedy,
    };
    let opened = File::open(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => no_file(
            "there is no such trace",
            "`loam record --output FILE -- COMMAND` writes one",
        ),
        ErrorKind::PermissionDenied => no_file(
            "you may not read this file",
            "run this as the user whose file it is, or let others read it with `chmod a+r`",
        ),
        _ => ReplayError::Io {
            path: path.to_owned(),
            source,
        },
    })?;
    match opened.metadata() {
        Ok(metadata) if metadata.is_dir() => Err(no_file("this is a folder", "name a trace in it")),
        _ => Ok(opened),
    }
}

/// Fails if the trace can be read only once, or has no end. The callers need its events several
/// times.
pub fn require_file(path: &Path) -> Result<(), ReplayError> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Err(ReplayError::NoFile {
            path: path.to_owned(),
            what: "this is a pipe or a device, and a trace is read several times",
            remedy: "write it to a file and name that",
        }),
        // The reader reports other errors.
        _ => Ok(()),
    }
}

/// Opens a trace for reading.
pub fn open(path: &Path, wanted: Wanted) -> Result<Items<BufReader<File>>, ReplayError> {
    let file = file(path)?;
    Items::new(BufReader::with_capacity(1 << 18, file), wanted).map_err(|source| {
        ReplayError::Read {
            path: path.to_owned(),
            source,
        }
    })
}

/// The processes, samples and the like of a trace, without its events.
pub fn items(
    path: &Path,
    mut visit: impl FnMut(u32, Item) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
    let wanted = Wanted {
        events: false,
        tables: true,
    };
    for item in open(path, wanted)? {
        let (stream, item) = item.map_err(|source| ReplayError::Read {
            path: path.to_owned(),
            source,
        })?;
        visit(stream, item)?;
    }
    Ok(())
}
