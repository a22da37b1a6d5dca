//! One row an allocator, for experiments whose variants are parts of one trial.
//!
//! `queue` runs every container and every way of allocating in one process; a table row for each
//! variant of each allocator would be hundreds. Merged, a row is an allocator, and what the variants
//! did are series of it, by name.

use super::runs::{Row, Run, View, PLAIN};

impl View<'_> {
    /// Joins the rows of each allocator. A series keeps its name unless some allocator has it in two
    /// variants; then those that are not plain are called `VARIANT SERIES`, everywhere.
    pub fn merged(mut self) -> Self {
        let rows = std::mem::take(&mut self.rows);
        let is_ambiguous = {
            let mut seen: Vec<(&str, &str, &str)> = Vec::new();
            for row in &rows {
                for series in row
                    .runs
                    .iter()
                    .chain(&row.left_out)
                    .flat_map(|run| &run.series)
                {
                    let found = (
                        row.allocator.as_str(),
                        row.variant.as_str(),
                        series.name.as_str(),
                    );
                    if !seen.contains(&found) {
                        seen.push(found);
                    }
                }
            }
            let twice = |at: usize| {
                let (allocator, _, series) = seen[at];
                seen[..at]
                    .iter()
                    .any(|other| other.0 == allocator && other.2 == series)
            };
            let names = (0..seen.len())
                .filter(|at| twice(*at))
                .map(|at| seen[at].2.to_owned());
            let names: std::collections::BTreeSet<String> = names.collect();
            move |series: &str| names.contains(series)
        };
        for mut row in rows {
            for run in row.runs.iter_mut().chain(&mut row.left_out) {
                for series in &mut run.series {
                    if row.variant != PLAIN && is_ambiguous(&series.name) {
                        series.name = format!("{} {}", row.variant, series.name);
                    }
                }
            }
            let known = self
                .rows
                .iter_mut()
                .find(|known| known.allocator == row.allocator);
            match known {
                Some(known) => {
                    join(&mut known.runs, row.runs);
                    join(&mut known.left_out, row.left_out);
                }
                None => self.rows.push(Row {
                    variant: PLAIN.to_owned(),
                    ..row
                }),
            }
        }
        let order = |row: &Row| {
            let is_it =
                |record: &crate::lab::results::AllocatorRecord| record.label == row.allocator;
            self.results.allocators.iter().position(is_it)
        };
        self.rows.sort_by_key(order);
        let is_system = |row: &Row| row.allocator == "system";
        let first = (!self.rows.is_empty()).then_some(0);
        self.base = self.rows.iter().position(is_system).or(first);
        self
    }
}

/// Adds series to the run of the same round, or the run itself.
fn join(runs: &mut Vec<Run>, more: Vec<Run>) {
    for run in more {
        match runs.iter_mut().find(|known| known.round == run.round) {
            Some(known) => known.series.extend(run.series),
            None => runs.push(run),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::lab::analyse::pick;
    use crate::lab::draw::markdown;
    use crate::lab::experiments;
    use crate::lab::results::Results;

    /// Two allocators, every experiment, in a tiny form.
    fn results() -> Results {
        let text = include_str!("../../../tests/data/every-experiment.json");
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_row_is_an_allocator_and_holds_the_series_of_all_variants() {
        let results = results();
        let of = |name: &str, series: &str, key: &str| {
            let experiment = experiments::of_name(name);
            let view = experiments::view(experiment.as_ref(), &results);
            let labels: Vec<String> = view.rows.iter().map(|row| row.label()).collect();
            assert_eq!(labels, ["system", "loam"], "{name}");
            assert_eq!(view.base, Some(0), "{name}");
            pick::of_row(&view.rows[1], |run| pick::last(run, series, key))
        };
        // Only this variant has a series of that name: it keeps it.
        assert!(of("contention", "per-thread", "collisions").is_some());
        assert!(of("buffer-cache", "cure depth 4", "percent_used").is_some());
        // Several have: they are told apart, and the plain one keeps it.
        assert!(of("levels", "arena levels", "drop_seconds").is_some());
        assert!(of("queue", "aligned list sequential", "seconds").is_some());
        assert!(of("queue", "list sequential", "seconds").is_some());
        assert!(of("levels", "levels", "drop_seconds").is_none());
    }

    #[test]
    fn the_markdown_holds_every_experiment_with_its_article_and_tables() {
        let text = markdown::render(&results());
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
