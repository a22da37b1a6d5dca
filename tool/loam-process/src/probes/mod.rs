//! Which blocks of a running process stay, and under which stacks they were asked for: by probes on
//! its allocator's functions that are set for short times.
//!
//! ```text
//! Off ----> Window: entries with stacks, returns, frees ----> Watch: frees ----> Off
//!   ^  credit is there      a part of it is spent, or enough blocks     credit is spent
//! ```
//!
//! **Cost.** Each probe has a price (`price`), which is spent from a credit. The credit grows by a
//! share of the process's own processor time. In a process that asks for few blocks all of this
//! costs less than that, and the window never ends.
//!
//! **Weights.** A round lasts from one window's begin to the next one's. A block of the window
//! stands for `own time of the round / own time of the window` blocks: own time is the process's
//! processor time without what the probes took. So the sum over the blocks that still live has no
//! bias, whenever windows begin: it estimates what was handed out since the first window and lives
//! (Horvitz and Thompson's estimator).
//!
//! **Survivors.** A block is dead as soon as a probe sees its free, or another block at its place.
//! While frees are not watched, a walk of the heap from outside may tell: the caller does it, and
//! tells sizes of the places that it was asked for. A place that is taken again by a block of the
//! same size while nobody looks counts as the old block.
//!
//! The kernel takes the probes out with the last descriptor, so a tool that is killed leaves none.

mod callers;
mod entries;
mod faults;
mod followed;
mod kernel;
mod pairs;
mod price;
mod program;
mod rounds;
mod system;
#[cfg(test)]
mod tests;

use std::io;
use std::time::{Duration, Instant};

pub use entries::Source;
pub use faults::Faults;
pub use followed::{Address, Living};
pub use rounds::Estimate;

use crate::mappings;
use crate::process::{Pid, ProcessError, Stat};
use crate::python::Interpreter;
use crate::remote::ProcessMemory;
use crate::rings::now;
use crate::sites::{Change, Sites};
use callers::Callers;
use entries::Call;
use followed::{Clocks, Followed};
use kernel::{Event, Kernel};
use loam_format::memory::Memory;
use pairs::{Block, Pairs, Said};
use price::Prices;
use program::Kind;
use rounds::{Round, Spent};
use system::Link;

/// What may be spent before the process has earned it, once. Chosen: some thousand blocks, so that
/// a short look sees something.
const CREDIT: Duration = Duration::from_millis(40);
/// A window begins when the credit of so much time is there. Chosen: many windows of some hundred
/// blocks say more than few of many, and setting the probes costs less than what they tell.
const ROUND: Duration = Duration::from_secs(1);
/// The process's own time counts as at least this part of the time: one that sleeps may be watched
/// too.
const LEAST: f64 = 0.1;
/// After a window so many frees are watched for each block of it. Chosen: of blocks that live as
/// long as others, but for what stays, few are left then.
const WATCHED: u64 = 8;
/// The least time between two windows, and how long a round is at least.
const SHORTEST: Duration = Duration::from_millis(500);
/// The most blocks that are followed, and the most of a window: their stacks wait in memory.
const MOST_BLOCKS: usize = 500_000;
const MOST_OF_A_WINDOW: usize = 2_000;
/// A window takes one part in so many of the blocks that may still be followed, so that there is
/// always room.
const PART: usize = 200;
/// How long events wait to be read, by how fast they come.
const PASSES: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(20),
];
/// How often the blocks are looked for by a walk, and which part of the time walks may take.
const LOOK: Duration = Duration::from_secs(5);
const LOOKS: u32 = 10;
/// Walks during which more events would come are put off: the ring holds more than these.
const MOST_MEANWHILE: f64 = 100_000.0;
/// So many rounds before tell what is usual.
const USUAL: usize = 30;
/// The process's time is read again if that took so many nanoseconds, and so often.
const AT_ONCE: u64 = 20_000;
const READS: usize = 5;
/// How often it is checked whether the process is still the same.
const CHECK: Duration = Duration::from_millis(200);

/// So many calls tell what one costs. One that takes so many times longer had something else to do.
const LEAST_CALLS: usize = 20;
const LONGER: f64 = 4.0;

/// Whether probes are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Off,
    Window,
    Watch,
}

/// Watches a process.
#[derive(Debug)]
pub struct Probes {
    pid: Pid,
    started: u64,
    auxiliary: Vec<u8>,
    memory: ProcessMemory,
    sources: Vec<Source>,
    kernel: Kernel,
    prices: Prices,
    /// Entries and returns, and frees.
    links: [Vec<Link>; 2],
    cost: f64,
    phase: Phase,
    credit: f64,
    spent: Spent,
    /// What prices have to be multiplied with, as the process shows.
    scale: f64,
    counted: Instant,
    window_credit: f64,
    /// Whether the probes of frees are where the kernel executes the instruction itself.
    are_frees_cheap: bool,
    jitter: f64,
    lost: u64,
    rounds: Vec<Round>,
    opened: Instant,
    opened_at: u64,
    /// The moment up to which `spent` has all.
    at: u64,
    later: Spent,
    is_closing: bool,
    boundary: u64,
    /// How many rounds were told.
    told: usize,
    is_stopped: bool,
    before: Spent,
    earning: f64,
    hits_before: u64,
    /// Nanoseconds of calls in this window.
    calls: Vec<u64>,
    /// Frees until the watch began.
    frees_before: u64,
    frees: u64,
    hits: u64,
    rate: f64,
    pairs: Pairs,
    followed: Followed,
    has_gaps: bool,
    clocks: Clocks,
    first: Option<Spent>,
    looked: Instant,
    look_cost: Duration,
    looks: u32,
    checked: Instant,
    random: fastrand::Rng,
    is_over: bool,
}

impl Probes {
    /// The functions on which probes would be set, by file; none: there are none that are known.
    pub fn sources_of(pid: Pid) -> Result<Vec<Source>, ProcessError> {
        Ok(entries::find(pid, &mappings::read_names(pid)?))
    }

    /// Begins. Probes may take this part of the process's own time.
    pub fn begin(pid: Pid, sources: Vec<Source>, cost: f64) -> io::Result<Probes> {
        let started = Stat::read(pid).map_err(|error| io::Error::other(error.to_string()))?;
        let memory = ProcessMemory::of(pid);
        let mapped = mappings::read_names(pid).unwrap_or_default();
        let python = Interpreter::find(pid, &mapped, &memory);
        let callers = python.and_then(|python| Callers::of(pid, python));
        let mut kernel = Kernel::load(callers)?;
        let prices = Prices::measure(&mut kernel)?;
        let are_frees_cheap = sources
            .iter()
            .flat_map(|source| &source.entries)
            .all(|entry| entry.call != Call::Free || entry.is_emulated);
        let instant = Instant::now();
        let mut probes = Probes {
            pid,
            started: started.started,
            auxiliary: auxiliary(pid),
            memory,
            sources,
            kernel,
            prices,
            links: [Vec::new(), Vec::new()],
            cost,
            phase: Phase::Off,
            credit: CREDIT.as_secs_f64(),
            spent: Spent::default(),
            scale: 1.0,
            counted: instant,
            window_credit: 0.0,
            are_frees_cheap,
            jitter: 0.0,
            lost: 0,
            rounds: Vec::new(),
            opened: instant,
            opened_at: 0,
            at: 0,
            later: Spent::default(),
            is_closing: false,
            boundary: 0,
            told: 0,
            is_stopped: false,
            before: Spent::default(),
            earning: 1.0,
            hits_before: 0,
            calls: Vec::new(),
            frees_before: 0,
            frees: 0,
            hits: 0,
            rate: 0.0,
            pairs: Pairs::default(),
            followed: Followed::of(pid, python),
            has_gaps: false,
            clocks: Clocks::default(),
            first: None,
            looked: instant,
            look_cost: Duration::ZERO,
            looks: 0,
            checked: instant,
            random: fastrand::Rng::new(),
            is_over: false,
        };
        probes.spent.all = system::processor_time(pid).map_or(0.0, |time| time.as_secs_f64());
        probes.before = probes.spent;
        probes.lost = probes.kernel.lost();
        probes.open()?;
        Ok(probes)
    }

    /// Waits for events.
    pub fn wait(&self) {
        let pass = match self.phase {
            _ if !self.followed.is_unwound() => return,
            Phase::Window => PASSES[0],
            Phase::Watch => PASSES[1],
            Phase::Off => PASSES[2],
        };
        std::thread::sleep(pass);
    }

    /// Reads what there is. Call it after each [`Probes::wait`].
    pub fn pass(&mut self) -> io::Result<Vec<Change>> {
        self.account();
        if self.checked.elapsed() >= CHECK {
            self.checked = Instant::now();
            self.is_over |= !self.is_same();
        }
        match self.phase {
            Phase::Window => {
                let is_spent = self.credit <= 0.0;
                let most = self.most_of_a_window();
                let is_full = self.rounds.last().is_some_and(|round| round.blocks >= most);
                if is_spent || is_full {
                    self.close_window();
                } else if self.opened.elapsed() >= SHORTEST {
                    // The window goes on, as that of another round.
                    self.adjust();
                    self.end_round();
                    self.begin_round();
                }
            }
            Phase::Watch if self.credit <= 0.0 && self.has_watched_enough() => self.close_watch(),
            _ => {
                if self.credit >= self.full() * self.jitter
                    && self.opened.elapsed() >= SHORTEST
                    && self.followed.is_unwound()
                {
                    self.open()?;
                }
            }
        }
        self.followed.unwind(match self.phase {
            Phase::Window => 20,
            _ => 200,
        });
        Ok(self.take_finished())
    }

    /// Ends it: takes the probes out. Afterwards walks may tell more ([`Probes::looked`]), and
    /// [`Probes::finish`] tells the rest.
    pub fn stop(&mut self) {
        if self.phase == Phase::Window {
            self.close_window();
            // The round ends with its window.
            if let Some(round) = self.rounds.last_mut() {
                round.closed = None;
            }
        }
        if self.phase == Phase::Watch {
            let had_gaps = self.has_gaps;
            self.close_watch();
            self.has_gaps = had_gaps;
        }
        self.account();
        self.followed.unwind(usize::MAX);
        self.end_round();
        self.is_stopped = true;
    }

    /// The rest of what changed.
    pub fn finish(&mut self) -> Vec<Change> {
        self.take_finished()
    }

    /// Whether the process has ended or became another program.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The stacks, with what came under each and lives, as far as rounds have ended.
    pub fn sites(&self) -> &Sites {
        self.followed.sites()
    }

    /// Blocks that were taken in windows, and events that were lost.
    pub fn samples(&self) -> (u64, u64) {
        (self.followed.count().1, self.lost)
    }

    /// The number of windows.
    pub fn windows(&self) -> usize {
        self.rounds.len()
    }

    /// The part of its own time in which the process's frees were watched.
    pub fn watched(&self) -> f64 {
        match self.clocks.own > 0.0 {
            true => (self.clocks.watched / self.clocks.own).min(1.0),
            false => 1.0,
        }
    }

    /// Whether there was a time in which frees were not watched.
    pub fn has_gaps(&self) -> bool {
        self.has_gaps
    }

    /// What the probes took, and the process's processor time meanwhile.
    pub fn cost(&self) -> (Duration, Duration) {
        let spent = self
            .first
            .map_or(Spent::default(), |first| self.spent.since(&first));
        let seconds = |time: f64| Duration::from_secs_f64(time.max(0.0));
        (seconds(spent.probes(self.scale)), seconds(spent.all))
    }

    /// The prices of probes on this machine.
    pub fn prices(&self) -> Prices {
        self.prices
    }

    /// The files whose functions have probes.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Whether a walk would be of use now, and would not let events be lost.
    pub fn wants_look(&self) -> bool {
        let pause = LOOK.max(self.look_cost * LOOKS);
        self.has_gaps
            && self.phase != Phase::Window
            && self.followed.is_unwound()
            && self.looked.elapsed() >= pause
            && self.rate * self.look_cost.as_secs_f64() < MOST_MEANWHILE
    }

    /// The places of the blocks that are followed, sorted.
    pub fn places(&self) -> Vec<Address> {
        self.followed.places()
    }

    /// What a walk found at these places, and how long it took: the bytes of a live block, or 0.
    pub fn looked(&mut self, places: &[Address], sizes: &[u64], took: Duration) {
        self.followed.looked(places, sizes, now());
        self.looked = Instant::now();
        self.look_cost = took;
        self.looks += 1;
    }

    /// By how much each stack grew, by its number: what came under it in the first half of the
    /// recording and lives, times two. Blocks that live shorter than half of the recording count
    /// for nothing, and a steady leak counts as it is.
    pub fn growth(&self) -> Vec<f64> {
        let first = self.rounds.first().map_or(0, |first| first.at);
        let half = first + self.boundary.saturating_sub(first) / 2;
        // A walk tells what lives. Without one, the frees that were seen tell how many were not.
        let is_unsure = self.has_gaps && self.looks == 0;
        let survival = self.followed.survival(&self.rounds, self.clocks);
        self.followed
            .growth(&self.rounds, half, |site, round| match is_unsure {
                true => survival(site, round),
                false => 1.0,
            })
    }

    /// The blocks that live, after the end.
    pub fn living(&self) -> Vec<Living> {
        self.followed.living(&self.rounds)
    }

    /// What came since the first window and lives.
    pub fn estimate(&self) -> Estimate {
        self.followed.estimate(&self.rounds)
    }

    /// How many walks told something.
    pub fn looks(&self) -> u32 {
        self.looks
    }

    /// The credit with which a window begins.
    fn full(&self) -> f64 {
        ROUND.as_secs_f64() * self.cost * self.earning.max(LEAST)
    }

    /// How many blocks a window takes: so many that the credit suffices to watch for their frees.
    fn most_of_a_window(&self) -> usize {
        let stepped = |prices: [Duration; 2]| (prices[0] + prices[1]).as_secs_f64() / 2.0;
        let free = match self.are_frees_cheap {
            true => self.prices.free[0],
            false => self.prices.free[1],
        };
        let each = stepped(self.prices.entry)
            + self.prices.at_return.as_secs_f64()
            + (1 + WATCHED) as f64 * free.as_secs_f64();
        let full = self.full().max(self.window_credit / 4.0);
        let affordable = full / (self.scale * each).max(1e-9);
        let room = MOST_BLOCKS.saturating_sub(self.followed.count().0) / PART;
        MOST_OF_A_WINDOW.min(room).min(affordable as usize).max(20)
    }

    /// Whether the blocks of the window had time to be freed, or the process frees too slowly for
    /// its credit.
    fn has_watched_enough(&self) -> bool {
        let blocks = self.rounds.last().map_or(0, |round| round.blocks as u64);
        self.frees - self.frees_before >= WATCHED * blocks || self.credit < -2.0 * self.full()
    }

    /// Sets all probes, and begins a window.
    fn open(&mut self) -> io::Result<()> {
        let attached = self.attach();
        if attached.is_err() && !self.is_same() {
            self.is_over = true;
            return Ok(());
        }
        attached?;
        if self.phase == Phase::Off && !self.rounds.is_empty() {
            self.has_gaps = true;
        }
        self.account();
        self.end_round();
        self.pairs.forget();
        self.phase = Phase::Window;
        self.window_credit = self.credit.max(0.0);
        self.jitter = 0.5 + self.random.f64();
        self.begin_round();
        Ok(())
    }

    fn attach(&mut self) -> io::Result<()> {
        let chosen = |source: &Source, wanted: fn(Call) -> bool| -> Vec<(u64, u64)> {
            let entries = source.entries.iter().filter(|entry| wanted(entry.call));
            entries
                .map(|entry| (entry.offset, number(entry.call, entry.is_emulated)))
                .collect()
        };
        let needs_frees = self.links[1].is_empty();
        for source in &self.sources {
            let frees = chosen(source, |call| matches!(call, Call::Free | Call::Realloc));
            let entries = chosen(source, |call| call != Call::Free);
            let all = [
                (Kind::Free, &frees, needs_frees),
                (Kind::Return, &entries, true),
                (Kind::Entry, &entries, true),
            ];
            for (kind, places, is_needed) in all {
                if is_needed && !places.is_empty() {
                    let link = self.kernel.attach(kind, &source.path, places, self.pid)?;
                    self.links[usize::from(kind == Kind::Free)].push(link);
                }
            }
        }
        Ok(())
    }

    fn close_window(&mut self) {
        self.is_closing = true;
        self.account();
        self.is_closing = false;
        let spent = self.spent;
        if let Some(round) = self.rounds.last_mut() {
            round.closed = Some(spent);
        }
        self.kernel.close(std::mem::take(&mut self.links[0]));
        self.phase = Phase::Watch;
        self.frees_before = self.frees;
        self.adjust();
    }

    fn close_watch(&mut self) {
        self.kernel.close(std::mem::take(&mut self.links[1]));
        self.phase = Phase::Off;
        self.has_gaps = true;
    }

    fn begin_round(&mut self) {
        self.kernel.look_for_threads();
        self.opened = Instant::now();
        self.opened_at = self.at;
        self.first.get_or_insert(self.spent);
        let mut round = Round::begin(self.opened_at, self.spent, self.hits);
        round.clocks = self.clocks;
        self.rounds.push(round);
        self.boundary = self.opened_at;
    }

    /// The weight of a round is known at its end.
    fn end_round(&mut self) {
        self.boundary = self.at;
        if let Some((round, before)) = self.rounds.split_last_mut() {
            let usual = rounds::usual(&before[before.len().saturating_sub(USUAL)..]);
            round.end(self.spent, self.scale, self.hits, usual);
        }
    }

    /// What prices are multiplied with: calls take longer in a process whose caches are cold than
    /// in this one.
    fn adjust(&mut self) {
        let measured = self.prices.call.as_nanos() as f64;
        if self.calls.len() >= LEAST_CALLS && measured > 0.0 {
            let scale = (price::median(&mut self.calls) as f64 / measured).clamp(0.5, 4.0);
            // Probes can not have taken more than there was.
            let spent = self
                .rounds
                .last()
                .map(|round| self.spent.since(&round.began));
            let most = spent.map_or(scale, |spent| {
                (spent.all - spent.measured) / spent.priced.max(1e-9)
            });
            self.scale = scale.min(most).max(0.3);
        }
        self.calls.clear();
    }

    /// Takes events. Those after that moment count as spent later, and if the window ends then,
    /// their blocks are not wanted.
    fn drain(&mut self, until: u64) {
        let before = std::mem::take(&mut self.later);
        self.spent.priced += before.priced;
        self.spent.measured += before.measured;
        self.at = until;
        let Probes {
            kernel,
            pairs,
            prices,
            spent,
            later,
            ..
        } = self;
        let lost = kernel.lost();
        if lost > self.lost {
            spent.priced += (lost - self.lost) as f64 * prices.free[0].as_secs_f64();
            pairs.forget();
            if let Some(round) = self.rounds.last_mut() {
                round.lost += lost - self.lost;
            }
            self.lost = lost;
        }
        let is_window = self.phase == Phase::Window;
        let is_closing = self.is_closing;
        let (mut hits, mut frees) = (0, 0);
        let mut all = Vec::new();
        let from = self.opened_at;
        kernel.drain(|event| {
            hits += 1;
            let call = call(event.cookie);
            frees += u64::from(event.kind == Kind::Free && call == Call::Free);
            let spent = match event.time <= until {
                true => &mut *spent,
                false => &mut *later,
            };
            spent.priced += price(prices, &event).as_secs_f64();
            let wants = is_window && event.time >= from && (event.time <= until || !is_closing);
            if let Some(said) = pairs.take(&event, call, wants) {
                if let (Kind::Return, Said::Came(block)) = (event.kind, &said) {
                    let took = (event.time - block.time) as f64 * 1e-9;
                    let usual = prices.of_call(is_stepped(event.cookie)).as_secs_f64();
                    if took < LONGER * usual {
                        spent.priced -= usual;
                        spent.measured += took;
                    }
                }
                all.push((event.time, said));
            }
        });
        self.hits += hits;
        self.frees += frees;
        for (time, said) in all {
            match said {
                Said::Went(address) => {
                    self.followed
                        .freed(address, time, &self.rounds, self.clocks);
                }
                Said::Came(block) => self.came(time, block),
                Said::CameAt(place, block) => {
                    let mut bytes = [0; 8];
                    if self.memory.read(place, &mut bytes).is_ok() {
                        let address = u64::from_le_bytes(bytes);
                        self.came(time, Block { address, ..block });
                    }
                }
            }
        }
    }

    fn came(&mut self, time: u64, block: Block) {
        if block.address == 0 {
            return;
        }
        self.calls.push(time.saturating_sub(block.time));
        let last = self.rounds.len() - 1;
        let number = match block.time < self.opened_at {
            true => last.saturating_sub(1),
            false => last,
        };
        self.rounds[last].blocks += 1;
        // In the trace it stands where it came, also if the round has just ended.
        self.followed.came(block, number, time.max(self.boundary));
    }

    /// What happened in rounds that have ended, in the order of time.
    fn take_finished(&mut self) -> Vec<Change> {
        let (current, boundary) = match self.is_stopped {
            true => (self.rounds.len(), u64::MAX),
            false => (self.rounds.len().saturating_sub(1), self.boundary),
        };
        if !self.followed.is_unwound() || self.told == current && !self.is_stopped {
            return Vec::new();
        }
        self.told = current;
        self.followed.take(&self.rounds, current, boundary)
    }

    /// Reads the process's time, and the events up to that moment. A tool that waits for a
    /// processor between the two would take what the process did meanwhile for its own.
    fn account(&mut self) {
        let mut read = None;
        for _ in 0..READS {
            let at = now();
            read = system::processor_time(self.pid).map(|time| (at, time));
            if now() - at < AT_ONCE {
                break;
            }
        }
        match read {
            Some((at, all)) => {
                self.drain(at);
                self.count(all);
            }
            None => {
                self.drain(u64::MAX);
                self.is_over = true;
            }
        }
    }

    fn count(&mut self, all: Duration) {
        let time = self.counted.elapsed().as_secs_f64();
        self.counted = Instant::now();
        let before = std::mem::replace(&mut self.before, self.spent);
        self.spent.all = all.as_secs_f64().max(self.spent.all);
        self.before.all = self.spent.all;
        let since = self.spent.since(&before);
        let probes = since.probes(self.scale);
        let own = (since.all - probes).max(0.0);
        self.clocks.own += own;
        if !self.links[1].is_empty() {
            self.clocks.watched += own;
        }
        let share = time.min(1.0);
        if time > 0.0 {
            self.earning += share * (own / time - self.earning);
            self.rate += share * ((self.hits - self.hits_before) as f64 / time - self.rate);
        }
        self.hits_before = self.hits;
        self.credit += self.cost * own.max(LEAST * time) - probes;
        let most = (2.0 * self.full()).max(CREDIT.as_secs_f64());
        self.credit = self.credit.min(most);
    }

    /// Whether the process is there, and is the program that it was.
    fn is_same(&self) -> bool {
        let stat = Stat::read(self.pid);
        stat.is_ok_and(|stat| stat.started == self.started && !stat.is_dead())
            && auxiliary(self.pid) == self.auxiliary
    }
}

/// What the kernel told a program at its start: another program has other addresses in it.
fn auxiliary(pid: Pid) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default()
}

/// The number of a probe: what its function does, and whether it is cheap.
fn number(call: Call, is_emulated: bool) -> u64 {
    call as u64 | u64::from(is_emulated) << 8
}

fn call(number: u32) -> Call {
    Call::ALL[(number & 0xff) as usize % Call::ALL.len()]
}

fn is_stepped(number: u32) -> bool {
    number & 1 << 8 == 0
}

fn price(prices: &Prices, event: &Event<'_>) -> Duration {
    let which = usize::from(is_stepped(event.cookie));
    match event.kind {
        Kind::Entry => prices.entry[which],
        Kind::Free => prices.free[which],
        Kind::Return => prices.at_return,
    }
}
