//! `loam lab compare A B`: what changed between two runs.
//!
//! Rounds of different runs are not paired, so the ratio is one of medians. Its interval is
//! computed from the ends of both intervals. A change is called a difference only if the intervals
//! do not touch.

use comfy_table::{presets, Cell as TableCell, CellAlignment, Table};

use loam_format::results::Results;
use loam_format::units::ratio;
use loam_format::{plain, words};
use loam_report::style::bold;

use crate::analyse::figures::{Better, Figure, FigureTable};
use crate::analyse::stats::Summary;
use crate::{draw, experiments};

/// Differences smaller than this are not named.
const WORTH_SAYING: f64 = 0.02;

/// The whole output.
pub fn render(before: &Results, after: &Results, styled: bool) -> String {
    let mut text = String::new();
    for warning in incomparable(before, after) {
        text += &format!("Careful: {warning}.\n");
    }
    let mut shared = 0;
    for experiment in draw::experiments_of(before) {
        let is_in_both = after
            .experiments
            .iter()
            .any(|record| record.name == experiment.name());
        if is_in_both {
            shared += 1;
            text += &one_experiment(before, after, experiment.as_ref(), styled);
        } else {
            text += &format!("{}: only in the first file\n\n", experiment.name());
        }
    }
    let extra = after.experiments.iter().filter(|record| {
        !before
            .experiments
            .iter()
            .any(|earlier| earlier.name == record.name)
    });
    for record in extra {
        text += &format!("{}: only in the second file\n\n", record.name);
    }
    if shared == 0 {
        text += "The two files have no experiment in common.\n";
    }
    text
}

/// Reasons other than allocators why figures of the two runs may differ.
fn incomparable(before: &Results, after: &Results) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut check = |what: &str, a: &str, b: &str| {
        if a != b {
            reasons.push(format!("the {what} differs ({a} and {b})"));
        }
    };
    check(
        "form",
        before.options.form.name(),
        after.options.form.name(),
    );
    check(
        "seed",
        &before.options.seed.to_string(),
        &after.options.seed.to_string(),
    );
    check("processor", &before.machine.cpu, &after.machine.cpu);
    check("kernel", &before.machine.kernel, &after.machine.kernel);
    let cores = (
        before.machine.cores.to_string(),
        after.machine.cores.to_string(),
    );
    check("number of cores", &cores.0, &cores.1);
    let pages = (
        &before.machine.transparent_hugepages,
        &after.machine.transparent_hugepages,
    );
    check("huge page setting", pages.0, pages.1);
    if before.options.rounds == 1 || after.options.rounds == 1 {
        reasons.push(
            "a file has one trial of each allocator, so that times differ by chance too (--trials \
             3)"
            .to_owned(),
        );
    }
    for record in &after.experiments {
        let earlier = before
            .experiments
            .iter()
            .find(|earlier| earlier.name == record.name);
        if earlier.is_some_and(|earlier| earlier.sha256 != record.sha256) {
            reasons.push(format!("the program of {} is not the same", record.name));
        }
    }
    reasons
}

fn one_experiment(
    before: &Results,
    after: &Results,
    experiment: &dyn experiments::Experiment,
    styled: bool,
) -> String {
    let views = (
        experiments::view(experiment, before),
        experiments::view(experiment, after),
    );
    let a = FigureTable::of(&views.0, experiment.figures());
    let b = FigureTable::of(&views.1, experiment.figures());
    let bold = bold();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut header = vec![TableCell::new(String::new())];
    for figure in &a.figures {
        let cell = TableCell::new(format!("{bold}{}{bold:#}", figure.title));
        header.push(cell.set_alignment(CellAlignment::Right));
    }
    table.set_header(header);
    let mut sentences = Vec::new();
    for (index, row) in views.0.rows.iter().enumerate() {
        let is_it = |other: &super::analyse::runs::Row| {
            other.allocator == row.allocator && other.variant == row.variant
        };
        let Some(other) = views.1.rows.iter().position(is_it) else {
            sentences.push(format!("{}: only in the first file", row.label()));
            continue;
        };
        let mut line = vec![TableCell::new(plain::line(&row.label()))];
        let mut changes = Vec::new();
        for (column, figure) in a.figures.iter().enumerate() {
            let cells = (a.cells[index][column], b.cell(other, figure.id));
            let text = match cells {
                (Some(old), Some(new)) => {
                    changes.extend(change(figure, &old.value, &new.value));
                    show(figure, &old.value, &new.value, styled)
                }
                _ => "-".to_owned(),
            };
            line.push(TableCell::new(text).set_alignment(CellAlignment::Right));
        }
        table.add_row(line);
        sentences.push(match changes.as_slice() {
            [] => format!("{}: no difference beyond the noise", row.label()),
            some => format!("{}: {}", row.label(), words::list(some)),
        });
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    let sentences: String = sentences
        .iter()
        .map(|text| format!("  {}.\n", plain::line(text)))
        .collect();
    let heading = format!(
        "{bold}{}: {}{bold:#}",
        plain::line(experiment.name()),
        plain::line(&experiment.title())
    );
    format!("{heading}\n{}\n\n{sentences}\n", lines.join("\n"))
}

/// `21.3 M/s -> 22.0 M/s` and the ratio below it.
fn show(figure: &Figure, before: &Summary, after: &Summary, styled: bool) -> String {
    let values = format!(
        "{} -> {}",
        figure.unit.show(before.median),
        figure.unit.show(after.median)
    );
    if before.median == 0.0 {
        return values;
    }
    let factor = ratio(after.median / before.median);
    match is_change(before, after) {
        true if styled => format!("{values}\n{0}{factor}{0:#}", bold()),
        true => format!("{values}\n*{factor}"),
        false => format!("{values}\n{factor}"),
    }
}

fn is_change(before: &Summary, after: &Summary) -> bool {
    let apart = before.high < after.low || after.high < before.low;
    apart && (after.median / before.median - 1.0).abs() >= WORTH_SAYING
}

fn change(figure: &Figure, before: &Summary, after: &Summary) -> Option<String> {
    if before.median == 0.0 || !is_change(before, after) {
        return None;
    }
    let percent = (after.median / before.median - 1.0) * 100.0;
    let direction = if percent > 0.0 { "up" } else { "down" };
    let judgement = match (figure.better, percent > 0.0) {
        (Better::Neither, _) => "",
        (Better::Higher, true) | (Better::Lower, false) => ", better",
        _ => ", worse",
    };
    Some(format!(
        "{} {direction} {:.0}%{judgement}",
        figure.title,
        percent.abs()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_touch_are_no_change() {
        let before = Summary::of(&[10.0, 11.0, 12.0]).unwrap();
        let overlapping = Summary::of(&[11.5, 13.0, 14.0]).unwrap();
        let apart = Summary::of(&[13.0, 14.0, 15.0]).unwrap();
        assert!(!is_change(&before, &overlapping));
        assert!(is_change(&before, &apart));
        assert!(is_change(&apart, &before));
    }
}
