//! The HTML report: one file that needs no other and no network.
//!
//! The page is made here; the charts in it are data, drawn by the script in `assets/` with the
//! vendored Apache ECharts. A content security policy forbids every request, so that "opens
//! without a network" holds whatever a later version of the library tries.

use maud::{html, Markup, PreEscaped, DOCTYPE};
use serde::Serialize;

use super::chart::Chart;
use super::grid::Grid;
use super::page;
use super::summary::{self, Minute};
use crate::lab::analyse::figures::FigureTable;
use crate::lab::experiments;
use crate::lab::experiments::claims::Claim;
use crate::lab::results::store::{Store, StoreError};
use crate::lab::results::Results;

/// Recognises our own reports, which may be replaced, among other people's pages.
const GENERATOR: &str = "loam lab";
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data: blob:";

const STYLE: &str = include_str!("../../../assets/style.css");
const SCRIPTS: [&str; 4] = [
    include_str!("../../../vendor/echarts/echarts.min.js"),
    include_str!("../../../assets/format.js"),
    include_str!("../../../assets/options.js"),
    include_str!("../../../assets/page.js"),
];

/// What the script draws from.
#[derive(Serialize)]
struct ChartData<'a> {
    /// Labels in the order of the tables; their place decides their colour.
    allocators: Vec<&'a str>,
    charts: Vec<&'a Chart>,
}

/// One experiment, analysed.
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What it asks.
    pub question: String,
    /// What was found.
    pub findings: Vec<String>,
    /// The table of figures.
    pub table: Markup,
    /// Label and sentence of each row.
    pub sentences: Vec<(String, String)>,
    /// Name, way and meaning of each figure.
    pub meanings: Vec<(String, String)>,
    /// Its charts.
    pub charts: Vec<Chart>,
    /// What became of its article's findings.
    pub claims: Vec<Claim>,
    /// Further tables.
    pub grids: Vec<Grid>,
    /// What it says in a minute.
    pub minute: Option<Minute>,
}

/// Whether these are the first bytes of one of our reports.
pub fn looks_like_report(head: &[u8]) -> bool {
    let mark = format!("name=\"generator\" content=\"{GENERATOR}");
    String::from_utf8_lossy(head).contains(&mark)
}

/// Writes the report of a results file.
pub fn report(results: &Results, store: &Store) -> Result<(), StoreError> {
    let page = render(results).into_string();
    store.replace(|file| file.write_all(page.as_bytes()))
}

fn render(results: &Results) -> Markup {
    let sections = sections(results);
    let data = ChartData {
        allocators: results
            .allocators
            .iter()
            .filter(|record| record.measured)
            .map(|record| record.label.as_str())
            .collect(),
        charts: sections
            .iter()
            .flat_map(|section| &section.charts)
            .collect(),
    };
    let data = serde_json::to_string(&data).expect("charts are plain data");
    let title = format!("loam lab: {}", page::names(results));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                // Among the first bytes: `looks_like_report` reads no further.
                meta name="generator" content={ (GENERATOR) " " (results.tool.version) };
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (page::body(results, &sections))
                // `<` can only be part of a string there, and must not end the element.
                script type="application/json" id="loam-data" {
                    (PreEscaped(data.replace('<', "\\u003c")))
                }
                @for script in SCRIPTS {
                    script { (PreEscaped(script)) }
                }
            }
        }
    }
}

fn sections(results: &Results) -> Vec<Section> {
    super::experiments_of(results)
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
    use std::path::Path;

    #[test]
    fn the_vendored_library_is_the_published_one() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("vendor/echarts");
        let sums = std::fs::read_to_string(dir.join("SHA256SUMS")).unwrap();
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            assert_eq!(
                crate::lab::identity::sha256(&dir.join(name)).unwrap(),
                sum,
                "{name}"
            );
        }
    }

    #[test]
    fn no_script_can_end_its_element_early() {
        for script in SCRIPTS {
            assert!(!script.to_ascii_lowercase().contains("</script"));
        }
        assert!(!STYLE.contains("</"));
    }

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
