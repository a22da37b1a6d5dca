//! Finding the processes that are on Loam, and reading their counters, tick by tick.
//!
//! A tick may come ten times a second, so each costs as little as may be. What a tick needs of a process
//! that is known is two files that stay open and a few copies of its memory. Who a process is and which
//! processes there are is found out anew once a second, or more rarely if the ticks are; and what of a
//! heap is dear when that is worth it (`counters::Watch`).

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use regex_lite::Regex;

use crate::counters::locate::{self, Effort};
use crate::counters::{self, CountersError, Snapshot, Watch};
use crate::observe::budget::Budget;
use crate::observe::choose;
use crate::observe::mappings;
use crate::observe::process::{Files, Identity, Outline, ProcessKey};
use crate::observe::remote::{ProcessMemory, ReadError};

/// Who is watched.
#[derive(Debug, Clone)]
pub enum Interest {
    /// Every process on Loam, if it has the name where there is a pattern.
    OnLoam(Option<Regex>),
    /// These, on Loam or not, and nobody else.
    Only(Vec<ProcessKey>),
}

/// What is known of a process at a tick.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Who it is.
    pub identity: Identity,
    /// The system's figures.
    pub outline: Outline,
    /// The heap's; none where the process is not on Loam.
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

/// One look at everybody.
#[derive(Debug, Clone, Default)]
pub struct Tick {
    /// Who was found, by number.
    pub samples: Vec<Sample>,
    /// Processes that may not be looked into, and so may be on Loam or not.
    pub refused: usize,
}

/// What is known about where a process's counters are.
#[derive(Debug, Clone)]
enum Place {
    /// Nobody has looked yet.
    Unknown,
    /// There.
    At(u64),
    /// It is on Loam and may not be read.
    Refused(CountersError),
    /// Not on Loam when it was last looked at.
    None(Instant),
    /// Nobody lets us know.
    Hidden(Instant),
}

/// A program may load the library later than it starts.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The list of processes, and what they are called, is at most so old.
const OLDEST: Duration = Duration::from_secs(1);
/// Processes whose files stay open; those of more are opened at every tick.
const MOST_OPEN: usize = 128;

/// A process between ticks.
#[derive(Debug)]
struct Watched {
    identity: Identity,
    identified: Instant,
    place: Place,
    watch: Watch,
    files: Option<Files>,
}

impl Watched {
    fn new(identity: Identity) -> Watched {
        Watched {
            identity,
            identified: Instant::now(),
            place: Place::Unknown,
            watch: Watch::default(),
            files: None,
        }
    }
}

/// Remembers what is costly to find out.
#[derive(Debug)]
pub struct Sampler {
    interest: Interest,
    /// Without the figures of single classes and locks, which nobody shows.
    is_brief: bool,
    watched: BTreeMap<ProcessKey, Watched>,
    listing: Budget,
}

impl Sampler {
    /// Begins.
    pub fn new(interest: Interest) -> Sampler {
        Sampler {
            interest,
            is_brief: false,
            watched: BTreeMap::new(),
            listing: Budget::default(),
        }
    }

    /// Without the figures of single classes and locks.
    pub fn brief(interest: Interest) -> Sampler {
        Sampler {
            is_brief: true,
            ..Sampler::new(interest)
        }
    }

    /// Looks at everybody once. Only an unreadable list of processes is an error.
    pub fn tick(&mut self) -> std::io::Result<Tick> {
        match &self.interest {
            Interest::OnLoam(pattern) => {
                if self.listing.is_due(OLDEST) {
                    let look = self.listing.begin();
                    let found = match pattern {
                        None => choose::all()?,
                        Some(pattern) => choose::matching(pattern)?,
                    };
                    self.listing.end(look);
                    self.take(found);
                }
            }
            Interest::Only(keys) => {
                for key in keys {
                    if !self.watched.contains_key(key) {
                        let identity = Identity::read(key.pid).ok();
                        let same = identity.filter(|identity| {
                            identity.key == *key && identity.require_memory().is_ok()
                        });
                        self.watched
                            .extend(same.map(|same| (*key, Watched::new(same))));
                    }
                }
            }
        }
        let shows_others = matches!(self.interest, Interest::Only(_));
        let mut tick = Tick::default();
        let mut open = self
            .watched
            .values()
            .filter(|one| one.files.is_some())
            .count();
        self.watched.retain(|_, watched| {
            watched.watch.set_brief(self.is_brief);
            let had_files = watched.files.is_some();
            let sample = watched.sample(shows_others, open < MOST_OPEN);
            open += usize::from(watched.files.is_some() && !had_files);
            tick.refused += usize::from(matches!(watched.place, Place::Hidden(_)));
            match sample {
                Ok(sample) => {
                    tick.samples.extend(sample);
                    true
                }
                Err(Gone) => false,
            }
        });
        Ok(tick)
    }

    /// These there are, and no others.
    fn take(&mut self, found: Vec<Identity>) {
        let alive: HashSet<ProcessKey> = found.iter().map(|identity| identity.key).collect();
        self.watched.retain(|key, _| alive.contains(key));
        for identity in found {
            match self.watched.get_mut(&identity.key) {
                Some(known) => {
                    known.identity = identity;
                    known.identified = Instant::now();
                }
                None => {
                    self.watched.insert(identity.key, Watched::new(identity));
                }
            }
        }
    }
}

/// A process that has ended.
struct Gone;

impl Watched {
    /// What is to be shown of it; nothing if it is not on Loam and only such are shown.
    fn sample(&mut self, shows_others: bool, may_keep: bool) -> Result<Option<Sample>, Gone> {
        let mut counters = self.counters(shows_others);
        let is_shown = shows_others || !matches!(counters, Ok(None) | Err(CountersError::Ended));
        if !is_shown {
            return Ok(None);
        }
        // One that has just ended leaves no row.
        let outline = self.outline(may_keep).ok_or(Gone)?;
        if let Ok(Some(snapshot)) = &mut counters {
            snapshot.process.set("minor_faults", outline.minor_faults);
            snapshot.process.set("major_faults", outline.major_faults);
        }
        Ok(Some(Sample {
            identity: self.identity.clone(),
            outline,
            counters,
            at: Instant::now(),
        }))
    }

    /// The system's figures, if it is still this process; and its name, if that is another now.
    fn outline(&mut self, may_keep: bool) -> Option<Outline> {
        let key = self.identity.key;
        let files = match self.files.take() {
            Some(files) => files,
            None => Files::open(key.pid).ok()?,
        };
        let (stat, outline) = files.read().ok()?;
        self.files = may_keep.then_some(files);
        if stat.started != key.started {
            return None;
        }
        let may_be_another = stat.name != self.identity.name || self.identified.elapsed() > OLDEST;
        let is_dead = matches!(stat.state, 'Z' | 'X' | 'x');
        if may_be_another || is_dead {
            let identity = Identity::read(key.pid).ok()?;
            if identity.key != key || identity.require_memory().is_err() {
                return None;
            }
            self.identity = identity;
            self.identified = Instant::now();
        }
        self.identity.state = stat.state;
        Some(outline)
    }

    fn counters(&mut self, thorough: bool) -> Result<Option<Snapshot>, CountersError> {
        let key = self.identity.key;
        let is_stale = match &self.place {
            Place::Unknown => true,
            Place::None(since) | Place::Hidden(since) => since.elapsed() > LOOK_AGAIN,
            Place::At(_) | Place::Refused(_) => false,
        };
        if is_stale {
            self.place = locate(key, thorough);
        }
        match &self.place {
            Place::At(address) => {
                let read = self.watch.look(&ProcessMemory(key.pid), *address);
                if matches!(read, Err(CountersError::Directory(_))) {
                    // Another program by exec, perhaps: it is looked for anew at the next tick.
                    self.place = Place::Unknown;
                }
                read.map(Some)
            }
            // The image that it publishes serves, if it does.
            Place::Refused(error) => {
                let published = counters::published(key.pid);
                published.map(Some).ok_or_else(|| error.clone())
            }
            _ => Ok(None),
        }
    }
}

fn locate(key: ProcessKey, thorough: bool) -> Place {
    let nowhere = Place::None(Instant::now());
    let mappings = match mappings::read_names(key.pid) {
        Ok(mappings) => mappings,
        Err(error) if error.is_gone() => return nowhere,
        Err(_) => return Place::Hidden(Instant::now()),
    };
    let effort = if thorough {
        Effort::Thorough
    } else {
        Effort::Quick
    };
    match locate::find(key.pid, &mappings, effort) {
        Ok(Some(address)) => Place::At(address),
        Ok(None) => nowhere,
        Err(error @ ReadError::Denied(_)) => Place::Refused(error.into()),
        Err(_) => nowhere,
    }
}
