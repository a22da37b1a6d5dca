//! Findings in plain words, with the same phrases in every experiment.

use loam_format::units::Unit;

use crate::analyse::figures::{Better, FigureTable};
use crate::analyse::runs::View;
use crate::analyse::stats::{Method, Summary};

/// Smaller differences are not described as differences, however sure they are.
const WORTH_SAYING: f64 = 0.02;

/// An allocator's name in a sentence.
pub fn call(label: &str) -> String {
    match label {
        "system" => "the system's malloc".to_owned(),
        "loam" => "Loam".to_owned(),
        other => other.to_owned(),
    }
}

/// What a row is compared with, in words.
pub fn call_base(view: &View, row: usize) -> String {
    let Some(base) = view.base_of(row).map(|base| &view.rows[base]) else {
        return "nothing".to_owned();
    };
    if !base.is_plain() {
        format!("{} under {}", base.variant, call(&base.allocator))
    } else if view.rows[row].allocator == base.allocator {
        // The row is another design of the program, on the same allocator.
        "plain malloc".to_owned()
    } else {
        call(&base.allocator)
    }
}

/// The sentence of the row that all other rows are compared with.
pub fn reference(parts: &[String]) -> String {
    format!("what the others are compared with: {}.", parts.join(", "))
}

/// `(1.88 to 1.97)`, or a warning if there is a single value.
pub fn interval(summary: &Summary) -> String {
    let (low, high) = (number(summary.low), number(summary.high));
    match summary.method {
        Method::Single => " (one trial)".to_owned(),
        _ if low == high => String::new(),
        _ => format!(" ({low} to {high})"),
    }
}

/// A ratio with two or three digits.
fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Whether a ratio to the base differs from 1 by more than its own uncertainty.
pub fn differs(ratio: &Summary) -> bool {
    (ratio.median - 1.0).abs() >= WORTH_SAYING
        && (ratio.method == Method::Single || ratio.excludes(1.0))
}

/// `1.93 times as fast as the system's malloc (1.88 to 1.97)`; the ratio is one of speeds.
pub fn speed(ratio: &Summary, base: &str) -> String {
    if differs(ratio) {
        format!(
            "{} times as fast as {base}{}",
            number(ratio.median),
            interval(ratio)
        )
    } else {
        format!("as fast as {base}{}", interval(ratio))
    }
}

/// `uses 0.84 times the memory of the system's malloc (0.83 to 0.86)`
pub fn memory(ratio: &Summary, base: &str) -> String {
    if differs(ratio) {
        format!(
            "peaks at {} times the memory of {base}{}",
            number(ratio.median),
            interval(ratio)
        )
    } else {
        format!("peaks at the same memory as {base}")
    }
}

/// `Fastest is Loam with 21.3 M/s, 1.93 times the system's malloc.`
pub fn leader(table: &FigureTable, id: &str, adjective: &str) -> Option<String> {
    let row = table.best(id)?;
    let figure = table.figures.iter().find(|figure| figure.id == id)?;
    let cell = table.cell(row, id)?;
    let label = &table.view.rows[row].allocator;
    let base = table.view.base_row()?;
    let mut text = format!(
        "{adjective} is {} with {}",
        call(label),
        figure.unit.show(cell.value.median)
    );
    if *label == base.allocator {
        return Some(text + ".");
    }
    if let Some(ratio) = cell.ratio.filter(|_| figure.unit != Unit::Ratio) {
        let factor = match figure.better {
            Better::Lower => format!("{} times that of", number(ratio.median)),
            _ => format!("{} times", number(ratio.median)),
        };
        text += &format!(", {factor} {}", call(&base.allocator));
    }
    Some(text + ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_within_the_noise_is_not_called_one() {
        let unsure = Summary::of(&[0.97, 1.01, 1.05]).unwrap();
        assert_eq!(
            speed(&unsure, &call("system")),
            "as fast as the system's malloc (0.97 to 1.05)"
        );
        let sure = Summary::of(&[1.88, 1.93, 1.97]).unwrap();
        assert_eq!(
            speed(&sure, &call("system")),
            "1.93 times as fast as the system's malloc (1.88 to 1.97)"
        );
        let tiny = Summary::of(&[1.010, 1.011, 1.012]).unwrap();
        assert!(!differs(&tiny), "certain, and too small to matter");
    }
}
