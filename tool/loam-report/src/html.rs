//! The frame of a page. The page is a single file and needs no network.
//!
//! The caller writes the page. The charts in it are data; the script in `assets/` draws them with
//! the vendored Apache ECharts. A content security policy forbids every request, so that the page
//! stays independent of the network even with a later version of the library.

use maud::{html, Markup, PreEscaped, DOCTYPE};
use serde::Serialize;

use crate::chart::{Chart, Kind};
use crate::grid::Grid;

const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data: blob:";

const STYLE: &str = include_str!("../assets/style.css");
const SCRIPTS: [&str; 4] = [
    include_str!("../vendor/echarts/echarts.min.js"),
    include_str!("../assets/format.js"),
    include_str!("../assets/options.js"),
    include_str!("../assets/page.js"),
];

/// The data that the script draws.
#[derive(Serialize)]
struct ChartData<'a> {
    /// Labels in the order of the tables. Their index determines their colour.
    allocators: &'a [&'a str],
    charts: &'a [&'a Chart],
}

/// A page.
#[derive(Debug)]
pub struct Page<'a> {
    /// The program that made it. It recognises its own pages by this name.
    pub generator: &'a str,
    /// The version of that program.
    pub version: &'a str,
    /// Its title.
    pub title: &'a str,
    /// Labels in the order of the tables. Their index determines their colour.
    pub allocators: &'a [&'a str],
    /// The charts that have a [`figure`] in the page.
    pub charts: &'a [&'a Chart],
}

impl Page<'_> {
    /// The whole file.
    pub fn render(&self, body: &Markup) -> Markup {
        let data = ChartData {
            allocators: self.allocators,
            charts: self.charts,
        };
        let frame = Frame {
            generator: self.generator,
            version: self.version,
            title: self.title,
            styles: &[],
            data: serde_json::to_string(&data).expect("charts are plain data"),
            scripts: &SCRIPTS,
        };
        frame.render(body)
    }
}

/// The parts that all pages have.
pub(crate) struct Frame<'a> {
    pub generator: &'a str,
    pub version: &'a str,
    pub title: &'a str,
    /// Styles of this page, in addition to those of all pages.
    pub styles: &'a [&'a str],
    /// JSON that the scripts draw from.
    pub data: String,
    pub scripts: &'a [&'a str],
}

impl Frame<'_> {
    /// The whole file.
    pub fn render(&self, body: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    // This must be among the first bytes, because `is_made_by` reads no further.
                    meta name="generator" content={ (self.generator) " " (self.version) };
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                    @for style in self.styles {
                        style { (PreEscaped(style)) }
                    }
                }
                body {
                    (body)
                    // In JSON, `<` occurs only in strings. It is escaped so that it can not end the
                    // element.
                    script type="application/json" id="loam-data" {
                        (PreEscaped(self.data.replace('<', "\\u003c")))
                    }
                    @for script in self.scripts {
                        script { (PreEscaped(script)) }
                    }
                }
            }
        }
    }
}

/// Whether these are the first bytes of a page that this generator made.
pub fn is_made_by(head: &[u8], generator: &str) -> bool {
    let mark = format!("name=\"generator\" content=\"{generator}");
    String::from_utf8_lossy(head).contains(&mark)
}

/// The place in which the script draws a chart, with its buttons and its table.
pub fn figure(chart: &Chart) -> Markup {
    let heading = format!("{}-title", chart.id);
    let reading = format!("{}-reading", chart.id);
    html! {
        figure.chart-figure data-chart=(chart.id) aria-labelledby=(heading) {
            h4 id=(heading) { (chart.title) }
            p.reading id=(reading) { (chart.reading) }
            div.chart id=(chart.id) tabindex="0" role="img" aria-labelledby=(heading)
                aria-describedby=(reading) {}
            div.legend role="group" aria-label={ "Curves of " (chart.title) } {}
            div.tools {
                button type="button" data-action="svg" { "Save SVG" }
                button type="button" data-action="csv" { "Save CSV" }
                // The parts of a whole add up only on a linear axis.
                @if chart.kind != Kind::Stack {
                    button type="button" data-action="log" aria-pressed=(chart.y.log.to_string()) {
                        "Logarithmic"
                    }
                }
            }
            details { summary { "As a table" } div.scroll tabindex="0" {} }
        }
    }
}

/// A table that is folded at first.
pub fn grid(grid: &Grid) -> Markup {
    html! {
        details.grid-table {
            summary { (grid.title) }
            p.reading { (grid.reading) }
            div.scroll tabindex="0" role="region" aria-label=(grid.title) {
                table {
                    thead { tr { @for name in &grid.head { th scope="col" { (name) } } } }
                    tbody {
                        @for row in &grid.rows {
                            tr {
                                @for (index, cell) in row.iter().enumerate() {
                                    @if index == 0 { th scope="row" { (cell) } }
                                    @else { td { (cell) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use sha2::{Digest, Sha256};

    #[test]
    fn the_vendored_library_is_the_published_one() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("vendor/echarts");
        let sums = std::fs::read_to_string(dir.join("SHA256SUMS")).unwrap();
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            let digest = Sha256::digest(std::fs::read(dir.join(name)).unwrap());
            let found: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, sum, "{name}");
        }
    }

    #[test]
    fn no_script_can_end_its_element_early() {
        for script in SCRIPTS {
            assert!(!script.to_ascii_lowercase().contains("</script"));
        }
        assert!(!STYLE.contains("</"));
    }
}
