//! A map: rows of many cells, coloured by one of several planes, at one of several moments. It is a
//! page of its own.
//!
//! ```text
//!  cells   moment by moment, plane by plane, a byte a cell; each moment as what differs from the
//!          one before (xor) -> gzip -> base64 -> an element of the page
//!          -> the browser unpacks them and draws one canvas
//! ```
//!
//! The page has as many elements for a million cells as for ten.

use std::io::Write;

use base64::prelude::{Engine, BASE64_STANDARD};
use flate2::{write::GzEncoder, Compression};
use maud::{html, Markup, PreEscaped};
use serde::Serialize;

use crate::html::Frame;

const STYLE: &str = include_str!("../assets/map.css");
const SCRIPTS: [&str; 2] = [
    include_str!("../assets/format.js"),
    include_str!("../assets/map.js"),
];

/// How the numbers of a plane become colours. In every scale, 0 is an empty cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// 1 to 201: from nothing to all, in half percents; 255: resident, without blocks.
    Share,
    /// 1 to the number of steps, from little to much.
    Steps,
    /// 1 to the number of names; the last two are grey. An empty name belongs to no cell.
    Names,
    /// A count; 255 means more. It is written, not drawn.
    Count,
}

/// A plane of the map: one byte for each cell and moment.
#[derive(Debug, Clone, Serialize)]
pub struct Plane {
    /// Its title.
    pub title: &'static str,
    /// The meaning of its colours.
    pub reading: String,
    /// Its scale.
    pub scale: Scale,
    /// Steps or names.
    pub names: Vec<String>,
}

/// A moment of the map.
#[derive(Debug, Clone, Serialize)]
pub struct Moment {
    /// Its time in seconds; none if there is only one moment.
    pub seconds: Option<f64>,
    /// The reason why it is shown, if it is a special moment.
    pub mark: Option<&'static str>,
    /// The text about it.
    pub text: String,
    /// The value of each curve.
    pub values: Vec<u64>,
}

/// The content of the map.
#[derive(Debug, Clone, Serialize)]
pub struct Map {
    /// Bytes of memory that a cell stands for.
    pub cell_bytes: u64,
    /// The stretches of cells: address of the first cell, and number of cells.
    pub stretches: Vec<(u64, u64)>,
    /// The planes; the first one colours the page at first.
    pub planes: Vec<Plane>,
    /// The moments, in the order of time.
    pub moments: Vec<Moment>,
    /// Names of the curves over the moments, in bytes; none if there is only one moment.
    pub curves: Vec<&'static str>,
    /// The moment that is shown first.
    pub first: usize,
    /// The cells, moment by moment, plane by plane.
    #[serde(skip)]
    pub cells: Vec<u8>,
}

/// A page with a map.
#[derive(Debug)]
pub struct MapPage<'a> {
    /// The program that made it. It recognises its own pages by this name.
    pub generator: &'a str,
    /// The version of that program.
    pub version: &'a str,
    /// Its title.
    pub title: &'a str,
    /// The text above the map.
    pub above: &'a Markup,
    /// The text below the map.
    pub below: &'a Markup,
    /// The map.
    pub map: &'a Map,
}

impl Map {
    /// How many cells there are.
    pub fn count(&self) -> usize {
        self.stretches
            .iter()
            .map(|(_, cells)| *cells as usize)
            .sum()
    }

    /// The cells, in the encoding of the page.
    fn packed(&self) -> String {
        let size = self.count() * self.planes.len();
        let mut differences = self.cells.clone();
        for place in (size..differences.len()).rev() {
            differences[place] ^= self.cells[place - size];
        }
        let mut zip = GzEncoder::new(Vec::new(), Compression::new(7));
        let zipped = zip
            .write_all(&differences)
            .and_then(|()| zip.finish())
            .expect("writing to memory does not fail");
        BASE64_STANDARD.encode(zipped)
    }
}

impl MapPage<'_> {
    /// The whole file.
    pub fn render(&self) -> Markup {
        let frame = Frame {
            generator: self.generator,
            version: self.version,
            title: self.title,
            styles: &[STYLE],
            data: serde_json::to_string(self.map).expect("a map is plain data"),
            scripts: &SCRIPTS,
        };
        frame.render(&self.body())
    }

    fn body(&self) -> Markup {
        let map = self.map;
        let has_time = map.moments.len() > 1;
        html! {
            a.skip href="#map" { "Skip to the map" }
            header {
                h1 { (self.title) }
                (self.above)
            }
            main {
                section id="map" aria-label="Map" {
                    div.bar {
                        div.choice role="radiogroup" aria-label="Colour by" {
                            span.label { "Colour by" }
                            @for (number, plane) in map.planes.iter().enumerate() {
                                @if plane.scale != Scale::Count {
                                    label {
                                        input type="radio" name="plane" value=(number)
                                            checked[number == 0];
                                        " " (plane.title)
                                    }
                                }
                            }
                        }
                        div.choice {
                            span.label { "Cells" }
                            button type="button" id="smaller" aria-label="Smaller cells" { "-" }
                            button type="button" id="larger" aria-label="Larger cells" { "+" }
                        }
                        label.choice {
                            span.label { "Colours" }
                            select id="theme" {
                                option value="auto" { "as the system" }
                                option value="light" { "light" }
                                option value="dark" { "dark" }
                            }
                        }
                    }
                    @if has_time {
                        div.time {
                            button type="button" id="play" aria-label="Play" { "Play" }
                            div.over {
                                div id="curves" aria-hidden="true" {}
                                input type="range" id="moment" min="0" max=(map.moments.len() - 1)
                                    value=(map.first) aria-label="Moment";
                            }
                        }
                    }
                    @if has_time {
                        p.reading {
                            i.swatch style="background: var(--m-full)" {} " live bytes "
                            i.swatch style="background: var(--m-sparse)" {}
                            " free bytes of sparse pages; "
                            "dashed: when each was most, and the end."
                        }
                    }
                    p.moment id="text" aria-live="polite" {}
                    div.legend id="legend" {}
                    div.cells id="frame" {
                        div.sheet id="sheet" {
                            canvas id="cells" tabindex="0" role="img"
                                aria-describedby="cell text" {}
                            div.cursor id="cursor" hidden {}
                        }
                    }
                    p.cell id="cell" aria-live="polite" {}
                }
                (self.below)
            }
            footer { p { "Made by loam " (self.version) "." } }
            // Base64 has no character with a special meaning here.
            script type="text/plain" id="loam-cells" { (PreEscaped(self.map.packed())) }
        }
    }
}
