//! Judges which figures got worse, by how much, and how sure that is.
//!
//! A figure fails if three conditions hold: the median of its ratios is beyond the limit, their
//! whole interval is above 1, and the growth is more than the grain. If only the interval says
//! otherwise, the figure is unsure: more trials would decide. If the baseline is a trace that was
//! replayed beside this one, ratios are paired by round. Against a baseline's file they are ratios
//! of medians, and the interval is computed from the ends of both, as in `loam lab compare`.

use loam_format::results::machine::Machine;
use loam_format::results::Results;
use loam_format::units::bytes;

use super::baseline::Baseline;
use super::limits::Limits;
use super::{row, summary, was_disturbed, Compared, BEFORE, COMPARED, NOW};
use crate::analyse::runs::Row;
use crate::analyse::stats::{Method, Summary};
use crate::experiments::replay::judged as error_in_words;
use crate::traces::summary::SizeClass;

/// What the replay is compared with.
#[derive(Debug)]
pub enum Against<'a> {
    /// A trace that was replayed in the same rounds, with the blocks that lived at its peak.
    Trace(&'a [SizeClass]),
    /// Figures of an earlier replay.
    File(&'a Baseline),
}

/// The verdict on a figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Within its limit.
    Passed,
    /// Beyond its limit, and surely worse.
    Failed,
    /// Beyond its limit, but perhaps by chance.
    Unsure,
    /// Not compared, for this reason.
    NotJudged(String),
}

/// A figure and its verdict.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Which figure.
    pub figure: Compared,
    /// The baseline's figure.
    pub before: Option<f64>,
    /// The trace's figure.
    pub now: f64,
    /// The trace's figure, divided by the baseline's.
    pub ratio: Option<Summary>,
    /// The share by which it may grow.
    pub limit: Option<f64>,
    /// The verdict.
    pub outcome: Outcome,
}

/// The whole answer.
#[derive(Debug)]
pub struct Gated {
    /// The allocator of the replays.
    pub allocator: String,
    /// Number of trials of each.
    pub trials: usize,
    /// The figures.
    pub judged: Vec<Judged>,
    /// Why memory grew, as far as the traces show it.
    pub causes: Vec<String>,
    /// What a reader must know, in sentences.
    pub remarks: Vec<String>,
}

impl Gated {
    /// Whether a figure got worse than it may.
    pub fn has_failed(&self) -> bool {
        self.titles(&Outcome::Failed).next().is_some()
    }

    /// Titles of the figures with that outcome.
    pub fn titles<'g>(&'g self, outcome: &'g Outcome) -> impl Iterator<Item = &'static str> + 'g {
        let those = self
            .judged
            .iter()
            .filter(move |one| one.outcome == *outcome);
        those.map(|one| one.figure.title)
    }
}

/// Judges finished replays on an allocator; none if there are no trials to compare.
pub fn judge(
    results: &Results,
    allocator: &str,
    against: &Against,
    limits: &Limits,
    sizes: &[SizeClass],
) -> Option<Gated> {
    let now = row(results, NOW, allocator)?;
    let before = match against {
        Against::Trace(_) => Some(row(results, BEFORE, allocator)?),
        Against::File(_) => None,
    };
    let judged: Vec<Judged> = COMPARED
        .iter()
        .filter_map(|figure| {
            let value = summary(&now, figure)?;
            let (before, ratio) = match (&before, against) {
                (Some(before), _) => (
                    summary(before, figure),
                    Summary::of(&now.ratios(before, figure.of)),
                ),
                (None, Against::File(baseline)) => {
                    let kept = baseline.figures.get(figure.id).map(|kept| kept.summary());
                    (kept, kept.and_then(|kept| unpaired(&value, &kept)))
                }
                (None, Against::Trace(_)) => (None, None),
            };
            let doubt = doubt(figure, &now, results, against);
            Some(one(
                figure,
                limits.of(figure.id),
                &value,
                before,
                ratio,
                doubt,
            ))
        })
        .collect();
    let before_sizes = match against {
        Against::Trace(sizes) => sizes,
        Against::File(baseline) => baseline.sizes.as_slice(),
    };
    Some(Gated {
        allocator: allocator.to_owned(),
        trials: now.runs.len() + now.left_out.len(),
        causes: causes(&judged, before_sizes, sizes),
        remarks: remarks(results, allocator, against),
        judged,
    })
}

fn one(
    figure: &Compared,
    limit: Option<f64>,
    value: &Summary,
    before: Option<Summary>,
    ratio: Option<Summary>,
    doubt: Option<String>,
) -> Judged {
    let before = before.map(|summary| summary.median);
    let outcome = match (limit, doubt, before, ratio) {
        (None, ..) if figure.limit.is_none() => Outcome::NotJudged(String::new()),
        (None, ..) => Outcome::NotJudged("its limit is off".to_owned()),
        (_, Some(doubt), ..) => Outcome::NotJudged(doubt),
        (Some(limit), None, Some(before), ratio) => {
            let grown = value.median - before;
            match ratio {
                _ if grown <= figure.grain => Outcome::Passed,
                Some(ratio) if ratio.median <= 1.0 + limit => Outcome::Passed,
                Some(ratio) if ratio.low <= 1.0 => Outcome::Unsure,
                // A growth from nothing to something exceeds every share.
                _ => Outcome::Failed,
            }
        }
        (Some(_), None, None, _) => Outcome::NotJudged("the baseline does not have it".to_owned()),
    };
    Judged {
        figure: *figure,
        before,
        now: value.median,
        ratio,
        limit,
        outcome,
    }
}

/// The ratio of trials in different runs, which can not be paired.
fn unpaired(now: &Summary, before: &Summary) -> Option<Summary> {
    (before.median > 0.0 && before.low > 0.0).then(|| Summary {
        median: now.median / before.median,
        low: now.low / before.high,
        high: now.high / before.low,
        ..*now
    })
}

/// The reason why a figure can not be judged here.
fn doubt(figure: &Compared, now: &Row, results: &Results, against: &Against) -> Option<String> {
    if !figure.is_time {
        return None;
    }
    if let Against::File(baseline) = against {
        if !is_alike(&baseline.machine, &results.machine) {
            return Some("the baseline's file is from another machine".to_owned());
        }
        if baseline.disturbed || was_disturbed(now) {
            let why = "the machine was busy with something else, or its memory was cold";
            return Some(why.to_owned());
        }
    }
    if now.runs.len() + now.left_out.len() < 2 {
        return Some("one trial says nothing about time".to_owned());
    }
    None
}

/// Whether times of the two machines can be compared.
fn is_alike(one: &Machine, other: &Machine) -> bool {
    let identity = |machine: &Machine| {
        (
            machine.cpu.clone(),
            machine.cores,
            machine.kernel.clone(),
            machine.memory_bytes,
            machine.transparent_hugepages.clone(),
        )
    };
    identity(one) == identity(other)
}

/// Whether the program holds more bytes or the same bytes take more memory, and which sizes grew.
fn causes(judged: &[Judged], before: &[SizeClass], now: &[SizeClass]) -> Vec<String> {
    let of = |id: &str| judged.iter().find(|one| one.figure.id == id);
    let is_memory = |one: &&Judged| one.figure.id != "faults" && !one.figure.is_time;
    let grew = judged
        .iter()
        .filter(is_memory)
        .any(|one| one.outcome == Outcome::Failed);
    let Some((live, before_live)) = of("live")
        .filter(|_| grew)
        .and_then(|live| Some((live.now, live.before?)))
    else {
        return Vec::new();
    };
    let peak = of("peak").and_then(|peak| Some(peak.now - peak.before?));
    let more = live - before_live;
    let (at_most, instead) = (bytes(live), bytes(before_live));
    // The program is the cause if its live bytes make up half of the growth or more.
    if more <= 0.0 || peak.is_some_and(|peak| more < peak / 2.0) {
        return vec![format!(
            "The program asks for hardly more ({at_most} live at most, {instead} before): its \
             blocks lie in more memory. Look for blocks that live long among those that do not."
        )];
    }
    let mut causes = vec![format!(
        "The program itself holds more: {at_most} live at most, {instead} before."
    )];
    let of_before = |up_to: u64| before.iter().find(|class| class.up_to == up_to);
    let mut grown: Vec<(u64, &SizeClass, u64)> = now
        .iter()
        .map(|class| {
            let before = of_before(class.up_to).map_or(0, |class| class.peak_bytes);
            (class.peak_bytes.saturating_sub(before), class, before)
        })
        .filter(|(grown, ..)| *grown as f64 >= more / 10.0)
        .collect();
    grown.sort_by_key(|(grown, ..)| std::cmp::Reverse(*grown));
    for (_, class, before) in grown.iter().take(3) {
        causes.push(format!(
            "Blocks of up to {} hold {} at the peak, {} before.",
            bytes(class.up_to as f64),
            bytes(class.peak_bytes as f64),
            bytes(*before as f64)
        ));
    }
    causes
}

fn remarks(results: &Results, allocator: &str, against: &Against) -> Vec<String> {
    let mut remarks = Vec::new();
    let Some(trace) = results
        .experiments
        .first()
        .and_then(|one| one.trace.as_ref())
    else {
        return remarks;
    };
    remarks.push(error_in_words(trace.error.as_ref(), trace));
    remarks.extend(trace.remarks.iter().cloned());
    if let Against::File(baseline) = against {
        let mut differs = |what: &str, before: &str, now: &str| {
            if before != now {
                remarks.push(format!("Careful: {what} was {before} and is {now}."));
            }
        };
        let (before, now) = (&baseline.machine, &results.machine);
        differs(
            "the command",
            &baseline.command.join(" "),
            &trace.command.join(" "),
        );
        differs("the allocator", &baseline.allocator, allocator);
        let version = results.allocators.iter().find(|one| one.label == allocator);
        let version = version.and_then(|one| one.version.as_deref());
        differs(
            "the allocator's version",
            baseline.allocator_version.as_deref().unwrap_or("unknown"),
            version.unwrap_or("unknown"),
        );
        differs(
            "the setting of huge pages",
            &before.transparent_hugepages,
            &now.transparent_hugepages,
        );
        differs("the architecture", &before.architecture, &now.architecture);
    }
    remarks
}

/// Whether the interval is worth showing.
pub fn has_interval(summary: &Summary) -> bool {
    summary.method != Method::Single && summary.low != summary.high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(id: &str, before: &[f64], now: &[f64], limit: Option<f64>) -> Outcome {
        let figure = COMPARED.iter().find(|figure| figure.id == id).unwrap();
        let (before, now) = (Summary::of(before).unwrap(), Summary::of(now).unwrap());
        let ratio = unpaired(&now, &before);
        one(figure, limit, &now, Some(before), ratio, None).outcome
    }

    #[test]
    fn a_figure_fails_beyond_its_limit_if_that_is_no_chance() {
        let mib = |values: [f64; 3]| values.map(|value| value * 1048576.0);
        let before = mib([100.0, 100.5, 101.0]);
        let fails = |now, limit| outcome("peak", &before, &mib(now), limit);
        assert_eq!(fails([104.0, 104.5, 105.0], Some(0.05)), Outcome::Passed);
        assert_eq!(fails([106.0, 106.5, 107.0], Some(0.05)), Outcome::Failed);
        assert_eq!(fails([90.0, 106.5, 107.0], Some(0.05)), Outcome::Unsure);
        assert_eq!(fails([50.0, 51.0, 52.0], Some(0.05)), Outcome::Passed);
        assert!(matches!(
            fails([106.0, 106.5, 107.0], None),
            Outcome::NotJudged(_)
        ));
        // The figure grows by a fifth, but both values are tiny.
        assert_eq!(
            outcome("peak", &[1e6], &[1.2e6], Some(0.05)),
            Outcome::Passed
        );
        assert_eq!(
            outcome("faults", &[0.0], &[9e4], Some(0.05)),
            Outcome::Failed
        );
    }
}
