//! By how much call paths grew between two traces: what `loam_lab::traces::diff` found, for people.

use std::path::Path;

use anyhow::Result;

use loam_format::plain;
use loam_format::units::bytes;
use loam_lab::traces::diff::Diff;
use loam_lab::traces::of::Of;
use loam_lab::traces::paths::Changed;
use loam_process::symbols::Symbols;
use loam_report::style::bold;

use crate::exit::Exit;
use crate::output;

/// How many paths are shown, and how many functions of each; the JSON has all.
const PATHS: usize = 10;
const FUNCTIONS: usize = 8;

/// Prints the difference.
pub fn run(before: &Path, after: &Path, of: Of, json: bool) -> Result<Exit> {
    let mut symbols = Symbols::default();
    let diff = Diff::of(before, after, of, &mut symbols)?;
    let text = match json {
        true => serde_json::to_string_pretty(&diff.document())? + "\n",
        false => page(&diff, of),
    };
    output::write_stdout(&text)?;
    for side in [&diff.before, &diff.after] {
        let told = |fault| format!("{}: {fault}", output::path(&side.trace));
        output::print_warnings(&side.faults.iter().map(told).collect::<Vec<_>>());
    }
    output::print_warnings(&symbols.doubts());
    Ok(Exit::Done)
}

fn page(diff: &Diff, of: Of) -> String {
    let (bold, before, after) = (bold(), &diff.before, &diff.after);
    let head = format!(
        "{bold}{}{bold:#} to {bold}{}{bold:#}: {} in {:.0} s, then {} in {:.0} s ({})\n",
        output::path(&before.trace),
        output::path(&after.trace),
        bytes(before.bytes),
        before.seconds,
        bytes(after.bytes),
        after.seconds,
        of.text()
    );
    let by_type = match &diff.types {
        Some(types) if of == Of::End => text(types, &["Types that grew", "Types that shrank"]),
        _ => String::new(),
    };
    let mut text = text(&diff.paths, &["Grew", "Shrank"]) + &by_type;
    if text.is_empty() {
        text = "\nNo path changed by more than chance makes.\n".to_owned();
    }
    head + &text
}

/// `titles`: of what grew, and of what shrank.
fn text(changed: &[Changed], titles: &[&str; 2]) -> String {
    let is_sure = |one: &&Changed| one.is_sure() && one.grown().abs() >= 1.0;
    let grown: Vec<_> = changed
        .iter()
        .filter(is_sure)
        .filter(|one| one.grown() > 0.0)
        .collect();
    let shrunk: Vec<_> = changed
        .iter()
        .rev()
        .filter(is_sure)
        .filter(|one| one.grown() < 0.0)
        .collect();
    let mut text = String::new();
    for (title, sign, paths) in [(titles[0], "+", &grown), (titles[1], "-", &shrunk)] {
        if paths.is_empty() {
            continue;
        }
        text += &format!("\n{title}\n");
        for one in paths.iter().take(PATHS) {
            let error = match one.error {
                error if error >= 1.0 => format!(" +- {}", bytes(error)),
                _ => String::new(),
            };
            text += &format!(
                "\n  {sign}{}{error}, from {} to {}\n",
                bytes(one.grown().abs()),
                bytes(one.before),
                bytes(one.after)
            );
            for name in one.functions.iter().take(FUNCTIONS) {
                text += &format!("    {}\n", plain::line(name));
            }
            if one.functions.len() > FUNCTIONS {
                text += &format!("    ... {} more\n", one.functions.len() - FUNCTIONS);
            }
        }
        if paths.len() > PATHS {
            text += &format!("\n  {} more; --json has all\n", paths.len() - PATHS);
        }
    }
    text
}
