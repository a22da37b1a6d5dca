//! A moment of a trace: its blocks, their pages, and the groups of the blocks.

use std::collections::HashMap;

use loam_format::trace::{chance, Block};
use loam_process::symbols::Symbols;

use super::blame::{self, Blamed, Figures};
use super::pages::{Page, Pages};
use super::timeline::{self, Moment, Snapshot, Sums};
use super::{age_class, name_of_age, name_of_size, By, Pins, PinsError, Row, TracePins, When};
use crate::replay::{lineage, ProcessSurvey, Survey};
use crate::traces::paths::is_library;
use crate::traces::stacks::{Key, Place, Read, Stacks};
use crate::traces::summary::class_of;

/// The groups of blocks that keep the pages of a trace's moment. `by`: none means stacks if the
/// trace has any, else sizes.
pub fn of_trace(
    survey: &Survey,
    stream: u32,
    when: When,
    by: Option<By>,
    symbols: &mut Symbols,
) -> Result<TracePins, PinsError> {
    let first = survey.processes[&stream].first_time;
    let times = match when {
        When::At(seconds) => vec![first.saturating_add((seconds * 1e9) as u64)],
        _ => Vec::new(),
    };
    let read = match by {
        None | Some(By::Stack) => Read::of(survey, &lineage::of(survey, stream))?,
        _ => None,
    };
    if let (Some(By::Stack), None) = (by, &read) {
        return Err(PinsError::NoStacks {
            path: survey.path.clone(),
        });
    }
    let timeline = timeline::of(survey, stream, &times)?;
    let moment = match when {
        When::Worst => timeline.worst,
        When::Peak => timeline.peak,
        When::End => timeline.end,
        When::At(_) => timeline.at[0],
    };
    at(
        survey,
        stream,
        moment,
        by.unwrap_or(By::Size),
        read,
        symbols,
    )
}

/// The same for a moment that is already known. `read`: the stacks, if blocks are grouped by them.
pub(super) fn at(
    survey: &Survey,
    stream: u32,
    moment: Moment,
    by: By,
    read: Option<Read>,
    symbols: &mut Symbols,
) -> Result<TracePins, PinsError> {
    let process = &survey.processes[&stream];
    let mut pins = None;
    timeline::snapshots(survey, stream, &[moment.acts], |snapshot| {
        pins = Some(match &read {
            Some(read) => by_stack(snapshot, moment, read, symbols),
            None => exactly(snapshot, moment, by),
        });
    })?;
    let mut pins = pins.expect("a snapshot for each moment");
    pins.rows
        .sort_by_key(|row| std::cmp::Reverse((row.shared_bytes, row.sole_bytes)));
    Ok(TracePins {
        process: stream,
        moment,
        span: (process.first_time, process.last_time),
        pins,
        resident_heap: resident(process, moment.time),
        stack_bytes: read.map(|read| read.mean),
    })
}

/// Resident bytes of the heap at the look nearest to `time`, and the time of that look.
fn resident(process: &ProcessSurvey, time: u64) -> Option<(u64, u64)> {
    let told = process
        .samples
        .iter()
        .filter_map(|sample| Some((sample.resident_heap?, sample.time?)));
    told.min_by_key(|(_, at)| at.abs_diff(time))
}

/// What is known of a moment's blocks before they are grouped.
struct Looked {
    sums: Sums,
    /// Figures of each block.
    blamed: Vec<Figures>,
    /// By group: free bytes of the pages that only its blocks keep, including pages with a single
    /// block.
    sole: HashMap<u32, u64>,
    /// By group: the same without the pages with a single block.
    sole_of_several: HashMap<u32, u64>,
    sole_unknown: u64,
}

fn look(blocks: &[Block], groups: &[Option<u32>]) -> Looked {
    let mut looked = Looked {
        sums: Sums::default(),
        blamed: vec![Figures::default(); blocks.len()],
        sole: HashMap::new(),
        sole_of_several: HashMap::new(),
        sole_unknown: 0,
    };
    let mut tell = |page: &Page<u32>| {
        looked.sums.add(page);
        blame::add(&mut looked.blamed, page);
        if !page.is_sparse() {
            return;
        }
        let mut known = page.parts.iter().map(|part| groups[part.block as usize]);
        let is_several = page.parts.len() > 1;
        let first = known.clone().flatten().next();
        let is_like_first = |group: Option<u32>| group.is_none() || group == first;
        if !known.clone().all(is_like_first) {
            return;
        }
        match first {
            Some(group) if known.all(|group| group.is_some()) => {
                *looked.sole.entry(group).or_default() += page.free();
                if is_several {
                    *looked.sole_of_several.entry(group).or_default() += page.free();
                }
            }
            _ if is_several => looked.sole_unknown += page.free(),
            _ => {}
        }
    };
    let mut pages = Pages::default();
    for (number, block) in blocks.iter().enumerate() {
        pages.push(block.address, block.size, number as u32, &mut tell);
    }
    pages.finish(&mut tell);
    looked
}

/// Sizes and ages of a group's blocks.
#[derive(Default)]
struct Seen {
    sizes: Option<(u64, u64)>,
    ages: f64,
    weight: f64,
    blocks: u64,
}

impl Seen {
    fn add(&mut self, block: &Block, now: u64, weight: f64) {
        let (smallest, largest) = self.sizes.unwrap_or((block.size, block.size));
        self.sizes = Some((smallest.min(block.size), largest.max(block.size)));
        self.ages += weight * now.saturating_sub(block.born) as f64;
        self.weight += weight;
        self.blocks += 1;
    }

    fn row(&self, name: String) -> Row {
        let (smallest, largest) = self.sizes.unwrap_or_default();
        Row {
            name,
            functions: Vec::new(),
            keys: Vec::new(),
            shared_bytes: 0,
            error_bytes: 0,
            sole_bytes: 0,
            blocks: self.blocks,
            live_bytes: 0,
            samples: None,
            smallest,
            largest,
            age: (self.weight > 0.0).then(|| (self.ages / self.weight) as u64),
        }
    }
}

fn exactly(snapshot: &Snapshot, moment: Moment, by: By) -> Pins {
    let key = |block: &Block| match by {
        By::Age => age_class(moment.time.saturating_sub(block.born)) as u32,
        By::Thread => block.thread,
        By::Size | By::Stack => class_of(block.size) as u32,
    };
    let name = |key: u32| match by {
        By::Age => name_of_age(key as usize),
        By::Thread => format!("thread {key}"),
        By::Size | By::Stack => name_of_size(key as usize),
    };
    let keys: Vec<Option<u32>> = snapshot.blocks.iter().map(|one| Some(key(one))).collect();
    let looked = look(snapshot.blocks, &keys);
    let mut seen: HashMap<u32, (Seen, Figures)> = HashMap::new();
    let each = snapshot.blocks.iter().zip(&looked.blamed);
    for (block, figures) in each.filter(|(_, figures)| figures.shared > 0.0) {
        let (seen, sum) = seen.entry(key(block)).or_default();
        seen.add(block, moment.time, 1.0);
        sum.shared += figures.shared;
        sum.live += figures.live;
    }
    let mut groups: Vec<(u32, (Seen, Figures))> = seen.into_iter().collect();
    groups.sort_by_key(|(key, _)| *key);
    let weights: Vec<f64> = groups.iter().map(|(_, (_, sum))| sum.shared).collect();
    let parts = blame::apportion(looked.sums.sparse_free_bytes(), &weights);
    let rows = groups
        .iter()
        .zip(parts)
        .map(|((key, (seen, sum)), part)| Row {
            shared_bytes: part,
            sole_bytes: looked.sole.get(key).copied().unwrap_or(0),
            live_bytes: sum.live,
            ..seen.row(name(*key))
        });
    Pins {
        by,
        sums: looked.sums,
        rows: rows.collect(),
        unknown_bytes: 0,
        dense_bytes: looked.sums.free_bytes() - looked.sums.sparse_free_bytes(),
        sole_unknown_bytes: looked.sole_unknown,
    }
}

/// Names of the functions of stacks; each frame is looked up once.
struct Names<'a> {
    read: &'a Read,
    stacks: Stacks,
    symbols: &'a mut Symbols,
    known: HashMap<Place, Vec<String>>,
}

impl Names<'_> {
    /// The functions by which a stack's blocks are grouped, the outermost first.
    fn of(&mut self, key: Key) -> Vec<String> {
        let mut names = Vec::new();
        for place in self.read.places(key) {
            let found = self.known.entry(place.clone()).or_insert_with(|| {
                let found = self.stacks.functions(&place, self.symbols).into_iter();
                found.map(|function| function.name).collect()
            });
            names.extend(found.iter().cloned());
        }
        let library = names.iter().take_while(|name| is_library(name)).count();
        if library < names.len() {
            names.drain(..library);
        }
        if key.2 || names.is_empty() {
            names.push("[not known]".to_owned());
        }
        names.reverse();
        names
    }
}

fn by_stack(snapshot: &Snapshot, moment: Moment, read: &Read, symbols: &mut Symbols) -> Pins {
    let mut names = Names {
        read,
        stacks: Stacks {
            mean: read.mean,
            modules: read.modules.clone(),
            sites: Vec::new(),
        },
        symbols,
        known: HashMap::new(),
    };
    // Stacks with the same functions form one group, even if their lines differ.
    let mut numbers: HashMap<Key, u32> = HashMap::new();
    let mut by_names: HashMap<Vec<String>, u32> = HashMap::new();
    let mut found_keys: Vec<(Vec<String>, Vec<Key>)> = Vec::new();
    let groups: Vec<Option<u32>> = snapshot
        .blocks
        .iter()
        .map(|block| {
            let key = read.stack(block, snapshot.begins)?;
            Some(*numbers.entry(key).or_insert_with(|| {
                let functions = names.of(key);
                let group = *by_names.entry(functions.clone()).or_insert_with(|| {
                    found_keys.push((functions, Vec::new()));
                    found_keys.len() as u32 - 1
                });
                found_keys[group as usize].1.push(key);
                group
            }))
        })
        .collect();
    let looked = look(snapshot.blocks, &groups);
    let each = || snapshot.blocks.iter().zip(&looked.blamed).zip(&groups);
    let blamed = each().map(|((block, figures), group)| Blamed {
        size: block.size,
        shared: figures.shared,
        alone: figures.sole,
        group: *group,
    });
    let estimates = blame::estimate(blamed, read.mean);
    let mut seen: HashMap<u32, Seen> = HashMap::new();
    for ((block, figures), group) in each() {
        if let (Some(group), true) = (group, figures.shared > 0.0) {
            let weight = 1.0 / chance(block.size, read.mean);
            seen.entry(*group)
                .or_default()
                .add(block, moment.time, weight);
        }
    }
    let mut found: Vec<_> = estimates.groups.iter().collect();
    found.sort_by_key(|(group, _)| **group);
    let mut weights: Vec<f64> = found.iter().map(|(_, one)| one.shared).collect();
    weights.push(estimates.unsampled);
    let mut parts = blame::apportion(looked.sums.sparse_free_bytes(), &weights);
    let unknown_bytes = parts.pop().unwrap_or(0);
    let rows = found.iter().zip(parts).map(|((group, estimate), part)| {
        let (functions, keys) = found_keys[**group as usize].clone();
        let of_several = looked.sole_of_several.get(group).copied().unwrap_or(0);
        Row {
            functions,
            keys,
            shared_bytes: part,
            error_bytes: estimate.error.round() as u64,
            // Both terms are estimates, so the sum is limited to the whole.
            sole_bytes: (estimate.alone.round() as u64 + of_several).min(part),
            blocks: estimate.blocks.round() as u64,
            live_bytes: estimate.bytes.round() as u64,
            samples: Some(estimate.samples),
            ..seen.get(group).map_or_else(
                || Seen::default().row(String::new()),
                |seen| seen.row(String::new()),
            )
        }
    });
    Pins {
        by: By::Stack,
        sums: looked.sums,
        rows: rows.collect(),
        unknown_bytes,
        dense_bytes: looked.sums.free_bytes() - looked.sums.sparse_free_bytes(),
        sole_unknown_bytes: looked.sole_unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_libraries_are_told_from_the_programs() {
        for name in [
            "operator new(unsigned long, std::align_val_t)",
            "std::pmr::memory_resource::allocate(unsigned long, unsigned long)",
            "void std::vector<Request, std::allocator<Request> >::_M_realloc_insert<Request>(int)",
            "Request& std::vector<Request>::emplace_back<Request>(Request&&)",
            "__gnu_cxx::new_allocator<int>::allocate(unsigned long)",
            "alloc::raw_vec::RawVec<T,A>::grow_one",
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
            "malloc",
            "strdup",
            "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcEE6assign",
        ] {
            assert!(is_library(name), "{name}");
        }
        for name in [
            "Sessions::remember(unsigned long)",
            "std_like()",
            "mallocate",
            "void fill<std::vector<int> >(std::vector<int>&)",
            "main",
            "<my::Type as core::clone::Clone>::clone",
        ] {
            assert!(!is_library(name), "{name}");
        }
    }
}
