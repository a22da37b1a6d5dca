//! The table at the end of `loam lab`: one for each experiment, with a row and a sentence for every
//! allocator.

use comfy_table::{presets, Cell as TableCell, CellAlignment, Table};

use loam_format::results::Results;
use loam_format::units::{ratio, Unit};
use loam_format::{plain, words};
use loam_report::style::{bold, dim};
use loam_report::terminal;

use super::remarks;
use crate::analyse::figures::{Cell, Figure, FigureTable};
use crate::analyse::stats::{Method, Summary};
use crate::experiments::{self, Experiment};

/// The whole output. The best of each column is bold if `styled`; otherwise it has an asterisk.
pub fn render(results: &Results, styled: bool) -> String {
    let mut text = String::new();
    for experiment in super::experiments_of(results) {
        text += &one_experiment(results, experiment.as_ref(), styled);
    }
    text + &footer(results, styled)
}

fn one_experiment(results: &Results, experiment: &dyn Experiment, styled: bool) -> String {
    let bold = bold();
    let view = experiments::view(experiment, results);
    let mut text = format!(
        "{bold}{}: {}{bold:#}\n",
        plain::line(experiment.name()),
        plain::line(&experiment.title())
    );
    if view.rows.is_empty() {
        return text + "  No trial of it was finished.\n\n";
    }
    let table = FigureTable::of(&view, experiment.figures());
    text += &figures(&table, styled);
    text += "\n";
    for (index, row) in view.rows.iter().enumerate() {
        let sentence = experiment.sentence(&table, index);
        text += &terminal::wrapped(&format!("{}: {sentence}", row.label()));
    }
    let claims = experiment.claims(&table);
    if !claims.is_empty() {
        text += "\n  What its article found, tested again:\n";
    }
    for claim in claims {
        text += &terminal::wrapped(&format!(
            "{} - {}: {}.",
            claim.said,
            claim.verdict.word(),
            claim.found
        ));
    }
    for grid in experiment.grids(&view) {
        text += &terminal::grid(&grid);
    }
    text + "\n"
}

fn figures(figures: &FigureTable, styled: bool) -> String {
    let bold = bold();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut header = vec![TableCell::new(String::new())];
    for figure in &figures.figures {
        let cell = TableCell::new(format!("{bold}{}{bold:#}", figure.title));
        header.push(cell.set_alignment(CellAlignment::Right));
    }
    table.set_header(header);
    for (index, (row, cells)) in figures.view.rows.iter().zip(&figures.cells).enumerate() {
        let is_base = figures.view.base == Some(index);
        let mut line = vec![TableCell::new(plain::line(&row.label()))];
        for (figure, cell) in figures.figures.iter().zip(cells) {
            let text = cell.map_or_else(
                || "-".to_owned(),
                |cell| show(figure, &cell, is_base, styled),
            );
            line.push(TableCell::new(text).set_alignment(CellAlignment::Right));
        }
        table.add_row(line);
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n") + "\n"
}

/// Two lines: the value, and below it the ratio to the base with its interval. The base itself, and
/// figures that are ratios already, show the interval of the value instead.
fn show(figure: &Figure, cell: &Cell, is_base: bool, styled: bool) -> String {
    let value = figure.unit.show(cell.value.median);
    let value = match (cell.is_best, styled) {
        (true, true) => format!("{0}{value}{0:#}", bold()),
        (true, false) => format!("*{value}"),
        (false, _) => value,
    };
    let dim = dim();
    let second = if is_base || figure.unit == Unit::Ratio {
        spread(&cell.value, |value| figure.unit.show(value))
    } else {
        let Some(summary) = cell.ratio else {
            return value;
        };
        let plain = |value| ratio(value).trim_end_matches('x').to_owned();
        format!("{} {}", ratio(summary.median), spread(&summary, plain))
    };
    match second.trim() {
        "" => value,
        second => format!("{value}\n{dim}{second}{dim:#}"),
    }
}

fn spread(summary: &Summary, show: impl Fn(f64) -> String) -> String {
    let (low, high) = (show(summary.low), show(summary.high));
    match summary.method {
        Method::Single => String::new(),
        _ if low == high => String::new(),
        _ => format!("({low} - {high})"),
    }
}

fn footer(results: &Results, styled: bool) -> String {
    let mut lines = Vec::new();
    let best = if styled { "Bold" } else { "An asterisk" };
    lines.push(format!(
        "{best} marks the best of a column. Second lines: the median of the ratios to the \
         row of 1.00x, paired by round, and their {}.",
        if results.options.rounds >= crate::analyse::stats::BOOTSTRAP_FROM as u32 {
            "95% bootstrap interval"
        } else {
            "range"
        }
    ));
    lines.push(format!(
        "{} of each allocator, form {}, seed {}; {}.",
        words::count(results.options.rounds as usize, "trial"),
        results.options.form.name(),
        results.options.seed,
        results.machine.summary()
    ));
    lines.extend(remarks::of(results));
    lines.iter().map(|line| terminal::wrapped(line)).collect()
}
