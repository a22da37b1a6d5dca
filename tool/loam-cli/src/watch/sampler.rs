//! Finding the processes that are on Loam, and reading their counters, tick by tick.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use regex_lite::Regex;

use crate::counters::locate::{self, Effort};
use crate::counters::{self, read_memory, CountersError, Passes, Snapshot};
use crate::observe::choose;
use crate::observe::mappings;
use crate::observe::process::{Identity, Outline, ProcessKey};
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
    /// There.
    At(u64),
    /// It is on Loam and may not be read.
    Refused(CountersError),
    /// Not on Loam when it was last looked at.
    None(Instant),
}

/// A program may load the library later than it starts.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Remembers what is costly to find out.
#[derive(Debug)]
pub struct Sampler {
    interest: Interest,
    places: HashMap<ProcessKey, Place>,
    refused: HashSet<ProcessKey>,
}

impl Sampler {
    /// Begins.
    pub fn new(interest: Interest) -> Sampler {
        Sampler {
            interest,
            places: HashMap::new(),
            refused: HashSet::new(),
        }
    }

    /// Looks at everybody once. Only an unreadable list of processes is an error.
    pub fn tick(&mut self) -> std::io::Result<Tick> {
        let candidates = match &self.interest {
            Interest::OnLoam(None) => choose::all()?,
            Interest::OnLoam(Some(pattern)) => choose::matching(pattern)?,
            Interest::Only(keys) => keys
                .iter()
                .filter_map(|key| {
                    let identity = Identity::read(key.pid).ok()?;
                    (identity.key == *key && identity.require_memory().is_ok()).then_some(identity)
                })
                .collect(),
        };
        let alive: HashSet<ProcessKey> = candidates.iter().map(|identity| identity.key).collect();
        self.places.retain(|key, _| alive.contains(key));
        self.refused.clear();
        let shows_others = matches!(self.interest, Interest::Only(_));
        let mut tick = Tick::default();
        for identity in candidates {
            if let Some(sample) = self.sample(identity, shows_others) {
                tick.samples.push(sample);
            }
        }
        tick.refused = self.refused.len();
        Ok(tick)
    }

    fn sample(&mut self, identity: Identity, shows_others: bool) -> Option<Sample> {
        let key = identity.key;
        let counters = self.counters(key, shows_others);
        let is_shown = shows_others || !matches!(counters, Ok(None) | Err(CountersError::Ended));
        if !is_shown {
            return None;
        }
        // One that has just ended leaves no row.
        let outline = Outline::read(key.pid).ok()?;
        if Identity::read(key.pid).ok()?.key != key {
            return None;
        }
        let mut counters = counters;
        if let Ok(Some(snapshot)) = &mut counters {
            snapshot.process.set("minor_faults", outline.minor_faults);
            snapshot.process.set("major_faults", outline.major_faults);
        }
        Some(Sample {
            identity,
            outline,
            counters,
            at: Instant::now(),
        })
    }

    fn counters(
        &mut self,
        key: ProcessKey,
        thorough: bool,
    ) -> Result<Option<Snapshot>, CountersError> {
        let known = self.places.get(&key);
        let is_stale = match known {
            Some(Place::None(since)) => since.elapsed() > LOOK_AGAIN,
            Some(_) => false,
            None => true,
        };
        if is_stale {
            let place = self.locate(key, thorough);
            self.places.insert(key, place);
        }
        match self.places.get(&key) {
            Some(Place::At(address)) => {
                let read = read_memory(&ProcessMemory(key.pid), *address, Passes::One);
                if matches!(read, Err(CountersError::Directory(_))) {
                    // Another program by exec, perhaps: it is looked for anew at the next tick.
                    self.places.remove(&key);
                }
                read.map(Some)
            }
            // The image that it publishes serves, if it does.
            Some(Place::Refused(error)) => {
                let published = counters::published(key.pid);
                published.map(Some).ok_or_else(|| error.clone())
            }
            _ => Ok(None),
        }
    }

    fn locate(&mut self, key: ProcessKey, thorough: bool) -> Place {
        let nowhere = Place::None(Instant::now());
        let mappings = match mappings::read_names(key.pid) {
            Ok(mappings) => mappings,
            Err(error) => {
                if !error.is_gone() {
                    self.refused.insert(key);
                }
                return nowhere;
            }
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
}
