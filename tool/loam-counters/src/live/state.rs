//! The state of the view: data of the last looks, the user's place, and the effects of keys. It
//! touches no terminal and no process.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use loam_format::counters::ids;
use loam_process::process::ProcessKey;

use super::filter::Filter;
use crate::view::View;
use crate::watch::rates;
use crate::watch::sampler::{Sample, Tick};

/// How many looks are kept for sparklines.
const REMEMBERED: usize = 240;

/// The keys that have an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// The row above.
    Up,
    /// The row below.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// The first row.
    Home,
    /// The last row.
    End,
    /// Back.
    Left,
    /// Into the row.
    Right,
    /// Into the row; of a filter: done.
    Enter,
    /// Back; of a filter: as it was before.
    Escape,
    /// Back; of a filter: without its last letter.
    Erase,
    /// The next sheet.
    Tab,
    /// The end.
    Quit,
    /// A letter, or another character.
    Letter(char),
}

/// What processes are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortKey {
    /// Resident memory.
    Resident,
    /// Live bytes.
    Live,
    /// Free bytes of what is backed: fragmentation.
    Free,
    /// Growth of live bytes.
    Growth,
    /// Lock acquisitions that had to wait.
    Waits,
    /// Number.
    Pid,
    /// Name.
    Name,
}

impl SortKey {
    /// All, in the order in which the user goes through them.
    pub const ALL: [SortKey; 7] = [
        SortKey::Resident,
        SortKey::Live,
        SortKey::Free,
        SortKey::Growth,
        SortKey::Waits,
        SortKey::Pid,
        SortKey::Name,
    ];

    /// The next key, when the user asks for another order.
    pub fn next(self) -> SortKey {
        let place = SortKey::ALL.iter().position(|key| *key == self);
        SortKey::ALL[(place.unwrap_or(0) + 1) % SortKey::ALL.len()]
    }
}

/// The lower half of a process's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sheet {
    /// Its heaps.
    Heaps,
    /// The size classes of all its heaps.
    Classes,
    /// Its locks.
    Locks,
}

/// The user's place in the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// All processes.
    Processes,
    /// One process.
    Process(ProcessKey, Sheet),
    /// The size classes of one heap, by its number.
    Heap(ProcessKey, u64),
    /// One size class, by its block's bytes.
    Class(ProcessKey, u64, u64),
}

/// Figures of the last looks, oldest first.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The times of the looks.
    pub at: VecDeque<Instant>,
    /// Resident bytes.
    pub resident: VecDeque<f64>,
    /// Live bytes.
    pub live: VecDeque<f64>,
    /// Waits for locks per second.
    pub waits: VecDeque<f64>,
    /// Allocations per second that missed the cache.
    pub misses: VecDeque<f64>,
}

/// The meaning of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Meaning {
    /// A process.
    Process(ProcessKey),
    /// A heap, by its number.
    Heap(u64),
    /// A size class: its heap, and its block's bytes.
    Class(u64, u64),
    /// A lock.
    Lock,
}

/// The whole state.
#[derive(Debug)]
pub struct State {
    /// The last look.
    pub tick: Tick,
    before: HashMap<ProcessKey, Sample>,
    /// Figures of the last looks, by process.
    pub history: HashMap<ProcessKey, History>,
    /// The result of the close look at the process with the open page.
    pub focus: Option<Result<View, String>>,
    places: Vec<(Place, usize)>,
    /// The order of processes.
    pub sort: SortKey,
    /// Whether the order is reversed.
    pub reversed: bool,
    /// Which processes are shown.
    pub filter: Filter,
    /// The filter before the user began to type; none: the user does not type one.
    typing: Option<Filter>,
    /// Whether the view is paused and shows nothing new.
    pub paused: bool,
    /// Whether the list of keys is shown.
    pub help: bool,
    /// Whether the user wants to leave.
    pub done: bool,
    /// Whether processes that are not on Loam may be shown.
    pub shows_others: bool,
}

impl State {
    /// A state that shows all processes.
    pub fn new(sort: SortKey, shows_others: bool) -> State {
        State {
            tick: Tick::default(),
            before: HashMap::new(),
            history: HashMap::new(),
            focus: None,
            places: vec![(Place::Processes, 0)],
            sort,
            reversed: false,
            filter: Filter::default(),
            typing: None,
            paused: false,
            help: false,
            done: false,
            shows_others,
        }
    }

    /// The user's place.
    pub fn place(&self) -> Place {
        self.places
            .last()
            .map_or(Place::Processes, |(place, _)| *place)
    }

    /// The selected row.
    pub fn selected(&self) -> usize {
        self.places.last().map_or(0, |(_, row)| *row)
    }

    /// The process with the open page.
    pub fn focused(&self) -> Option<ProcessKey> {
        match self.place() {
            Place::Processes => None,
            Place::Process(key, _) | Place::Heap(key, _) | Place::Class(key, ..) => Some(key),
        }
    }

    /// The sample of a process in the last look.
    pub fn sample(&self, key: ProcessKey) -> Option<&Sample> {
        self.tick
            .samples
            .iter()
            .find(|sample| sample.identity.key == key)
    }

    /// The sample in the look before.
    pub fn before(&self, key: ProcessKey) -> Option<&Sample> {
        self.before.get(&key)
    }

    /// The rate of a counter of the process.
    pub fn rate(&self, sample: &Sample, id: &str) -> Option<f64> {
        rates::of_counter(self.before(sample.identity.key)?, sample, id)
    }

    /// How fast live bytes grow; negative if they shrink.
    pub fn growth(&self, sample: &Sample) -> Option<f64> {
        let before = self.before(sample.identity.key)?;
        let live = |sample: &Sample| match sample.snapshot() {
            Some(snapshot) => snapshot.process.real(ids::LIVE_BYTES),
            None => Some(sample.outline.resident as f64),
        };
        let seconds = sample.at.checked_duration_since(before.at)?.as_secs_f64();
        (seconds > 0.0).then_some((live(sample)? - live(before)?) / seconds)
    }

    /// Takes the data of a new look.
    pub fn take(&mut self, tick: Tick) {
        let old = std::mem::replace(&mut self.tick, tick);
        self.before = old
            .samples
            .into_iter()
            .map(|sample| (sample.identity.key, sample))
            .collect();
        let mut history = std::mem::take(&mut self.history);
        history.retain(|key, _| self.sample(*key).is_some());
        for sample in &self.tick.samples {
            let known = history.entry(sample.identity.key).or_default();
            let live = sample.snapshot().map_or(0.0, |snapshot| {
                snapshot.process.whole(ids::LIVE_BYTES) as f64
            });
            remember(&mut known.at, sample.at);
            remember(&mut known.resident, sample.outline.resident as f64);
            remember(&mut known.live, live);
            let rate = |id| self.rate(sample, id).unwrap_or(0.0);
            remember(&mut known.waits, rate(ids::LOCK_CONTENTIONS));
            remember(&mut known.misses, rate(ids::CACHE_MISSES));
        }
        self.history = history;
    }

    /// Performs the action of a key. `rows` are those on the screen; `page` is how many rows a page
    /// has.
    pub fn press(&mut self, key: Key, rows: &[Meaning], page: usize) {
        if key == Key::Quit {
            self.done = true;
            return;
        }
        if self.help {
            self.help = false;
            return;
        }
        if self.is_typing() {
            self.edit(key);
            return;
        }
        let last = rows.len().saturating_sub(1);
        let here = self.selected().min(last);
        let mut select = |row: usize| {
            if let Some((_, selected)) = self.places.last_mut() {
                *selected = row.min(last);
            }
        };
        match key {
            Key::Up | Key::Letter('k') => select(here.saturating_sub(1)),
            Key::Down | Key::Letter('j') => select(here + 1),
            Key::PageUp => select(here.saturating_sub(page)),
            Key::PageDown => select(here + page),
            Key::Home => select(0),
            Key::End => select(last),
            Key::Enter | Key::Right => self.enter(rows.get(here)),
            Key::Escape | Key::Erase | Key::Left => self.leave(),
            Key::Tab => self.turn(),
            Key::Quit | Key::Letter('q') => self.done = true,
            Key::Letter('?' | 'h') => self.help = true,
            Key::Letter('p' | ' ') => self.paused = !self.paused,
            Key::Letter('s') => self.sort = self.sort.next(),
            Key::Letter('r') => self.reversed = !self.reversed,
            Key::Letter('/') if self.place() == Place::Processes => {
                self.typing = Some(std::mem::take(&mut self.filter));
            }
            Key::Letter(_) => {}
        }
    }

    /// Whether letters are added to the filter.
    pub fn is_typing(&self) -> bool {
        self.typing.is_some()
    }

    fn edit(&mut self, key: Key) {
        match key {
            Key::Letter(letter) => self.filter = self.filter.longer(letter),
            Key::Erase => self.filter = self.filter.shorter(),
            Key::Enter => self.typing = None,
            Key::Escape => self.filter = self.typing.take().unwrap_or_default(),
            _ => {}
        }
    }

    fn enter(&mut self, meaning: Option<&Meaning>) {
        let next = match (self.place(), meaning) {
            (Place::Processes, Some(Meaning::Process(key))) => {
                let heaps = self
                    .sample(*key)
                    .and_then(Sample::snapshot)
                    .map(|s| s.heaps.len());
                let sheet = if heaps == Some(1) {
                    Sheet::Classes
                } else {
                    Sheet::Heaps
                };
                Place::Process(*key, sheet)
            }
            (Place::Process(key, _), Some(Meaning::Heap(number))) => Place::Heap(key, *number),
            (Place::Process(key, _) | Place::Heap(key, _), Some(Meaning::Class(heap, bytes))) => {
                Place::Class(key, *heap, *bytes)
            }
            _ => return,
        };
        self.places.push((next, 0));
    }

    fn leave(&mut self) {
        if self.places.len() > 1 {
            self.places.pop();
        }
        if self.place() == Place::Processes {
            self.focus = None;
        }
    }

    fn turn(&mut self) {
        if let Some((Place::Process(_, sheet), row)) = self.places.last_mut() {
            *sheet = match sheet {
                Sheet::Heaps => Sheet::Classes,
                Sheet::Classes => Sheet::Locks,
                Sheet::Locks => Sheet::Heaps,
            };
            *row = 0;
        }
    }

    /// The processes in the user's order.
    pub fn processes(&self) -> Vec<&Sample> {
        let samples = self.tick.samples.iter();
        let is_shown = |sample: &&Sample| self.filter.passes(&sample.identity.name);
        let mut samples: Vec<&Sample> = samples.filter(is_shown).collect();
        let value = |sample: &Sample, id: &str| {
            let known = sample
                .snapshot()
                .and_then(|snapshot| snapshot.process.real(id));
            known.unwrap_or(-1.0)
        };
        let figure = |sample: &Sample| match self.sort {
            SortKey::Resident => sample.outline.resident as f64,
            SortKey::Live => value(sample, ids::LIVE_BYTES),
            SortKey::Free => value(sample, ids::FREE_RATIO),
            SortKey::Growth => self.growth(sample).unwrap_or(f64::MIN),
            SortKey::Waits => self.rate(sample, ids::LOCK_CONTENTIONS).unwrap_or(-1.0),
            SortKey::Pid | SortKey::Name => 0.0,
        };
        samples.sort_by(|a, b| {
            let by_name = || a.identity.name.cmp(&b.identity.name);
            let by_number = || a.identity.key.cmp(&b.identity.key);
            match self.sort {
                SortKey::Pid => by_number(),
                SortKey::Name => by_name().then_with(by_number),
                _ => figure(b).total_cmp(&figure(a)).then_with(by_number),
            }
        });
        if self.reversed {
            samples.reverse();
        }
        samples
    }
}

fn remember<T>(figures: &mut VecDeque<T>, figure: T) {
    if figures.len() == REMEMBERED {
        figures.pop_front();
    }
    figures.push_back(figure);
}
