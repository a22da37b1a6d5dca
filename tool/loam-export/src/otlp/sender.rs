//! Sends metrics, and profiles by type, to an OpenTelemetry collector.
//!
//! ```text
//! every EVERY   look at all processes -> families -> requests of at most 20,000 figures
//!               -> POST /v1/metrics
//! rarely        census of each process on Loam -> request -> POST /v1development/profiles
//! ```
//!
//! Figures are sums since a program's start or present values, so a later look replaces an earlier
//! one. A look that can not be delivered before the next one is dropped, and nothing is queued:
//! memory is bounded by one look. Looks and censuses run on other threads; this one talks to the
//! collector and handles signals.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use hyper::body::Bytes;
use nix::time::{clock_gettime, ClockId};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use prost::Message;
use tokio::signal::unix::{signal, SignalKind};

use loam_census::census::Wanted;
use loam_census::document;
use loam_counters::watch::sampler::{Sampler, Tick};
use loam_format::plain;
use loam_process::process::{Identity, ProcessKey};

use super::collector::{Collector, Refused};
use super::metrics::Requests;
use super::profile;
use super::resource::{now, Machine};
use crate::Told;

/// The path of metrics, by the specification.
const METRICS: &str = "/v1/metrics";
/// The path of profiles, whose specification is in development.
const PROFILES: &str = "/v1development/profiles";
/// The pause before the first repetition. It doubles with each one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A longer pause is not made, whatever the collector wishes.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Censuses may take this part of one processor (1/N).
const SHARE: u32 = 200;

/// What is sent, and how often.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// To whom.
    pub collector: Collector,
    /// From look to look.
    pub every: Duration,
    /// One look, and then the end.
    pub once: bool,
    /// Size classes too.
    pub classes: bool,
    /// Profiles by type too, with this pause at least.
    pub types: Option<Duration>,
}

/// Runs until a signal ends it; with `once` until all was delivered.
pub fn run(delivery: Delivery, sampler: Sampler, tell: fn(Told)) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the exporter can not be set up")?;
    let sender = Rc::new(Sender {
        delivery,
        machine: Machine::here(),
        sampler: Arc::new(Mutex::new(sampler)),
        on_loam: RefCell::default(),
        trouble: RefCell::default(),
        tell,
    });
    let local = tokio::task::LocalSet::new();
    let done = local.block_on(&runtime, sender.run());
    // The exporter does not wait for a look that is being made.
    runtime.shutdown_background();
    done
}

/// What is not delivered at present.
#[derive(Debug, Default)]
struct Trouble {
    /// What was said last of each signal; nothing: all is well.
    said: [Option<String>; 2],
    /// How many looks were dropped since.
    dropped: [u64; 2],
}

/// One of the two kinds of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    Metrics,
    Profiles,
}

impl Signal {
    fn path(self) -> &'static str {
        match self {
            Signal::Metrics => METRICS,
            Signal::Profiles => PROFILES,
        }
    }

    /// What the collector did not take of a request that it answered well, in words.
    fn rejected(self, answer: Bytes) -> Result<Option<(i64, String)>, prost::DecodeError> {
        let part = match self {
            Signal::Metrics => ExportMetricsServiceResponse::decode(answer)?
                .partial_success
                .map(|part| (part.rejected_data_points, part.error_message)),
            Signal::Profiles => ExportProfilesServiceResponse::decode(answer)?
                .partial_success
                .map(|part| (part.rejected_profiles, part.error_message)),
        };
        Ok(part.filter(|(rejected, message)| *rejected != 0 || !message.is_empty()))
    }
}

struct Sender {
    delivery: Delivery,
    machine: Machine,
    sampler: Arc<Mutex<Sampler>>,
    /// The processes on Loam at the last look.
    on_loam: RefCell<Vec<Identity>>,
    trouble: RefCell<Trouble>,
    tell: fn(Told),
}

impl Sender {
    async fn run(self: Rc<Self>) -> Result<()> {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let work = async {
            if self.delivery.once {
                return self.once().await;
            }
            self.line(format!(
                "loam: metrics every {} to {}{METRICS}",
                humantime::format_duration(self.delivery.every),
                self.delivery.collector
            ));
            if self.delivery.types.is_some() {
                let sender = Rc::clone(&self);
                tokio::task::spawn_local(async move { sender.profiles().await });
            }
            self.metrics().await
        };
        tokio::select! {
            done = work => done,
            // A signal is the normal way to end, so this is a success.
            _ = interrupted.recv() => Ok(()),
            _ = terminated.recv() => Ok(()),
        }
    }

    async fn once(&self) -> Result<()> {
        let mut requests = self.look().await?;
        let (mut processes, mut figures) = (0, 0);
        while let Some((request, count)) = requests.next(&self.machine) {
            processes += request.resource_metrics.len();
            figures += count;
            self.send(Signal::Metrics, request.encode_to_vec().into(), None)
                .await
                .map_err(|refused| anyhow!(refused.why))?;
        }
        let mut profiles = 0;
        if self.delivery.types.is_some() {
            let all = self.on_loam.borrow().clone();
            for identity in all {
                let body = self.profile(&identity).await?;
                self.send(Signal::Profiles, body, None)
                    .await
                    .map_err(|refused| anyhow!(refused.why))?;
                profiles += 1;
            }
        }
        if let Some(said) = self.trouble.borrow().said.iter().flatten().next() {
            bail!("{said}");
        }
        // The first one is the exporter itself.
        let processes = processes.saturating_sub(1);
        let more = match self.delivery.types {
            Some(_) => format!(", profiles: {profiles}"),
            None => String::new(),
        };
        self.line(format!(
            "loam: delivered to {}: {figures} figures (processes: {processes}{more})",
            self.delivery.collector
        ));
        Ok(())
    }

    async fn metrics(&self) -> Result<()> {
        let every = self.delivery.every;
        let mut next = Instant::now();
        loop {
            next += every;
            let mut requests = self.look().await?;
            let mut is_delivered = true;
            while let Some((request, _)) = requests.next(&self.machine) {
                let body = request.encode_to_vec().into();
                is_delivered = self.send(Signal::Metrics, body, Some(next)).await.is_ok();
                if !is_delivered {
                    break;
                }
            }
            self.count_if_dropped(Signal::Metrics, is_delivered);
            // After a look that took longer than the pause, the next one follows at once, but no
            // two.
            next = next.max(Instant::now());
            tokio::time::sleep_until(next.into()).await;
        }
    }

    /// One look at all processes, on another thread.
    async fn look(&self) -> Result<Requests> {
        let sampler = Arc::clone(&self.sampler);
        let look = move || -> std::io::Result<Tick> {
            let mut sampler = sampler.lock().unwrap_or_else(PoisonError::into_inner);
            sampler.tick()
        };
        let tick = tokio::task::spawn_blocking(look)
            .await
            .context("the look failed")?
            .context("the list of processes can not be read")?;
        let on_loam = tick
            .samples
            .iter()
            .filter(|sample| sample.snapshot().is_some_and(|snapshot| !snapshot.is_peer));
        *self.on_loam.borrow_mut() = on_loam.map(|sample| sample.identity.clone()).collect();
        Ok(Requests::new(tick, self.delivery.classes, now()))
    }

    async fn profiles(&self) {
        let least = self.delivery.types.unwrap_or_default();
        let mut told: HashSet<ProcessKey> = HashSet::new();
        loop {
            let all = self.on_loam.borrow().clone();
            if all.is_empty() {
                // There was no look yet, or there is no process.
                tokio::time::sleep(FIRST_PAUSE).await;
                continue;
            }
            told.retain(|key| all.iter().any(|identity| identity.key == *key));
            let begun = processor_time();
            for identity in all {
                match self.profile(&identity).await {
                    Ok(body) => {
                        let until = Instant::now() + least;
                        let sent = self.send(Signal::Profiles, body, Some(until)).await;
                        self.count_if_dropped(Signal::Profiles, sent.is_ok());
                    }
                    Err(error) if told.insert(identity.key) => {
                        (self.tell)(Told::Warning(format!("no profile: {error:#}")));
                    }
                    Err(_) => {}
                }
            }
            let spent = processor_time().saturating_sub(begun);
            tokio::time::sleep(least.max(spent * SHARE)).await;
        }
    }

    /// A profile of one process, made on another thread.
    async fn profile(&self, identity: &Identity) -> Result<Bytes> {
        let key = identity.key;
        let taken = move || {
            let wanted = Wanted {
                wait: None,
                content: false,
            };
            let census = document::of_process(key.pid, wanted)?;
            // The number may be another process's by now.
            match Identity::sketch(key.pid) {
                Ok(now) if now.key == key => Ok(census),
                _ => Err(anyhow!("it has ended")),
            }
        };
        let census = tokio::task::spawn_blocking(taken).await;
        let census = census
            .context("the census failed")?
            .with_context(|| format!("{} ({})", plain::line(&identity.name), identity.key.pid))?;
        let request = profile::request(self.machine.process(identity), &census, now());
        Ok(request.encode_to_vec().into())
    }

    /// Sends a request, and again while the collector may take it later, until a moment; without
    /// one only once. What went wrong is said when it begins and when it changes.
    async fn send(
        &self,
        signal: Signal,
        body: Bytes,
        until: Option<Instant>,
    ) -> Result<(), Refused> {
        let mut pause = FIRST_PAUSE;
        loop {
            let sent = self
                .delivery
                .collector
                .post(signal.path(), body.clone())
                .await;
            let refused = match sent {
                Ok(answer) => {
                    self.look_at(signal, answer);
                    return Ok(());
                }
                Err(refused) => refused,
            };
            let Some(until) = until else {
                return Err(refused);
            };
            self.say(signal, &refused.why);
            // At random between half of it and all of it, so that many exporters do not come back
            // together.
            let random = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
            let wait = refused.after.unwrap_or(random).min(LONGEST_PAUSE);
            if !refused.may_be_repeated || Instant::now() + wait >= until {
                return Err(refused);
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// An answer to a request that was taken: was all of it?
    fn look_at(&self, signal: Signal, answer: Bytes) {
        let collector = &self.delivery.collector;
        let path = signal.path();
        match signal.rejected(answer) {
            Ok(None) => self.forget_trouble(signal),
            Ok(Some((0, message))) => self.say(
                signal,
                &format!("{collector}{path} warns: {}", shown(&message)),
            ),
            Ok(Some((rejected, message))) => self.say(
                signal,
                &format!("{collector}{path} rejected {rejected}: {}", shown(&message)),
            ),
            Err(error) => self.say(
                signal,
                &format!("{collector}{path} is no collector: its answer can not be read ({error})"),
            ),
        }
    }

    fn say(&self, signal: Signal, why: &str) {
        let said = &mut self.trouble.borrow_mut().said[signal as usize];
        if said.as_deref() != Some(why) {
            if !self.delivery.once {
                (self.tell)(Told::Warning(why.to_owned()));
            }
            *said = Some(why.to_owned());
        }
    }

    fn count_if_dropped(&self, signal: Signal, is_delivered: bool) {
        if !is_delivered {
            self.trouble.borrow_mut().dropped[signal as usize] += 1;
        }
    }

    /// All is well now.
    fn forget_trouble(&self, signal: Signal) {
        let mut trouble = self.trouble.borrow_mut();
        let dropped = std::mem::take(&mut trouble.dropped[signal as usize]);
        if trouble.said[signal as usize].take().is_some() {
            self.line(format!(
                "loam: {}{} takes everything again; {dropped} looks were dropped",
                self.delivery.collector,
                signal.path()
            ));
        }
    }

    fn line(&self, text: String) {
        (self.tell)(Told::Line(text));
    }
}

/// A collector's text, for a line.
fn shown(text: &str) -> String {
    plain::line(text).chars().take(200).collect()
}

/// The processor time of all threads.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
