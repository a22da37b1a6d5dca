//! What a program would save if its long-lived blocks were kept apart. In these replays the
//! long-lived blocks come from a private Loam heap, and all other blocks from the recorded
//! allocator.

use std::path::Path;

use serde::Serialize;

use super::{Place, COST, WORTH};
use crate::analyse::stats::Summary;
use crate::replay::lives::CLASSES;
use crate::traces::lives::Found;

/// Labels of these replays: `apart-1` to `apart-3`. The number is the shortest class of lifetime
/// that is kept apart.
const LABEL: &str = "apart-";
/// A split is tried only if both sides have this share of the requested bytes. Chosen: a smaller
/// side shows no difference.
const LEAST_SHARE: f64 = 0.001;

/// What the separation saves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Separated {
    /// The shortest class of lifetime that is kept apart (`replay::lives`).
    pub class: u8,
    /// Share of the requested bytes in blocks that are kept apart.
    pub share: f64,
    /// Whether blocks were split by their call sites; otherwise each block was split by its own
    /// life.
    pub by_site: bool,
    /// Average memory, divided by that of the recorded allocator.
    pub ratio: Summary,
    /// Processor time, divided by that of the recorded allocator.
    pub time_ratio: Option<Summary>,
    /// Bytes that the separation saves on average.
    pub bytes: u64,
}

/// Specs of the replays to try; the recorded allocator's own spec and the library come with them.
pub fn candidates(base: &str, library: &Path, found: &Found) -> Vec<String> {
    // A colon or a comma in the path would end the setting.
    let library = library.to_string_lossy();
    if library.contains([',', ' ']) {
        return Vec::new();
    }
    let share = |class: usize| found.shares[class..].iter().sum::<f64>();
    let is_split = |class: &usize| (LEAST_SHARE..=1.0 - LEAST_SHARE).contains(&share(*class));
    // Two classes that split alike are tried once.
    let is_new = |class: &usize| *class == CLASSES - 1 || found.shares[*class] > LEAST_SHARE;
    (1..CLASSES)
        .filter(is_split)
        .filter(is_new)
        .map(|class| format!("{LABEL}{class}={base}:REPLAY_APART={class}:{library}"))
        .collect()
}

/// Whether the label is that of such a replay.
pub fn is_apart(label: &str) -> bool {
    class(label).is_some()
}

fn class(label: &str) -> Option<u8> {
    let class = label.strip_prefix(LABEL)?.parse().ok()?;
    (1..CLASSES as u8).contains(&class).then_some(class)
}

/// The replay with the least memory among those that were tried.
pub fn least(places: &[Place]) -> Option<&Place> {
    (places.iter())
        .filter(|place| is_apart(&place.allocator))
        .min_by(|a, b| a.memory.median.total_cmp(&b.memory.median))
}

/// What the separation surely saves, if it saves more than a change of the allocator alone. The
/// ratios refer to the recorded allocator. `first` are the places of all candidates after one
/// trial.
pub fn judge(places: &[Place], first: &[Place], base: &str, found: &Found) -> Option<Separated> {
    let place = least(places)?;
    let ratio = place.memory_ratio?;
    if ratio.median > WORTH || ratio.high >= 1.0 || ratio.count < 2 {
        return None;
    }
    // A heap that is as small without a change of the program is the better answer, if it is cheap
    // too. The same holds for the private heap's allocator if it serves all blocks: then the
    // separation is not what saves.
    let is_other = |other: &&Place, base: Option<&Place>| {
        let is_cheap = base.is_none_or(|base| other.time.median <= COST * base.time.median);
        !is_apart(&other.allocator) && is_cheap
    };
    let of = |places: &[Place]| {
        let base = places.iter().find(|other| other.allocator == base);
        let others = places.iter().filter(|other| is_other(other, base));
        let memory = others.map(|other| other.memory.median);
        memory.min_by(f64::total_cmp)
    };
    let cheapest = of(first)
        .into_iter()
        .chain(of(places))
        .min_by(f64::total_cmp)?;
    if place.memory.median > WORTH * cheapest {
        return None;
    }
    let class = class(&place.allocator)?;
    let before = places.iter().find(|other| other.allocator == base)?;
    Some(Separated {
        class,
        share: found.shares[usize::from(class)..].iter().sum(),
        by_site: found.is_by_site,
        ratio,
        time_ratio: place.time_ratio,
        bytes: (before.memory.median - place.memory.median).max(0.0) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(allocator: &str, memory: f64) -> Place {
        let summary = |value: f64| Summary::of(&[value, value]).unwrap();
        Place {
            allocator: allocator.to_owned(),
            memory: summary(memory),
            time: summary(1.0),
            memory_ratio: Some(summary(memory / 100.0)),
            time_ratio: Some(summary(1.0)),
        }
    }

    #[test]
    fn separation_is_worth_it_if_it_saves_more_than_another_heap() {
        let found = Found {
            shares: [0.9, 0.0, 0.0, 0.1],
            ..Found::default()
        };
        let base = place("system", 100.0);
        let slow = Place {
            time: Summary::of(&[2.0, 2.0]).unwrap(),
            ..place("slow", 50.0)
        };
        let judged = |apart: f64, others: &[Place]| {
            let others = [&[base.clone(), slow.clone()][..], others].concat();
            let places = [base.clone(), place("apart-3", apart)];
            judge(&places, &others, "system", &found).map(|one| one.bytes)
        };
        assert_eq!(judged(60.0, &[place("loam", 90.0)]), Some(40));
        assert_eq!(judged(97.0, &[]), None);
        assert_eq!(judged(60.0, &[place("loam", 61.0)]), None);
    }

    #[test]
    fn only_classes_that_split_are_tried() {
        let tried = |shares: [f64; CLASSES]| {
            let found = Found {
                shares,
                ..Found::default()
            };
            candidates("system", Path::new("/l/libloam.so"), &found)
        };
        assert_eq!(
            tried([0.9, 0.0, 0.0, 0.1]),
            ["apart-3=system:REPLAY_APART=3:/l/libloam.so"]
        );
        assert_eq!(tried([0.5, 0.2, 0.2, 0.1]).len(), 3);
        assert_eq!(tried([1.0, 0.0, 0.0, 0.0]).len(), 0);
        assert_eq!(tried([0.0, 0.0, 0.0, 1.0]).len(), 0);
    }
}
