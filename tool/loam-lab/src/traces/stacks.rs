//! The call stacks of a trace's sampled blocks: the bytes that each stack handed out, and those of
//! them that lived at the peak.
//!
//! A block of `s` bytes was chosen with probability `p = 1 - exp(-s/m)`, or with the one that its
//! stack says, and stands for `1/p` blocks and `s/p` bytes. Such a sum has no bias, and its
//! variance is estimated by the sum of `(s/p)^2 (1 - p)`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::bail;
use loam_format::plain;
use loam_format::trace::{chance, Action, Block, Frame, Item, Module, Stack, Wanted};
use loam_process::symbols::{Function, Symbols};
use serde::Serialize;

use super::{lives, Never};
use crate::replay::lineage::{self, Step};
use crate::replay::lives::CLASSES;
use crate::replay::room::Room;
use crate::replay::{ReplayError, Survey};

/// An estimate from chosen blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Number of chosen blocks.
    pub samples: u64,
    /// Blocks that they stand for.
    pub blocks: f64,
    /// Bytes that they stand for.
    pub bytes: f64,
    /// Variance of the bytes.
    variance: f64,
}

impl Estimate {
    /// Bytes that were counted elsewhere.
    pub fn exactly(bytes: f64) -> Estimate {
        Estimate {
            bytes,
            ..Estimate::default()
        }
    }

    fn add(&mut self, size: u64, chance: f64, sign: f64) {
        let bytes = size as f64 / chance;
        self.samples = self.samples.wrapping_add_signed(sign as i64);
        self.blocks += sign / chance;
        self.bytes += sign * bytes;
        self.variance += sign * bytes * bytes * (1.0 - chance);
    }

    /// The sum with another one, or the difference if the sign is -1.
    pub fn plus(&self, other: &Estimate, sign: f64) -> Estimate {
        let samples = other.samples as i64 * sign as i64;
        Estimate {
            samples: self.samples.wrapping_add_signed(samples),
            blocks: self.blocks + sign * other.blocks,
            bytes: self.bytes + sign * other.bytes,
            variance: self.variance + sign * other.variance,
        }
    }

    /// Twice the standard error of the bytes. With more than a few samples, the true value lies
    /// within that distance in some 95 of 100 cases.
    pub fn error(&self) -> f64 {
        2.0 * self.variance.max(0.0).sqrt()
    }
}

/// A frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Place {
    /// Its module: an index of `Stacks::modules`.
    pub module: Option<usize>,
    /// The address: in the module's file, or in memory if there is no module.
    pub address: u64,
}

/// A stack, and the blocks that it handed out.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Site {
    /// The frames, the innermost first; empty: not known.
    pub frames: Vec<Place>,
    /// Whether frames further out are missing.
    pub is_cut: bool,
    /// All blocks that it handed out.
    pub allocated: Estimate,
    /// Of these, the blocks that lived when most bytes lived.
    pub peak: Estimate,
    /// Of these, the blocks that lived at the end.
    pub end: Estimate,
    /// Bytes by how long they lived (`replay::lives`).
    pub lives: [f64; CLASSES],
    /// The types of blocks that lived at the end, where the recording looked for them; those with
    /// the most bytes first.
    pub types: Vec<Typed>,
}

/// Blocks of a type.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Typed {
    /// The type, or in parentheses what the bytes look like.
    pub name: String,
    /// Bytes that they stand for.
    pub bytes: f64,
    /// Twice their standard error.
    pub error: f64,
}

/// The stacks of a process.
#[derive(Debug, Default)]
pub struct Stacks {
    /// Average bytes between two chosen blocks.
    pub mean: u64,
    /// Files that frames lie in.
    pub modules: Vec<Module>,
    /// The stacks, those with the most bytes at the peak first.
    pub sites: Vec<Site>,
}

/// A stack: index of its stream in the lineage, innermost frame, whether frames further out are
/// missing.
pub(crate) type Key = (usize, Option<u64>, bool);

#[derive(Debug, Default)]
struct Figures {
    allocated: Estimate,
    live: Estimate,
    /// Changes since the peak.
    since: Estimate,
    lives: [f64; CLASSES],
}

/// The stacks of a trace's blocks, as the file has them.
#[derive(Debug)]
pub(crate) struct Read {
    /// Average bytes between two chosen blocks.
    pub mean: u64,
    /// Files that frames lie in, of all streams.
    pub modules: Vec<Module>,
    /// The index of each stream's first module.
    first: Vec<usize>,
    frames: HashMap<(usize, u64), Frame>,
    /// By index of the stream in the lineage, and number of the event.
    stacks: HashMap<(usize, u64), Stack>,
}

impl Read {
    /// Reads the stacks; `None` if the trace has none.
    pub fn of(survey: &Survey, streams: &[u32]) -> Result<Option<Read>, ReplayError> {
        let mut read = Read {
            mean: survey.header.stack_bytes,
            modules: Vec::new(),
            first: Vec::new(),
            frames: HashMap::new(),
            stacks: HashMap::new(),
        };
        let room = Room::of_this_process();
        lineage::items(&survey.path, |stream, item| {
            let Some(place) = streams.iter().position(|one| *one == stream) else {
                return Ok(());
            };
            match item {
                Item::Frame(frame) => {
                    if let Some(number) = frame.number {
                        read.frames.insert((place, number), frame);
                    }
                }
                Item::Stack(stack) => {
                    if let Some(event) = stack.event {
                        read.stacks.insert((place, event), stack);
                    }
                }
                _ => {}
            }
            let held = read.frames.len() + read.stacks.len();
            room.holds(held as u64, &survey.path)
        })?;
        if read.mean == 0 || read.stacks.is_empty() {
            return Ok(None);
        }
        for stream in streams {
            read.first.push(read.modules.len());
            let process = survey.processes.get(stream);
            let modules = process.map(|one| one.process.modules.clone());
            read.modules.extend(modules.unwrap_or_default());
        }
        Ok(Some(read))
    }

    /// The stack of a chosen block. `begins`: where the events of each stream begin in the walk's
    /// count.
    pub fn stack(&self, block: &Block, begins: &[u64]) -> Option<Key> {
        let (place, stack) = self.found(block, begins)?;
        Some((place, stack.frame, stack.cut != Some(0)))
    }

    /// The probability with which a block was chosen.
    pub fn chance(&self, block: &Block, begins: &[u64]) -> f64 {
        match self.found(block, begins) {
            Some((_, stack)) => stack.chance(block.size, self.mean),
            None => chance(block.size, self.mean),
        }
    }

    fn found(&self, block: &Block, begins: &[u64]) -> Option<(usize, &Stack)> {
        let place = begins.iter().rposition(|begin| *begin <= block.event)?;
        let stack = self.stacks.get(&(place, block.event - begins[place]))?;
        Some((place, stack))
    }

    /// Frames from the innermost outwards. The stack ends where a frame lies in a damaged chunk.
    pub fn places(&self, (place, frame, _): Key) -> Vec<Place> {
        let mut places = Vec::new();
        let mut next = frame;
        while let Some(frame) = next.and_then(|number| self.frames.get(&(place, number))) {
            let module = frame.module.and_then(|module| usize::try_from(module).ok());
            places.push(Place {
                module: module
                    .map(|at| self.first[place] + at)
                    .filter(|at| *at < self.modules.len()),
                address: frame.address.unwrap_or(0),
            });
            // A caller has a smaller number than its callee, so a trace can not contain cycles.
            next = frame.caller.filter(|caller| Some(*caller) < frame.number);
        }
        places
    }
}

/// A sampled block that was handed out or ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// When, in nanoseconds.
    pub time: u64,
    /// Its stack: an index of `Stacks::sites`.
    pub site: usize,
    /// Its address.
    pub address: u64,
    /// The bytes that it stands for; negative if the block ended.
    pub bytes: f64,
}

/// Fails unless the trace has stacks.
pub fn require(trace: &Path) -> anyhow::Result<()> {
    let wanted = Wanted {
        events: false,
        tables: false,
    };
    if lineage::open(trace, wanted)?.header().stack_bytes == 0 {
        bail!(
            "{} has no stacks; record the program with `loam record --stacks`",
            plain::path(trace)
        );
    }
    Ok(())
}

/// Reads the stacks; `None` if the trace has none.
pub fn of(survey: &Survey, stream: u32) -> Result<Option<Stacks>, ReplayError> {
    let known = sites(survey, stream)?;
    Ok(known.map(|(stacks, _, _)| stacks))
}

/// The same, with each change of a sampled block, in the order of time.
pub fn with_changes(
    survey: &Survey,
    stream: u32,
) -> Result<Option<(Stacks, Vec<Change>)>, ReplayError> {
    let Some((stacks, read, keys)) = sites(survey, stream)? else {
        return Ok(None);
    };
    let mut changes = Vec::new();
    follow(survey, &lineage::of(survey, stream), &read, |step| {
        if let Some(site) = step.key.and_then(|key| keys.get(&key)) {
            let size = step.block.size;
            changes.push(Change {
                time: step.time,
                site: *site,
                address: step.block.address,
                bytes: step.sign * size as f64 / step.chance,
            });
        }
    })?;
    Ok(Some((stacks, changes)))
}

/// The stacks, what was read of them, and the site of each key.
type Sites = (Stacks, Read, HashMap<Key, usize>);

fn sites(survey: &Survey, stream: u32) -> Result<Option<Sites>, ReplayError> {
    let streams = lineage::of(survey, stream);
    let Some(read) = Read::of(survey, &streams)? else {
        return Ok(None);
    };
    let figures = count(survey, &streams, &read)?;
    let mut types = types(survey, &streams);
    let mut sites: Vec<(Key, Site)> = figures
        .into_iter()
        .map(|(key, figures)| {
            let site = Site {
                frames: read.places(key),
                is_cut: key.2,
                types: types.remove(&key).unwrap_or_default(),
                allocated: figures.allocated,
                peak: figures.live.plus(&figures.since, -1.0),
                end: figures.live,
                lives: {
                    let mut lives = figures.lives;
                    lives[CLASSES - 1] += figures.live.bytes.max(0.0);
                    lives
                },
            };
            (key, site)
        })
        .collect();
    sites.sort_by(|(_, a), (_, b)| {
        let bytes = |site: &Site| (site.peak.bytes, site.allocated.bytes);
        bytes(b)
            .partial_cmp(&bytes(a))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let keys = sites
        .iter()
        .enumerate()
        .map(|(place, (key, _))| (*key, place))
        .collect();
    let stacks = Stacks {
        mean: read.mean,
        modules: read.modules.clone(),
        sites: sites.into_iter().map(|(_, site)| site).collect(),
    };
    Ok(Some((stacks, read, keys)))
}

/// The types under each stack.
fn types(survey: &Survey, streams: &[u32]) -> HashMap<Key, Vec<Typed>> {
    let mut types: HashMap<Key, Vec<Typed>> = HashMap::new();
    for (place, stream) in streams.iter().enumerate() {
        let process = survey.processes.get(stream);
        for stay in process.into_iter().flat_map(|one| &one.process.stays) {
            let known = types.entry((place, stay.frame, stay.cut)).or_default();
            known.push(Typed {
                name: stay.kind.clone(),
                bytes: stay.bytes,
                error: stay.error,
            });
        }
    }
    for known in types.values_mut() {
        known.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    }
    types
}

fn count(
    survey: &Survey,
    streams: &[u32],
    read: &Read,
) -> Result<BTreeMap<Key, Figures>, ReplayError> {
    let mut figures: BTreeMap<Key, Figures> = BTreeMap::new();
    let (mut live, mut peak) = (0u64, 0u64);
    let mut changed: Vec<Key> = Vec::new();
    let clock = lives::clock(survey, streams);
    follow(survey, streams, read, |step| {
        let size = step.block.size;
        // Where only chosen blocks are known, each counts for those that it stands for.
        let bytes = match survey.header.weighted {
            true => (size as f64 / step.chance) as u64,
            false => size,
        };
        live = match step.sign > 0.0 {
            true => live.saturating_add(bytes),
            false => live.saturating_sub(bytes),
        };
        if let Some(key) = step.key {
            let figures = figures.entry(key).or_default();
            figures.live.add(size, step.chance, step.sign);
            figures.since.add(size, step.chance, step.sign);
            if step.sign > 0.0 {
                figures.allocated.add(size, step.chance, step.sign);
            } else {
                let class = clock.class(step.block.born, Some(step.time));
                figures.lives[usize::from(class)] += size as f64 / step.chance;
            }
            changed.push(key);
        }
        if live > peak {
            peak = live;
            for key in changed.drain(..) {
                figures.entry(key).or_default().since = Estimate::default();
            }
        }
        // Changes are many and stacks are few.
        if changed.len() > 1 << 16 {
            changed.sort_unstable();
            changed.dedup();
        }
    })?;
    Ok(figures)
}

/// A block that begins or ends.
struct Followed<'a> {
    time: u64,
    block: &'a Block,
    /// The stack, if the block was chosen.
    key: Option<Key>,
    /// The probability with which it was chosen.
    chance: f64,
    /// 1: the block begins, -1: it ends.
    sign: f64,
}

/// Reports each beginning and end of a block. A resize is an end and a beginning.
fn follow(
    survey: &Survey,
    streams: &[u32],
    read: &Read,
    mut visit: impl FnMut(Followed),
) -> Result<(), ReplayError> {
    // Where the events of each stream begin in the walk's count.
    let mut begins = vec![0];
    lineage::walk(survey, streams, &Never, |step| {
        let act = match step {
            Step::Forked { events, .. } => {
                begins.push(events);
                return Ok(());
            }
            Step::Act(act) => act,
        };
        let (ended, begun) = match &act.action {
            Action::Begin { block, .. } => (None, Some(block)),
            Action::Resize { before, after, .. } => (Some(before), Some(after)),
            Action::End { block, .. } | Action::Gone { block } => (Some(block), None),
            _ => return Ok(()),
        };
        for (block, sign) in [(ended, -1.0), (begun, 1.0)] {
            let Some(block) = block else { continue };
            visit(Followed {
                time: act.time,
                block,
                key: read.stack(block, &begins),
                chance: read.chance(block, &begins),
                sign,
            });
        }
        Ok(())
    })?;
    Ok(())
}

/// The functions at an address according to the trace itself.
fn named(module: &Module, address: u64) -> Vec<Function> {
    let names = &module.names;
    let first = names.partition_point(|named| named.address < address);
    let here = names[first..].iter();
    here.take_while(|named| named.address == address)
        .map(|named| Function {
            name: named.name.clone(),
            file: named.file.clone(),
            line: named.line,
        })
        .collect()
}

impl Stacks {
    /// The sums over all stacks.
    pub fn total(&self) -> (Estimate, Estimate) {
        let zero = (Estimate::default(), Estimate::default());
        self.sites.iter().fold(zero, |(allocated, peak), site| {
            (
                allocated.plus(&site.allocated, 1.0),
                peak.plus(&site.peak, 1.0),
            )
        })
    }

    /// The functions of a frame, the innermost inlined one first. A place without a name is given
    /// as its file and address.
    pub fn functions(&self, place: &Place, symbols: &mut Symbols) -> Vec<Function> {
        let module = place.module.map(|module| &self.modules[module]);
        let named = module.map_or_else(Vec::new, |module| named(module, place.address));
        if !named.is_empty() {
            return named;
        }
        let found = module.map_or_else(Vec::new, |module| symbols.at(module, place.address));
        if !found.is_empty() {
            return found;
        }
        let file = module.map_or("unknown", |one| {
            one.path.rsplit('/').next().unwrap_or(&one.path)
        });
        vec![Function {
            name: format!("[{file}+{:#x}]", place.address),
            ..Function::default()
        }]
    }

    /// Names of a stack's functions, the outermost first.
    pub fn names(&self, site: &Site, symbols: &mut Symbols) -> Vec<String> {
        let mut names = Vec::new();
        for place in &site.frames {
            names.extend(
                self.functions(place, symbols)
                    .into_iter()
                    .map(|one| one.name),
            );
        }
        if site.is_cut {
            names.push("[not known]".to_owned());
        }
        names.reverse();
        names
    }
}
