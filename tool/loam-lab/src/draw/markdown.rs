//! `loam lab show --markdown`: the tables of a results file, for use in a document.

use loam_format::results::Results;
use loam_format::units::{ratio, Unit};
use loam_report::markdown::{escape, grid, lines};

use crate::analyse::figures::{Cell, Figure, FigureTable};
use crate::analyse::stats::Summary;
use crate::experiments::claims::Claim;
use crate::experiments::{self, Experiment};

/// All experiments, each with its figures, the verdicts on its article's findings, and its tables.
pub fn render(results: &Results) -> String {
    let parts: Vec<String> = super::experiments_of(results)
        .iter()
        .map(|experiment| one_experiment(results, experiment.as_ref()))
        .collect();
    parts.join("\n") + "\n" + &conditions(results)
}

fn one_experiment(results: &Results, experiment: &dyn Experiment) -> String {
    let view = experiments::view(experiment, results);
    let mut text = format!("### {}: {}\n\n", experiment.name(), experiment.title());
    if view.rows.is_empty() {
        return text + "No trial of it was finished.\n";
    }
    let table = FigureTable::of(&view, experiment.figures());
    text += &figures(&table);
    for finding in experiment.findings(&table) {
        text += &format!("\n- {}", escape(&finding));
    }
    text += "\n";
    text += &claims(&experiment.claims(&table));
    for each in experiment.grids(&view) {
        text += &grid(&each);
    }
    text
}

fn figures(table: &FigureTable) -> String {
    let mut head = vec!["allocator".to_owned()];
    head.extend(table.figures.iter().map(|figure| figure.title.to_owned()));
    let rows = table.view.rows.iter().zip(&table.cells).enumerate();
    let rows: Vec<Vec<String>> = rows
        .map(|(index, (row, cells))| {
            let is_base = table.view.base == Some(index);
            let shown = table.figures.iter().zip(cells).map(|(figure, cell)| {
                cell.as_ref()
                    .map_or_else(|| "-".to_owned(), |cell| show(figure, cell, is_base))
            });
            std::iter::once(row.label()).chain(shown).collect()
        })
        .collect();
    lines(&head, &rows)
}

/// The value, its ratio to the base and the ratio's interval; the best of a column in bold.
fn show(figure: &Figure, cell: &Cell, is_base: bool) -> String {
    let value = figure.unit.show(cell.value.median);
    let value = if cell.is_best {
        format!("**{value}**")
    } else {
        value
    };
    match cell
        .ratio
        .filter(|_| !is_base && figure.unit != Unit::Ratio)
    {
        None => value,
        Some(summary) => format!("{value}, {}{}", ratio(summary.median), interval(&summary)),
    }
}

fn interval(summary: &Summary) -> String {
    let plain = |value| ratio(value).trim_end_matches('x').to_owned();
    let (low, high) = (plain(summary.low), plain(summary.high));
    if low == high {
        String::new()
    } else {
        format!(" ({low} to {high})")
    }
}

fn claims(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let head = ["The article found", "Here", "Evidence"].map(str::to_owned);
    let row = |claim: &Claim| {
        vec![
            claim.said.to_owned(),
            claim.verdict.word().to_owned(),
            claim.found.clone(),
        ]
    };
    format!(
        "\n{}",
        lines(&head, &claims.iter().map(row).collect::<Vec<_>>())
    )
}

fn conditions(results: &Results) -> String {
    let interval = if results.options.rounds >= crate::analyse::stats::BOOTSTRAP_FROM as u32 {
        "95% bootstrap intervals"
    } else {
        "ranges"
    };
    format!(
        "Medians of {}, ratios to the row of 1.00x paired by round with their {interval}; form \
         {}, seed {}; {}; measured {}.\n",
        loam_format::words::count(results.options.rounds as usize, "round"),
        results.options.form.name(),
        results.options.seed,
        results.machine.summary(),
        results.created.split('T').next().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two allocators, every experiment, in a tiny form.
    fn results() -> Results {
        let text = include_str!("../../tests/data/every-experiment.json");
        Results::parse(text).unwrap()
    }

    #[test]
    fn the_markdown_holds_every_experiment_with_its_article_and_tables() {
        let text = render(&results());
        for name in experiments::NAMES {
            assert!(text.contains(&format!("### {name}: ")), "{name}");
        }
        for part in [
            "| allocator | speed | overhead |",
            "| After 37,900 steps it is below 2% | ",
            "| keep the largest (flawed) | ",
            "| allocator | decays | dearer than both neighbours |",
            "not tested in this form",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let cells = |line: &str| line.matches(" | ").count();
        for (line, next) in text.lines().zip(text.lines().skip(1)) {
            if line.starts_with("| ") && next.starts_with("| ") {
                assert_eq!(cells(line), cells(next), "{line}\n{next}");
            }
        }
    }
}
