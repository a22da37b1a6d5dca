//! Finds the processes that are on Loam, and reads their counters, tick by tick.
//!
//! A tick may come ten times a second, so each must cost little. For a known process, a tick needs
//! two files that stay open and a few copies of its memory. The list of processes is read again
//! once a second, or more rarely if the ticks are rarer. Costly data of a heap is read when it is
//! worth its cost (`crate::Watch`).
//!
//! ```text
//!  tick    list of processes (never waits) --> jobs, the known ones first --> samples
//!  worker  identify, locate, read: all that a process can hold up (`loam_process::apart`)
//! ```
//!
//! A process that holds up the look delays it by a second at most, and is not looked at again until
//! it lets go. Its sample says what the look waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regex_lite::Regex;

use loam_format::counters::ids;
use loam_format::memory::ReadError;
use loam_format::plain::printable;
use loam_process::apart::{Crew, Doing, MOST_LEFT};
use loam_process::budget::Budget;
use loam_process::process::{Files, Identity, Outline, ProcessKey, Stat};
use loam_process::remote::ProcessMemory;
use loam_process::{choose, mappings};

use crate::{locate, CountersError, Snapshot, Watch};

/// Which processes are watched.
#[derive(Debug, Clone)]
pub enum Interest {
    /// Every process on Loam; with a pattern, only those with a matching name.
    OnLoam(Option<Regex>),
    /// These processes only, on Loam or not.
    Only(Vec<ProcessKey>),
}

/// The figures of a process at a tick.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Which process it is.
    pub identity: Identity,
    /// The system's figures.
    pub outline: Outline,
    /// The heap's figures; none if the process is not on Loam.
    pub counters: Result<Option<Snapshot>, CountersError>,
    /// When it was read.
    pub at: Instant,
}

impl Sample {
    /// The counters, if there are any.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.counters.as_ref().ok().and_then(Option::as_ref)
    }
}

/// One look at all processes.
#[derive(Debug, Clone, Default)]
pub struct Tick {
    /// The processes that were found, by number.
    pub samples: Vec<Sample>,
    /// Number of processes that may not be looked into. They may be on Loam or not.
    pub refused: usize,
}

/// What is known about the place of a process's counters.
#[derive(Debug, Clone)]
enum Place {
    /// The process was not looked at yet.
    Unknown,
    /// The counters are at this address.
    At(u64),
    /// The process is on Loam, but its counters may not be read.
    Refused(CountersError),
    /// The process was not on Loam at the last look.
    None(Instant),
    /// The system does not allow a look at the process.
    Hidden(Instant),
}

/// Time until the next look at a process that is not on Loam: a program may load the library after
/// its start.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The list of processes and their names is at most this old.
const OLDEST: Duration = Duration::from_secs(1);
/// How many processes keep their files open. The files of further processes are opened at every
/// tick.
const MOST_OPEN: usize = 128;

/// A process between ticks.
#[derive(Debug)]
struct Watched {
    identity: Identity,
    identified: Instant,
    /// Whether the process has the wanted name, and memory to look at.
    is_meant: bool,
    place: Place,
    watch: Watch,
    files: Option<Files>,
}

/// A process in the sampler's list.
#[derive(Debug)]
enum Known {
    /// The process was not looked at yet.
    New,
    /// It was looked at.
    Here(Box<Watched>),
    /// A worker looks at it.
    Away,
}

impl Known {
    /// Whether its counters have been found, and no worker looks at it now.
    fn is_on_loam(&self) -> bool {
        matches!(self, Known::Here(watched) if matches!(watched.place, Place::At(_)))
    }
}

/// One look at one process.
struct Job {
    watched: Option<Box<Watched>>,
    may_keep_files: bool,
}

type Jobs = Vec<(ProcessKey, Job)>;

/// The result of a look. None: the process has ended. Otherwise the data to keep, and the sample to
/// show.
type Seen = Option<(Box<Watched>, Option<Sample>)>;

/// The settings of a look.
#[derive(Debug)]
struct Purpose {
    pattern: Option<Regex>,
    shows_others: bool,
    is_brief: bool,
}

/// Remembers what is costly to find out.
pub struct Sampler {
    interest: Interest,
    known: BTreeMap<ProcessKey, Known>,
    listing: Budget,
    crew: Crew<ProcessKey, Job, Seen>,
}

impl Sampler {
    /// Begins to watch.
    pub fn new(interest: Interest) -> Sampler {
        Sampler::with(interest, false)
    }

    /// A sampler without the figures of single classes and locks.
    pub fn brief(interest: Interest) -> Sampler {
        Sampler::with(interest, true)
    }

    fn with(interest: Interest, is_brief: bool) -> Sampler {
        let purpose = Purpose {
            pattern: match &interest {
                Interest::OnLoam(pattern) => pattern.clone(),
                Interest::Only(_) => None,
            },
            shows_others: matches!(interest, Interest::Only(_)),
            is_brief,
        };
        let purpose = Arc::new(purpose);
        Sampler {
            interest,
            known: BTreeMap::new(),
            listing: Budget::default(),
            crew: Crew::new(choose::PATIENCE, move |key, job| look(&purpose, *key, job)),
        }
    }

    /// Looks at all processes once, for five seconds at most. Only an unreadable list of processes
    /// is an error.
    pub fn tick(&mut self) -> std::io::Result<Tick> {
        match &self.interest {
            Interest::OnLoam(_) => {
                if self.listing.is_due(OLDEST) {
                    let look = self.listing.begin();
                    self.list()?;
                    self.listing.end(look);
                }
            }
            Interest::Only(keys) => {
                for key in keys {
                    self.known.entry(*key).or_insert(Known::New);
                }
            }
        }
        let mut tick = Tick::default();
        let (tried, new) = self.jobs();
        let until = Instant::now() + choose::LONGEST;
        // A process that could be read before most likely can be read again. New processes must not
        // use up the workers.
        for (jobs, most_left) in [(tried, MOST_LEFT), (new, MOST_LEFT / 2)] {
            let outcome = self.crew.run(jobs, until, most_left);
            for (key, seen) in outcome.done {
                self.take(key, seen, &mut tick);
            }
            let is_full = self.crew.in_hand().len() >= most_left;
            for (key, job) in outcome.undone {
                let known = job.watched.map_or(Known::New, Known::Here);
                // A process that was not looked at yet waits for the next tick, unless the workers
                // are used up.
                let is_shown = known.is_on_loam() || is_full && matches!(known, Known::New);
                self.known.insert(key, known);
                if is_shown {
                    tick.samples.extend(self.silent(key, Doing::Nothing));
                }
            }
        }
        for (key, doing) in self.crew.in_hand() {
            tick.samples.extend(self.silent(key, doing));
        }
        tick.samples.sort_by_key(|sample| sample.identity.key);
        let watched = self.known.values().filter_map(|known| match known {
            Known::Here(watched) => Some(watched),
            Known::New | Known::Away => None,
        });
        let hidden = watched.filter(|watched| matches!(watched.place, Place::Hidden(_)));
        tick.refused = hidden.count();
        Ok(tick)
    }

    /// Finds the processes. Reads nothing that a process can hold up.
    fn list(&mut self) -> std::io::Result<()> {
        let mut old = std::mem::take(&mut self.known);
        for pid in choose::pids()? {
            let first = ProcessKey { pid, started: 0 };
            let known = old.range(first..).next().filter(|(key, _)| key.pid == pid);
            // For a process on Loam, the look itself shows whether it is still the same.
            let is_read = known.is_some_and(|(_, known)| known.is_on_loam());
            let key = known.map(|(key, _)| *key).filter(|_| is_read);
            let (key, name) = match key {
                Some(key) => (key, None),
                None => match Stat::read(pid) {
                    Ok(stat) if stat.is_of_the_kernel() || stat.is_dead() => continue,
                    Ok(stat) => (stat.key(pid), Some(printable(&stat.name))),
                    Err(_) => continue,
                },
            };
            let known = match old.remove(&key) {
                // The process has become another program by `exec`.
                Some(Known::Here(watched))
                    if name.is_some_and(|name| name != watched.identity.name) =>
                {
                    Known::New
                }
                Some(known) => known,
                None => Known::New,
            };
            self.known.insert(key, known);
        }
        Ok(())
    }

    /// The processes to look at: those with known counters, and the others.
    fn jobs(&mut self) -> (Jobs, Jobs) {
        let (mut tried, mut new) = (Jobs::new(), Jobs::new());
        let shows_others = matches!(self.interest, Interest::Only(_));
        for (key, known) in &mut self.known {
            let is_on_loam = known.is_on_loam();
            let watched = match std::mem::replace(known, Known::Away) {
                Known::New => None,
                Known::Here(watched) if watched.is_due(shows_others) => Some(watched),
                other => {
                    *known = other;
                    continue;
                }
            };
            let may_keep_files = tried.len() + new.len() < MOST_OPEN;
            let jobs = if is_on_loam { &mut tried } else { &mut new };
            let job = Job {
                watched,
                may_keep_files,
            };
            jobs.push((*key, job));
        }
        (tried, new)
    }

    fn take(&mut self, key: ProcessKey, seen: Seen, tick: &mut Tick) {
        // A process that is no longer listed was held up until after its end.
        let Some(known) = self.known.get_mut(&key) else {
            return;
        };
        match seen {
            Some((watched, sample)) => {
                *known = Known::Here(watched);
                tick.samples.extend(sample);
            }
            None => {
                self.known.remove(&key);
            }
        }
    }

    /// The sample of a process that was not read, if the process still exists and is wanted.
    fn silent(&self, key: ProcessKey, doing: Doing) -> Option<Sample> {
        self.known.get(&key)?;
        let identity = Identity::sketch(key.pid).ok()?;
        let is_meant = match &self.interest {
            Interest::OnLoam(pattern) => is_meant(&identity, pattern.as_ref()),
            Interest::Only(_) => true,
        };
        (is_meant && identity.key == key).then_some(())?;
        let outline = Outline::read(key.pid).ok()?;
        Some(Sample {
            identity,
            outline,
            counters: Err(CountersError::Silent(doing)),
            at: Instant::now(),
        })
    }
}

fn is_meant(identity: &Identity, pattern: Option<&Regex>) -> bool {
    pattern.is_none_or(|pattern| identity.names().any(|name| pattern.is_match(name)))
}

/// Looks at one process.
fn look(purpose: &Purpose, key: ProcessKey, job: Job) -> Seen {
    let mut watched = match job.watched {
        Some(watched) => watched,
        None => Box::new(Watched::new(key, purpose)?),
    };
    if !watched.is_meant {
        return Some((watched, None));
    }
    watched.watch.set_brief(purpose.is_brief);
    let sample = watched.sample(purpose, job.may_keep_files).ok()?;
    Some((watched, sample))
}

/// A process that has ended.
struct Gone;

impl Watched {
    /// None if the process has ended.
    fn new(key: ProcessKey, purpose: &Purpose) -> Option<Watched> {
        let identity = Identity::read(key.pid).ok()?;
        if identity.key != key {
            return None;
        }
        let is_meant = is_meant(&identity, purpose.pattern.as_ref());
        if identity.require_memory().is_err() {
            return None;
        }
        Some(Watched {
            identity,
            identified: Instant::now(),
            is_meant,
            place: Place::Unknown,
            watch: Watch::default(),
            files: None,
        })
    }

    /// Whether a look might show something.
    fn is_due(&self, shows_others: bool) -> bool {
        let may_be_on_loam = match &self.place {
            Place::Unknown | Place::At(_) | Place::Refused(_) => true,
            Place::None(_) | Place::Hidden(_) => self.is_stale(),
        };
        self.is_meant && (shows_others || may_be_on_loam)
    }

    /// Whether its counters have to be searched (again).
    fn is_stale(&self) -> bool {
        match &self.place {
            Place::Unknown => true,
            Place::None(since) | Place::Hidden(since) => since.elapsed() > LOOK_AGAIN,
            Place::At(_) | Place::Refused(_) => false,
        }
    }

    /// The sample to show; none if the process is not on Loam and only processes on Loam are shown.
    fn sample(&mut self, purpose: &Purpose, may_keep: bool) -> Result<Option<Sample>, Gone> {
        let mut counters = self.counters();
        let is_shown =
            purpose.shows_others || !matches!(counters, Ok(None) | Err(CountersError::Ended));
        if !is_shown {
            return Ok(None);
        }
        // A process that has just ended gets no row.
        let outline = self.outline(purpose, may_keep).ok_or(Gone)?;
        if !self.is_meant {
            return Ok(None);
        }
        if let Ok(Some(snapshot)) = &mut counters {
            snapshot
                .process
                .set(ids::MINOR_FAULTS, outline.minor_faults);
            snapshot
                .process
                .set(ids::MAJOR_FAULTS, outline.major_faults);
        }
        Ok(Some(Sample {
            identity: self.identity.clone(),
            outline,
            counters,
            at: Instant::now(),
        }))
    }

    /// The system's figures, if this is still the same process. Updates its name if that changed.
    fn outline(&mut self, purpose: &Purpose, may_keep: bool) -> Option<Outline> {
        let key = self.identity.key;
        let mut files = match self.files.take() {
            Some(files) => files,
            None => Files::open(key.pid).ok()?,
        };
        let glance = files.read().ok()?;
        let stat = &glance.stat;
        if stat.started != key.started {
            return None;
        }
        let is_renamed = printable(&stat.name) != self.identity.name;
        let may_be_another = is_renamed || self.identified.elapsed() > OLDEST;
        if may_be_another || !glance.has_memory {
            let identity = Identity::again(&files, &glance);
            if identity.require_memory().is_err() {
                return None;
            }
            self.is_meant = is_meant(&identity, purpose.pattern.as_ref());
            self.identity = identity;
            self.identified = Instant::now();
        }
        self.identity.state = stat.state;
        self.files = may_keep.then_some(files);
        Some(glance.outline)
    }

    fn counters(&mut self) -> Result<Option<Snapshot>, CountersError> {
        let key = self.identity.key;
        if self.is_stale() {
            self.place = locate(key);
        }
        match &self.place {
            Place::At(address) => {
                let read = self.watch.look(&ProcessMemory::of(key.pid), *address);
                if matches!(read, Err(CountersError::Directory(_))) {
                    // The process may have called `exec`. The next tick searches its counters
                    // again.
                    self.place = Place::Unknown;
                }
                read.map(Some)
            }
            // The image that the process publishes is used, if there is one.
            Place::Refused(error) => {
                let published = crate::published(key.pid);
                published.map(Some).ok_or_else(|| error.clone())
            }
            _ => Ok(None),
        }
    }
}

fn locate(key: ProcessKey) -> Place {
    let nowhere = Place::None(Instant::now());
    let mappings = match mappings::read_files(key.pid) {
        Ok(mappings) => mappings,
        Err(error) if error.is_gone() => return nowhere,
        Err(_) => return Place::Hidden(Instant::now()),
    };
    match locate::find(key.pid, &mappings) {
        Ok(Some(address)) => Place::At(address),
        Ok(None) => nowhere,
        Err(error @ ReadError::Denied(_)) => Place::Refused(error.into()),
        Err(_) => nowhere,
    }
}
