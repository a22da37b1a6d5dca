//! The HTML report of a results file.

use loam_format::results::Results;
use loam_report::html::{is_made_by, Page};

use super::section::Section;
use super::{experiments_of, page, summary};
use crate::analyse::figures::FigureTable;
use crate::experiments;
use crate::store::{Store, StoreError};

/// Identifies our own reports among other HTML files. Only our reports may be replaced.
const GENERATOR: &str = "loam lab";

/// Whether these are the first bytes of one of our reports.
pub fn looks_like_report(head: &[u8]) -> bool {
    is_made_by(head, GENERATOR)
}

/// Writes the report of a results file.
pub fn report(results: &Results, store: &Store) -> Result<(), StoreError> {
    let page = render(results);
    store.replace(|file| file.write_all(page.as_bytes()))
}

/// The report as a text.
pub fn render(results: &Results) -> String {
    let sections = sections(results);
    let measured = results.allocators.iter().filter(|record| record.measured);
    let allocators: Vec<&str> = measured.map(|record| record.label.as_str()).collect();
    let charts: Vec<_> = sections
        .iter()
        .flat_map(|section| &section.charts)
        .collect();
    let page = Page {
        generator: GENERATOR,
        version: &results.tool.version,
        title: &format!("loam lab: {}", page::names(results)),
        allocators: &allocators,
        charts: &charts,
    };
    page.render(&page::body(results, &sections)).into_string()
}

fn sections(results: &Results) -> Vec<Section> {
    experiments_of(results)
        .iter()
        .map(|experiment| {
            let view = experiments::view(experiment.as_ref(), results);
            let table = FigureTable::of(&view, experiment.figures());
            let sentences = view
                .rows
                .iter()
                .enumerate()
                .map(|(index, row)| (row.label(), experiment.sentence(&table, index)))
                .collect();
            Section {
                name: experiment.name().to_owned(),
                title: experiment.title(),
                question: experiment.question(),
                findings: if view.rows.is_empty() {
                    Vec::new()
                } else {
                    experiment.findings(&table)
                },
                sentences,
                meanings: table
                    .figures
                    .iter()
                    .map(|figure| (figure.title.to_owned(), figure.meaning.to_owned()))
                    .collect(),
                charts: experiment.charts(&view),
                claims: experiment.claims(&table),
                grids: experiment.grids(&view),
                minute: summary::of(experiment.headline(), &table),
                table: page::figures(&table),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_reports_are_replaced() {
        assert!(looks_like_report(
            b"<meta name=\"generator\" content=\"loam lab 0.1.0\">"
        ));
        assert!(!looks_like_report(
            b"<html><title>my loam lab notes</title>"
        ));
    }
}
