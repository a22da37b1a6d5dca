//! A flame graph: stacks as layers, each frame as wide as its bytes. It is a page of its own.
//!
//! inferno draws the picture as SVG with a script that zooms, and the page adds a field to search.
//! What is narrower than [`NARROWEST`] is left out, so the page stays small whatever the trace has.

use maud::{html, Markup, PreEscaped};

use crate::html::Frame;

const STYLE: &str = include_str!("../assets/flame.css");
const SCRIPT: &str = include_str!("../assets/flame.js");

/// The narrowest frame that is drawn, in percent. Chosen: two pixels of a wide window.
const NARROWEST: f64 = 0.1;
/// The most frames of a stack that are drawn. Chosen: browsers draw pictures of 32,767 pixels.
const MOST_FRAMES: usize = 1_900;
/// Names are cut behind so many characters.
const MOST_NAME: usize = 400;

/// A stack: its functions, the outermost first, and its bytes.
pub type Stack = (Vec<String>, f64);

/// A page with a flame graph.
#[derive(Debug)]
pub struct FlamePage<'a> {
    /// The program that made it.
    pub generator: &'a str,
    /// The version of that program.
    pub version: &'a str,
    /// Its title.
    pub title: &'a str,
    /// The text above the picture.
    pub above: &'a Markup,
    /// The text below the picture.
    pub below: &'a Markup,
    /// What is drawn.
    pub stacks: &'a [Stack],
}

impl FlamePage<'_> {
    /// The whole file; `None`: there are no bytes to draw.
    pub fn render(&self) -> Option<Markup> {
        let picture = draw(self.stacks)?;
        let frame = Frame {
            generator: self.generator,
            version: self.version,
            title: self.title,
            styles: &[STYLE],
            data: "null".to_owned(),
            scripts: &[SCRIPT],
        };
        Some(frame.render(&html! {
            a.skip href="#paths" { "Skip the picture" }
            header {
                h1 { (self.title) }
                (self.above)
            }
            main {
                form.bar id="find" role="search" {
                    label {
                        "Search " input type="search" id="term" autocomplete="off"
                            placeholder="a function, or a regular expression";
                    }
                    button type="submit" { "Mark" }
                    output id="found" aria-live="polite" {}
                }
                p.reading {
                    "A frame is as wide as its bytes, and stands on the function that called it. "
                    "Click a frame to enlarge it, and a lower one to return. The order from left "
                    "to right has no meaning. Frames of less than 0.1 % are left out."
                }
                div.flame { (PreEscaped(picture)) }
                (self.below)
            }
            footer { p { "Made by loam " (self.version) "." } }
        }))
    }
}

/// The picture as an element of a page.
fn draw(stacks: &[Stack]) -> Option<String> {
    let lines: Vec<String> = stacks
        .iter()
        .filter(|(_, bytes)| *bytes >= 0.5)
        .map(|(names, bytes)| {
            let names: Vec<String> = names
                .iter()
                .take(MOST_FRAMES)
                .map(|one| word(one))
                .collect();
            format!("{} {bytes:.0}", names.join(";"))
        })
        .collect();
    let mut options = inferno::flamegraph::Options::default();
    options.title = String::new();
    options.count_name = "bytes".to_owned();
    options.name_type = String::new();
    options.colors = "mem".parse().ok()?;
    options.bgcolors = "#f8f8f8".parse().ok();
    options.deterministic = true;
    options.min_width = NARROWEST;
    options.text_truncate_direction = inferno::flamegraph::TextTruncateDirection::Right;
    let mut drawn = Vec::new();
    inferno::flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut drawn)
        .ok()?;
    let drawn = String::from_utf8(drawn).ok()?;
    // What stands before the element belongs to a file of its own.
    drawn.find("<svg").map(|at| drawn[at..].to_owned())
}

/// A name as inferno takes it: it reads lines, where `;` separates frames, a last word of digits is
/// a number of bytes, and `# ` begins a comment.
fn word(name: &str) -> String {
    const HARD_SPACE: &str = "\u{a0}";
    let name: String = name.chars().take(MOST_NAME).collect();
    let name = name.replace(|c: char| c == ';' || c.is_control(), ":");
    let name = name.trim();
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    match name.rsplit(' ').next() {
        Some("") | None => "[no name]".to_owned(),
        Some(last) if is_number(last) || name.starts_with('#') => name.replace(' ', HARD_SPACE),
        Some(_) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(stacks: &[(&[&str], f64)]) -> Option<String> {
        let stacks: Vec<Stack> = stacks
            .iter()
            .map(|(names, bytes)| (names.iter().map(|&one| one.into()).collect(), *bytes))
            .collect();
        draw(&stacks)
    }

    #[test]
    fn names_are_texts_whatever_they_say_and_bytes_are_never_taken_from_them() {
        let picture = drawn(&[
            (&["main", "</svg><script>alert(1)</script>"], 1000.0),
            (&["# main", "f 7000"], 2000.0),
            (&["", "a;b\n9"], 3000.0),
            (
                &["main", "]]><b onclick=x>", "operator new(unsigned long)"],
                4000.0,
            ),
        ])
        .unwrap();
        for text in [
            "all (10,000 bytes",
            "f\u{a0}7000 (2,000 bytes",
            "a:b:9 (3,000 bytes",
        ] {
            assert!(picture.contains(text), "{text}: {picture}");
        }
        for text in ["alert(1)</script>", "<b ", "<script>"] {
            assert!(!picture.contains(text), "{text}: {picture}");
        }
        assert_eq!(picture.matches("</script>").count(), 1);
    }

    #[test]
    fn a_deep_stack_and_many_narrow_ones_make_no_large_picture() {
        let deep: Vec<String> = (0..1 << 16).map(|at| format!("f{at}")).collect();
        let narrow = (0..1 << 16).map(|at| (vec![format!("g{at}")], 1.0));
        let all: Vec<Stack> = narrow.chain([(deep, 1e6)]).collect();
        let picture = draw(&all).unwrap();
        assert!(picture.len() < 1 << 20, "{}", picture.len());
        assert!(drawn(&[(&["main"], 0.2)]).is_none());
    }

    #[test]
    fn the_script_and_the_style_can_not_end_their_elements() {
        assert!(!SCRIPT.to_ascii_lowercase().contains("</script") && !STYLE.contains("</"));
    }
}
