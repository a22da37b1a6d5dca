//! Trims again and again: chooses, looks, trims, and tells what was done, as text and as metrics.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Error;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use loam_export::looks::{Page, Pages};
use loam_process::choose::{self, ChoiceError, Target};
use loam_process::process::{private_bytes, Identity, ProcessKey};
use loam_process::trim::keep::Keeper;
use loam_process::trim::Outcome;

use super::args::TrimOptions;
use super::{document, first_line, is_wanted, may_be_trimmed, one, predicted, text, Reason};
use crate::ending::Watch;
use crate::exit::Exit;
use crate::export;
use crate::output;

/// Runs until a signal ends it, or until none of the processes is left that were named by numbers.
/// A trim that has begun is brought to its end.
pub fn run(options: &TrimOptions, every: Duration) -> Result<Exit> {
    let tally = Tally::default();
    let Some(listen) = &options.listen else {
        let ending = Watch::in_good_order(&[]).begin()?;
        return rounds(options, every, &tally, &|pause| {
            ending.wait(pause).map(|_| Exit::Done)
        });
    };
    drop(Watch::pipe_signal_only().begin()?);
    let (end, ends) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let tally = &tally;
        scope.spawn(move || {
            let wait = |pause| match ends.recv_timeout(pause) {
                Err(RecvTimeoutError::Disconnected) => Some(Exit::Done),
                _ => None,
            };
            let exit = rounds(options, every, tally, &wait).unwrap_or_else(|error| {
                output::print_error(&error);
                Exit::Error
            });
            // Without them there is nothing to serve.
            std::process::exit(exit.code().into());
        });
        let exit = export::serve(listen, options.allow_remote, tally.clone());
        if let Err(error) = &exit {
            output::print_error(error);
            std::process::exit(Exit::of_error(error).code().into());
        }
        drop(end);
        exit
    })
}

fn rounds(
    options: &TrimOptions,
    every: Duration,
    tally: &Tally,
    wait: &dyn Fn(Duration) -> Option<Exit>,
) -> Result<Exit> {
    let mut keeper = Keeper::new(options.above, every, options.when_limit.is_none());
    let mut told = HashSet::new();
    loop {
        let begun = Instant::now();
        let found = processes(options)?;
        let alive: HashSet<ProcessKey> = found.iter().map(|identity| identity.key).collect();
        let is_by_number = |target: &Target| matches!(target, Target::Pid(_));
        let has_names = options.targets.iter().any(|target| !is_by_number(target));
        if alive.is_empty() && !options.targets.is_empty() && !has_names {
            output::say("loam: all of these processes have ended");
            return Ok(Exit::Done);
        }
        keeper.keep(&alive);
        told.retain(|(key, _)| alive.contains(key));
        for identity in &found {
            if let Some(exit) = wait(Duration::ZERO) {
                return Ok(exit);
            }
            round(options, &mut keeper, tally, &mut told, identity)?;
        }
        {
            let mut sums = tally.sums();
            sums.rounds += 1;
            sums.watched = alive.len() as u64;
            sums.resting = keeper.resting(Instant::now()) as u64;
        }
        if let Some(exit) = wait(every.saturating_sub(begun.elapsed())) {
            return Ok(exit);
        }
    }
}

/// The processes of a round. One that has ended, or a name that nothing has now, is no error: it
/// may come.
fn processes(options: &TrimOptions) -> Result<Vec<Identity>> {
    if options.targets.is_empty() {
        return Ok(choose::all()?);
    }
    let mut found = Vec::new();
    for target in &options.targets {
        match choose::find(target) {
            Ok(some) => found.extend(some),
            Err(ChoiceError::Unlisted(error)) => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(found)
}

/// What goes wrong with one process is told once.
fn round(
    options: &TrimOptions,
    keeper: &mut Keeper,
    tally: &Tally,
    told: &mut HashSet<(ProcessKey, String)>,
    identity: &Identity,
) -> Result<()> {
    let key = identity.key;
    let resident = || private_bytes(key.pid).unwrap_or(0);
    if !keeper.is_due(key, Instant::now(), resident())
        || !is_wanted(identity, options)
        || !may_be_trimmed(identity)
    {
        return Ok(());
    }
    let begun = Instant::now();
    let could = match predicted(identity) {
        Ok(found) => found.could,
        Err(reason) => return refused(options, tally, told, identity, reason),
    };
    if !keeper.is_worth(key, Instant::now(), begun.elapsed(), could) {
        return Ok(());
    }
    let looked = TrimOptions {
        above: 0,
        targets: Vec::new(),
        cgroup: None,
        listen: None,
        ..*options
    };
    let done = one(identity, &looked);
    let outcome = match &done {
        Ok(outcome) => outcome,
        Err(_) => {
            // The next one is tried after a pause as long as that of a look.
            let reason = done.err().unwrap_or(Reason::Little(0));
            return refused(options, tally, told, identity, reason);
        }
    };
    keeper.trimmed(key, Instant::now(), outcome.bytes, resident());
    tally.sums().add(&identity.name, outcome);
    let said = match options.json {
        true => document(identity, options, &done).to_string() + "\n",
        false => first_line(identity, options) + &text(outcome, false),
    };
    output::write_stdout(&said)?;
    Ok(())
}

fn refused(
    options: &TrimOptions,
    tally: &Tally,
    told: &mut HashSet<(ProcessKey, String)>,
    identity: &Identity,
    reason: Reason,
) -> Result<()> {
    *tally
        .sums()
        .refused
        .entry(identity.name.clone())
        .or_default() += 1;
    if told.insert((identity.key, reason.to_string())) {
        match options.json {
            true => {
                let line = document(identity, options, &Err(reason)).to_string() + "\n";
                output::write_stdout(&line)?;
            }
            false => output::print_warning(&format!("process {}: {reason}", identity.key.pid)),
        }
    }
    Ok(())
}

/// What was done until now.
#[derive(Debug, Clone, Default)]
struct Tally(Arc<Mutex<Sums>>);

impl Tally {
    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Default)]
struct Sums {
    rounds: u64,
    watched: u64,
    resting: u64,
    refused: BTreeMap<String, u64>,
    of: BTreeMap<String, OfName>,
}

/// Of all processes with one name.
#[derive(Debug, Clone, Default)]
struct OfName {
    trims: u64,
    given: u64,
    stops: u64,
    stood: Duration,
    longest: Duration,
}

impl Sums {
    fn add(&mut self, name: &str, outcome: &Outcome) {
        let of = self.of.entry(name.to_owned()).or_default();
        of.trims += 1;
        of.given += outcome.bytes;
        of.stops += outcome.slices + outcome.futile;
        of.stood += outcome.stood;
        of.longest = of.longest.max(outcome.longest);
    }
}

impl Pages for Tally {
    async fn page(&self) -> Result<Arc<Page>, String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.sums().clone()));
        let mut text = String::new();
        encode(&mut text, &registry).map_err(|error| error.to_string())?;
        Ok(Arc::new(Page::new(text)))
    }
}

impl Collector for Sums {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let encoder = &mut encoder;
        let plain = |encoder: &mut DescriptorEncoder, name, help, value: u64| {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as f64).encode(metric)
        };
        plain(
            encoder,
            "loam_trim_watched_processes",
            "processes that are looked at",
            self.watched,
        )?;
        plain(
            encoder,
            "loam_trim_resting_processes",
            "processes that are left alone because their pages came back within a minute",
            self.resting,
        )?;
        let rounds = encoder.encode_descriptor(
            "loam_trim_rounds",
            "how often all processes were gone through",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(self.rounds).encode(rounds)?;
        let of = |figure: fn(&OfName) -> f64| {
            move |sums: &Sums| -> Vec<(String, f64)> {
                sums.of
                    .iter()
                    .map(|(name, of)| (name.clone(), figure(of)))
                    .collect()
            }
        };
        let refused: Vec<(String, f64)> = self
            .refused
            .iter()
            .map(|(name, count)| (name.clone(), *count as f64))
            .collect();
        for (name, help, is_sum, series) in [
            (
                "loam_trim_trims",
                "trims",
                true,
                of(|of| of.trims as f64)(self),
            ),
            (
                "loam_trim_given_back_bytes",
                "resident bytes given back",
                true,
                of(|of| of.given as f64)(self),
            ),
            (
                "loam_trim_stops",
                "stops of a thread",
                true,
                of(|of| of.stops as f64)(self),
            ),
            (
                "loam_trim_stopped_seconds",
                "how long threads stood, with waits for a processor",
                true,
                of(|of| of.stood.as_secs_f64())(self),
            ),
            (
                "loam_trim_longest_stop_seconds",
                "the longest stop, with waits for a processor",
                false,
                of(|of| of.longest.as_secs_f64())(self),
            ),
            (
                "loam_trim_refused",
                "trims and looks that were not possible",
                true,
                refused,
            ),
        ] {
            if series.is_empty() {
                continue;
            }
            let kind = if is_sum {
                MetricType::Counter
            } else {
                MetricType::Gauge
            };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for (name, value) in series {
                let labels = vec![("comm", name)];
                let one = metric.encode_family(&labels)?;
                match is_sum {
                    true => ConstCounter::new(value).encode(one)?,
                    false => ConstGauge::new(value).encode(one)?,
                }
            }
        }
        Ok(())
    }
}
