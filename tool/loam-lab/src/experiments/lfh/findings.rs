//! The findings of `lfh`, compared with those of its article.

use loam_format::units::{self, Unit};
use loam_format::words;

use crate::analyse::figures::{mean_of_last_three, FigureTable};
use crate::analyse::runs::{Row, Run, View};
use crate::analyse::stats;
use crate::experiments::lfh::main_points;
use crate::experiments::{generic, phrases};

/// An allocator that keeps this part of its best speed is not called slower.
const STEADY: f64 = 0.95;
/// Before this many iterations the heap still fills, and the kernel's page faults determine the
/// speed.
const WARMED_UP: f64 = 1_000_000.0;

/// The findings of the whole experiment.
pub fn all(table: &FigureTable) -> Vec<String> {
    let freed = "After everything was freed, the smallest process";
    [
        phrases::leader(table, "speed", "Fastest over the whole run"),
        phrases::leader(table, "overhead", "The least memory overhead"),
        decay(table.view),
        early_and_late(table),
        phrases::leader(table, "freed", freed),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A row in words.
pub fn sentence(table: &FigureTable, row: usize) -> String {
    let overhead = |row| table.cell(row, "overhead").map(|cell| cell.value.median);
    if table.view.base == Some(row) {
        let mut parts = generic::reference_parts(table, row);
        parts.extend(overhead(row).map(|v| format!("{} overhead", Unit::Percent.show(v))));
        return phrases::reference(&parts);
    }
    let Some(base) = table.view.base_of(row) else {
        return String::new();
    };
    let mut parts = Vec::new();
    if let Some(ratio) = table.cell(row, "speed").and_then(|cell| cell.ratio) {
        parts.push(phrases::speed(&ratio, &phrases::call_base(table.view, row)));
    }
    if let (Some(own), Some(theirs)) = (overhead(row), overhead(base)) {
        let (own, theirs) = (Unit::Percent.show(own), Unit::Percent.show(theirs));
        parts.push(format!("{own} overhead against {theirs}"));
    }
    parts.extend(overtakes(&table.view.rows[base], &table.view.rows[row]));
    parts.join("; ") + "."
}

/// The median of a key at each x, over the runs of a row.
pub fn course(row: &Row, key: &str) -> Vec<(f64, f64)> {
    let first = row.runs.iter().find_map(main_points).unwrap_or_default();
    first
        .iter()
        .enumerate()
        .filter_map(|(index, point)| {
            let at = |run: &Run| main_points(run)?.get(index)?.number(key);
            let values: Vec<f64> = row.runs.iter().filter_map(at).collect();
            Some((point.x?, stats::median(&values)?))
        })
        .collect()
}

fn speeds(row: &Row) -> Vec<(f64, f64)> {
    course(row, "operations_per_second")
}

/// The point from which a row stays ahead of the base: faster, or less wasteful.
fn overtakes(base: &Row, row: &Row) -> Vec<String> {
    let is_faster = |own: f64, theirs: f64| own > theirs;
    let is_thriftier = |own: f64, theirs: f64| own < theirs;
    let faster = from_when(&speeds(base), &speeds(row), is_faster);
    let overhead = |row| course(row, "overhead");
    let thriftier = from_when(&overhead(base), &overhead(row), is_thriftier);
    [("faster", faster), ("less wasteful", thriftier)]
        .into_iter()
        .filter_map(|(what, when)| Some(format!("{what} {}", when?)))
        .collect()
}

fn from_when(
    base: &[(f64, f64)],
    own: &[(f64, f64)],
    is_ahead: fn(f64, f64) -> bool,
) -> Option<String> {
    let pairs: Vec<(f64, bool)> = own
        .iter()
        .filter_map(|(x, own)| {
            let (_, theirs) = base.iter().find(|(other, _)| other == x)?;
            Some((*x, is_ahead(*own, *theirs)))
        })
        .collect();
    let Some(behind_last) = pairs.iter().rposition(|(_, ahead)| !ahead) else {
        return (!pairs.is_empty()).then(|| "from the start".to_owned());
    };
    let (x, _) = pairs.get(behind_last + 1)?;
    Some(format!("from {} iterations on", units::grouped(*x as u64)))
}

/// The allocators that slow down between the first warm checkpoint and the last.
fn decay(view: &View) -> Option<String> {
    let mut slowed = Vec::new();
    let mut steady = 0;
    for row in view.plain_rows() {
        let warm: Vec<f64> = speeds(row)
            .iter()
            .filter(|(x, _)| *x >= WARMED_UP)
            .map(|(_, speed)| *speed)
            .collect();
        let (Some(best), Some(last)) = (warm.iter().copied().reduce(f64::max), warm.last()) else {
            continue;
        };
        if warm.len() < 2 {
            continue;
        }
        if *last < best * STEADY {
            let percent = (1.0 - last / best) * 100.0;
            slowed.push(format!("{} ({percent:.0}%)", phrases::call(&row.allocator)));
        } else {
            steady += 1;
        }
    }
    if slowed.is_empty() && steady == 0 {
        return None;
    }
    Some(if slowed.is_empty() {
        "Once warm, none of them gets slower as iterations grow: the article's slow-down is not \
         seen here."
            .to_owned()
    } else {
        format!(
            "As iterations grow, these fall behind their own best speed: {}; {} within 5% of it.",
            words::list(&slowed),
            match steady {
                0 => "none of the others stays".to_owned(),
                1 => "one stays".to_owned(),
                n => format!("{n} stay"),
            }
        )
    })
}

/// The article's finding: the low-fragmentation policy costs more memory at first and less later.
fn early_and_late(table: &FigureTable) -> Option<String> {
    let view = table.view;
    let row = &view.rows[table.row_of("loam")?];
    let base = view
        .base_row()
        .filter(|base| base.allocator != row.allocator)?;
    let overhead = |row: &Row, late: bool| {
        let at = |run: &Run| {
            let points = main_points(run)?;
            if late {
                mean_of_last_three(points, "overhead")
            } else {
                points.first()?.overhead
            }
        };
        let values: Vec<f64> = row.runs.iter().filter_map(at).collect();
        stats::median(&values)
    };
    let (own_early, base_early) = (overhead(row, false)?, overhead(base, false)?);
    let (own_late, base_late) = (overhead(row, true)?, overhead(base, true)?);
    let word = |own: f64, theirs: f64| if own > theirs { "more" } else { "less" };
    Some(format!(
        "Against {}, Loam loses {} memory at the first checkpoint ({} against {}) and {} at the \
         end ({} against {}).",
        phrases::call(&base.allocator),
        word(own_early, base_early),
        Unit::Percent.show(own_early),
        Unit::Percent.show(base_early),
        word(own_late, base_late),
        Unit::Percent.show(own_late),
        Unit::Percent.show(base_late),
    ))
}
