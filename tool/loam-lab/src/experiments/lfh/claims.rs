//! Tests the findings of `lfh`'s article. Loam takes the place of its low-fragmentation heap, the
//! system's malloc that of its default heap.

use loam_format::units::{self, Unit};

use crate::analyse::figures::{mean_of_last_three, FigureTable};
use crate::analyse::pick;
use crate::analyse::runs::{Row, Run};
use crate::experiments::claims::{Claim, Verdict};
use crate::experiments::lfh::findings::course;
use crate::experiments::lfh::main_points;

/// From here on the heap is full. Before, page faults determine the speed.
const WARM: f64 = 1_000_000.0;
/// A program that ends before this many iterations is short.
const SHORT: f64 = 100_000.0;

/// Every claim with rows that were measured.
pub fn all(table: &FigureTable) -> Vec<Claim> {
    let row = |name| table.row_of(name).map(|index| &table.view.rows[index]);
    let (Some(system), Some(loam)) = (row("system"), row("loam")) else {
        return Vec::new();
    };
    [
        early(system, loam),
        late(system, loam),
        faults(system, loam),
        faster(system, loam),
        slows(system),
        short(system, loam),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn percent(value: f64) -> String {
    Unit::Percent.show(value)
}

fn early(system: &Row, loam: &Row) -> Option<Claim> {
    let at = |row| Some(course(row, "overhead").first()?.1);
    let (theirs, own) = (at(system)?, at(loam)?);
    Some(Claim::new(
        "The low-fragmentation heap uses more memory at first",
        Verdict::of(own > theirs),
        format!(
            "at the first checkpoint Loam's overhead is {}, the system's {}",
            percent(own),
            percent(theirs)
        ),
    ))
}

fn late(system: &Row, loam: &Row) -> Option<Claim> {
    let at = |row| {
        pick::of_row(row, |run: &Run| {
            mean_of_last_three(main_points(run)?, "overhead")
        })
    };
    let (theirs, own) = (at(system)?, at(loam)?);
    Some(Claim::new(
        "After 25.6 M iterations the default heap's overhead has risen far above it",
        Verdict::of(theirs > own),
        format!(
            "at the end {} under Loam, {} under the system's malloc",
            percent(own),
            percent(theirs)
        ),
    ))
}

fn faults(system: &Row, loam: &Row) -> Option<Claim> {
    let at = |row| Some(course(row, "faults").last()?.1);
    let (theirs, own) = (at(system)?, at(loam)?);
    Some(Claim::new(
        "It causes far fewer page faults",
        Verdict::of(own < theirs * 0.8),
        format!(
            "{} under Loam, {} under the system's malloc",
            Unit::Count.show(own),
            Unit::Count.show(theirs)
        ),
    ))
}

fn speeds(row: &Row) -> Vec<(f64, f64)> {
    course(row, "operations_per_second")
}

fn faster(system: &Row, loam: &Row) -> Option<Claim> {
    let (theirs, own) = (speeds(system), speeds(loam));
    let pairs = own.iter().zip(&theirs);
    let ahead = pairs.filter(|((_, own), (_, theirs))| own > theirs).count();
    Some(Claim::new(
        "It is faster throughout",
        Verdict::of_some(ahead, own.len()),
        format!("Loam is ahead at {ahead} of {} checkpoints", own.len()),
    ))
    .filter(|_| !own.is_empty())
}

fn slows(system: &Row) -> Option<Claim> {
    let warm: Vec<f64> = speeds(system)
        .iter()
        .filter(|(x, _)| *x >= WARM)
        .map(|(_, speed)| *speed)
        .collect();
    let (first, last) = (warm.first()?, warm.last().filter(|_| warm.len() > 1)?);
    let change = last / first;
    Some(Claim::new(
        "The default heap slows as iterations grow",
        Verdict::of(change < 0.9),
        format!(
            "the system's malloc goes from {} to {} between the first checkpoint past a million \
             iterations and the last",
            Unit::PerSecond.show(*first),
            Unit::PerSecond.show(*last)
        ),
    ))
}

fn short(system: &Row, loam: &Row) -> Option<Claim> {
    let ratio = |wanted: &dyn Fn(f64) -> bool| {
        let both = speeds(loam).into_iter().zip(speeds(system));
        let ratios: Vec<f64> = both
            .filter(|((x, _), _)| wanted(*x))
            .map(|((_, own), (_, theirs))| own / theirs)
            .collect();
        crate::analyse::stats::median(&ratios)
    };
    let (early, late) = (ratio(&|x| x < SHORT)?, ratio(&|x| x >= WARM)?);
    Some(Claim::new(
        "Short programs gain little",
        Verdict::of(early < late),
        format!(
            "before {} iterations Loam is {early:.2} times as fast, past a million {late:.2} times",
            units::grouped(SHORT as u64)
        ),
    ))
}
