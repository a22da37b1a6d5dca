//! A treemap: areas within areas, which the reader enters one by one. It is a page of its own.
//!
//! The places come as a table of numbers, and the vendored Apache ECharts draws two levels of them
//! at a time. Below stands the same as a list, for those who do not use a mouse.

use maud::{html, Markup};
use serde::Serialize;

use crate::html::Frame;

const STYLE: &str = include_str!("../assets/treemap.css");
const SCRIPTS: [&str; 3] = [
    include_str!("../vendor/echarts/echarts.min.js"),
    include_str!("../assets/format.js"),
    include_str!("../assets/treemap.js"),
];

/// A place: the number of its parent's place (a lower one, but for the first), of its name, and of
/// its sort; its items; bytes of these; bytes of these and of all places in it.
pub type Place = (u32, u32, u32, u64, u64, u64);

/// What is drawn.
#[derive(Debug, Clone, Serialize)]
pub struct Treemap {
    /// Names.
    pub names: Vec<String>,
    /// Sorts of places, which have a colour each.
    pub sorts: Vec<&'static str>,
    /// The sort that is drawn in the colour of a warning.
    pub warned: u32,
    /// Places; the first one is all.
    pub places: Vec<Place>,
    /// What each place was before, in bytes; then the change decides the colours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Vec<u64>>,
}

/// A page with a treemap.
#[derive(Debug)]
pub struct TreemapPage<'a> {
    /// The program that made it. It recognises its own pages by this name.
    pub generator: &'a str,
    /// The version of that program.
    pub version: &'a str,
    /// Its title.
    pub title: &'a str,
    /// The text above the map.
    pub above: &'a Markup,
    /// How to read the map.
    pub reading: &'a str,
    /// The text below the map.
    pub below: &'a Markup,
    /// The map.
    pub map: &'a Treemap,
}

impl TreemapPage<'_> {
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
        frame.render(&html! {
            a.skip href="#map" { "Skip to the map" }
            header {
                h1 { (self.title) }
                (self.above)
            }
            main {
                section id="map" aria-label="Map" {
                    div.bar {
                        nav.way id="way" aria-label="Where you are" {}
                        label.choice {
                            span.label { "Colours" }
                            select id="theme" {
                                option value="auto" { "as the system" }
                                option value="light" { "light" }
                                option value="dark" { "dark" }
                            }
                        }
                    }
                    p.reading { (self.reading) }
                    div.legend id="legend" {}
                    div.areas id="areas" role="img" aria-describedby="place" {}
                    p.cell id="place" aria-live="polite" {}
                    details open {
                        summary { "What is in it" }
                        div.scroll tabindex="0" role="region" aria-label="What is in it" {
                            table id="inside" {}
                        }
                    }
                }
                (self.below)
            }
            footer { p { "Made by loam " (self.version) "." } }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_not_end_the_element_of_the_data() {
        let map = Treemap {
            names: vec!["all".into(), "</script><b>".into()],
            sorts: vec!["a", "b"],
            warned: 1,
            places: vec![(0, 0, 0, 0, 0, 10), (0, 1, 1, 1, 10, 10)],
            before: None,
        };
        let page = TreemapPage {
            generator: "test",
            version: "1",
            title: "</title>",
            above: &html! {},
            reading: "",
            below: &html! {},
            map: &map,
        };
        let text = page.render().into_string();
        assert!(!text.contains("</script><b>") && !text.contains("</title></title>"));
        assert!(!SCRIPTS[2].to_ascii_lowercase().contains("</script") && !STYLE.contains("</"));
    }
}
