//! One row for each allocator, for experiments with variants that are parts of one trial.
//!
//! `queue` runs every container and every way of allocating in one process. A table with a row for
//! each variant of each allocator would have hundreds of rows. In the merged table a row is an
//! allocator, and the variants are series of it, by name.

use crate::analyse::runs::{Row, Run, View, PLAIN};

impl View<'_> {
    /// Joins the rows of each allocator. A series keeps its name unless some allocator has it in
    /// two variants. Then every series of a variant other than the plain one is called `VARIANT
    /// SERIES`.
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
                |record: &loam_format::results::AllocatorRecord| record.label == row.allocator;
            self.results.allocators.iter().position(is_it)
        };
        self.rows.sort_by_key(order);
        let is_system = |row: &Row| row.allocator == "system";
        let first = (!self.rows.is_empty()).then_some(0);
        self.base = self.rows.iter().position(is_system).or(first);
        self
    }
}

/// Adds the run's series to the run of the same round. If there is none, adds the run itself.
fn join(runs: &mut Vec<Run>, more: Vec<Run>) {
    for run in more {
        match runs.iter_mut().find(|known| known.round == run.round) {
            Some(known) => known.series.extend(run.series),
            None => runs.push(run),
        }
    }
}
