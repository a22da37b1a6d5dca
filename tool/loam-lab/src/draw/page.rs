//! The report's page: findings first, charts second, method last.

use maud::{html, Markup};

use loam_format::results::Results;
use loam_format::units::{ratio, Unit};
use loam_report::chart::Chart;
use loam_report::html::{figure, grid};

use crate::analyse::figures::{Cell, Figure, FigureTable};
use crate::analyse::stats::{Method, Summary};
use crate::draw::section::Section;
use crate::draw::{method, remarks, summary};

/// `lfh and tokens`
pub fn names(results: &Results) -> String {
    let names: Vec<&str> = results
        .experiments
        .iter()
        .map(|record| record.name.as_str())
        .collect();
    loam_format::words::list(&names)
}

fn heading(results: &Results) -> &'static str {
    let experiments = &results.experiments;
    let is_replay = experiments.iter().all(|record| record.trace.is_some());
    if is_replay && !experiments.is_empty() {
        "A recorded program on each allocator"
    } else {
        "What fragmentation did to each allocator"
    }
}

/// The whole body of the page.
pub fn body(results: &Results, sections: &[Section]) -> Markup {
    html! {
        a.skip href="#summary" { "Skip to the findings" }
        header {
            h1 { (heading(results)) }
            p {
                "Experiments " (names(results)) ", measured " (day(&results.created)) " on "
                (results.machine.summary()) "."
            }
            nav aria-label="Page" {
                a href="#summary" { "In a minute" }
                a href="#findings" { "Findings" }
                a href="#charts" { "Charts" }
                a href="#method" { "Method" }
                label {
                    "Colours "
                    select id="theme" {
                        option value="auto" { "as the system" }
                        option value="light" { "light" }
                        option value="dark" { "dark" }
                    }
                }
            }
        }
        main {
            (remarks(results))
            (first_minute(results, sections))
            section id="findings" {
                h2 { "Findings" }
                @for section in sections { (findings(section)) }
            }
            section id="charts" {
                h2 { "Charts" }
                (charts(sections))
            }
            section id="method" {
                h2 { "Method" }
                (method::section(results, sections))
            }
        }
        footer {
            p {
                "Made by loam " (results.tool.version)
                " from a results file; " code { "loam lab show" } " makes it again. Charts by "
                "Apache ECharts (Apache-2.0)."
            }
        }
    }
}

fn day(stamp: &str) -> &str {
    stamp.split('T').next().unwrap_or(stamp)
}

/// Remarks on what is missing or doubtful, placed before everything else.
fn remarks(results: &Results) -> Markup {
    let remarks = remarks::of(results);
    html! {
        @if !remarks.is_empty() {
            aside.remarks aria-label="What is missing or doubtful" {
                h2 { "Before you read on" }
                ul { @for remark in &remarks { li { (remark) } } }
            }
        }
    }
}

/// The question and the outcome, for readers that stop here.
fn first_minute(results: &Results, sections: &[Section]) -> Markup {
    let rows = summary::rows(results, sections);
    let minutes = || {
        sections
            .iter()
            .filter_map(|s| Some((s, s.minute.as_ref()?)))
    };
    html! {
        section id="summary" {
            h2 { "In a minute" }
            p { (summary::WHAT_IT_IS) }
            @if !rows.is_empty() {
                div.scroll tabindex="0" role="region" aria-label="What it did to each allocator" {
                    table {
                        thead {
                            tr {
                                th scope="col" { "allocator" }
                                @for (section, minute) in minutes() {
                                    th.number scope="col" {
                                        a href={ "#findings-" (section.name) } { (section.name) }
                                        small { (minute.heading) }
                                    }
                                }
                            }
                        }
                        tbody {
                            @for (label, cells) in &rows {
                                tr {
                                    th scope="row" { (label) }
                                    @for cell in cells {
                                        td.number {
                                            @match cell {
                                                Some((text, true)) => strong { (text) },
                                                Some((text, false)) => (text),
                                                None => "-",
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
                p.question { "Less is better everywhere; the best of a column is bold. Why it \
                              happens:" }
                ul.findings {
                    @for (section, minute) in minutes() {
                        li { span.name { (section.name) } " " (minute.why) }
                    }
                }
            }
            @if let Some(chart) = picture(sections) { (figure(chart)) }
        }
    }
}

/// The chart that is shown in the first minute, and not again below.
fn picture(sections: &[Section]) -> Option<&Chart> {
    let charts = || sections.iter().flat_map(|section| &section.charts);
    summary::PICTURES
        .iter()
        .find_map(|id| charts().find(|chart| chart.id == *id))
}

/// The article's findings and the verdict on each.
fn claims(section: &Section) -> Markup {
    html! {
        @if !section.claims.is_empty() {
            h4 { "What its article found, tested again" }
            dl.claims {
                @for claim in &section.claims {
                    div {
                        dt { (claim.said) }
                        dd { strong { (claim.verdict.word()) } ": " (claim.found) "." }
                    }
                }
            }
        }
    }
}

fn findings(section: &Section) -> Markup {
    html! {
        article id={ "findings-" (section.name) } {
            h3 { (section.title) " " span.name { (section.name) } }
            p.question { (section.question) }
            @if section.sentences.is_empty() {
                p.absent { "No trial of it was finished." }
            } @else {
                ul.findings { @for finding in &section.findings { li { (finding) } } }
                (claims(section))
                (section.table)
                @for each in &section.grids { (grid(each)) }
                dl.sentences {
                    @for (label, sentence) in &section.sentences {
                        div { dt { (label) } dd { (sentence) } }
                    }
                }
            }
        }
    }
}

/// The table of figures, the best of each column in bold.
pub fn figures(table: &FigureTable) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Table of figures" {
            table {
                thead {
                    tr {
                        th scope="col" { "allocator" }
                        @for figure in &table.figures {
                            th.number scope="col" title=(figure.meaning) { (figure.title) }
                        }
                    }
                }
                tbody {
                    @for (index, (row, cells)) in
                        table.view.rows.iter().zip(&table.cells).enumerate() {
                        tr {
                            th scope="row" { (row.label()) }
                            @for (figure, cell) in table.figures.iter().zip(cells) {
                                (figure_cell(figure, cell.as_ref(), table.view.base == Some(index)))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn figure_cell(figure: &Figure, cell: Option<&Cell>, is_base: bool) -> Markup {
    let Some(cell) = cell else {
        return html! { td.number { "-" } };
    };
    let value = figure.unit.show(cell.value.median);
    let second = if is_base || figure.unit == Unit::Ratio {
        spread(&cell.value, |value| figure.unit.show(value))
    } else {
        cell.ratio.map_or_else(String::new, |summary| {
            let plain = |value| ratio(value).trim_end_matches('x').to_owned();
            format!("{} {}", ratio(summary.median), spread(&summary, plain))
        })
    };
    html! {
        td.number {
            @if cell.is_best { strong { (value) } } @else { (value) }
            small { (second) }
        }
    }
}

fn spread(summary: &Summary, show: impl Fn(f64) -> String) -> String {
    let (low, high) = (show(summary.low), show(summary.high));
    match summary.method {
        Method::Single => String::new(),
        _ if low == high => String::new(),
        _ => format!("({low} to {high})"),
    }
}

fn charts(sections: &[Section]) -> Markup {
    let shown = picture(sections);
    let has_charts = sections.iter().any(|section| !section.charts.is_empty());
    html! {
        @if has_charts {
            noscript { p { "The charts are drawn by a script, which is switched off here." } }
            // The script fills this with a switch for each allocator.
            div.switches id="switches" role="group" aria-label="Allocators shown" {}
            @for section in sections.iter().filter(|section| !section.charts.is_empty()) {
                h3 { (section.title) " " span.name { (section.name) } }
                div.grid {
                    @for chart in &section.charts {
                        @if chart.group.is_none()
                            && shown.is_none_or(|other| other.id != chart.id) {
                            (figure(chart))
                        }
                    }
                }
                @for heading in groups(section) {
                    details.small {
                        summary { (heading) }
                        div.grid {
                            @for chart in &section.charts {
                                @if chart.group.as_ref() == Some(heading) { (figure(chart)) }
                            }
                        }
                    }
                }
            }
        } @else {
            p.absent { "There is nothing to draw: no trial was finished." }
        }
    }
}

/// Headings of the section's small charts.
fn groups(section: &Section) -> Vec<&String> {
    let mut headings: Vec<&String> = section
        .charts
        .iter()
        .filter_map(|chart| chart.group.as_ref())
        .collect();
    headings.dedup();
    headings
}
