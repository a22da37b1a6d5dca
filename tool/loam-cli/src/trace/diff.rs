//! By how much call paths grew between two traces.

use std::path::Path;

use anyhow::{bail, Result};
use serde_json::json;

use loam_format::plain;
use loam_format::units::bytes;
use loam_lab::replay::{self, Survey};
use loam_lab::traces::paths::{self, Changed, Path as CallPath};
use loam_lab::traces::stacks::{self, Site};
use loam_process::symbols::Symbols;
use loam_report::style::bold;

use super::args::Of;
use super::profile;
use crate::exit::Exit;
use crate::names;
use crate::output;

/// How many paths are shown, and how many functions of each; the JSON has all.
const PATHS: usize = 10;
const FUNCTIONS: usize = 8;

/// A trace, as far as it is compared.
struct Side {
    survey: Survey,
    seconds: f64,
    paths: Vec<CallPath>,
    /// The types of what lived at the end, if the recording looked for them.
    types: Option<Vec<CallPath>>,
}

/// Prints the difference.
pub fn run(before: &Path, after: &Path, of: Of, json: bool) -> Result<Exit> {
    let mut symbols = Symbols::default();
    let (before, after) = (
        read(before, of, &mut symbols)?,
        read(after, of, &mut symbols)?,
    );
    let kinds = [&before, &after].map(|side| side.survey.header.sampled.as_str());
    if kinds[0] != kinds[1] {
        let kinds = kinds.map(|kind| match kind {
            "" => "all blocks of the program".to_owned(),
            kind => plain::line(kind).into_owned(),
        });
        bail!(
            "{} and {} can not be compared: the first one has {}, the other one {}",
            output::path(&before.survey.path),
            output::path(&after.survey.path),
            kinds[0],
            kinds[1]
        );
    }
    let (first, second) = (total(&before), total(&after));
    let spans = (before.seconds, after.seconds);
    let changed = paths::compare(before.paths, after.paths);
    let types = match (before.types, after.types) {
        (Some(before), Some(after)) => Some(paths::compare(before, after)),
        _ => None,
    };
    if json {
        let value = json!({
            "format": "loam-trace-diff",
            "version": 1,
            "before": { "trace": before.survey.path, "seconds": spans.0, "bytes": first },
            "after": { "trace": after.survey.path, "seconds": spans.1, "bytes": second },
            "paths": changed,
            "types": types.map(|all| all.iter().map(as_type).collect::<Vec<_>>()),
        });
        output::write_stdout(&(serde_json::to_string_pretty(&value)? + "\n"))?;
    } else {
        let head = format!(
            "{}{}{:#} to {}{:#}: {} in {:.0} s, then {} in {:.0} s ({})\n",
            bold(),
            output::path(&before.survey.path),
            bold(),
            output::path(&after.survey.path),
            bold(),
            bytes(first),
            spans.0,
            bytes(second),
            spans.1,
            of.text()
        );
        let by_type = match &types {
            Some(types) if of == Of::End => text(types, &["Types that grew", "Types that shrank"]),
            _ => String::new(),
        };
        let mut text = text(&changed, &["Grew", "Shrank"]) + &by_type;
        if text.is_empty() {
            text = "\nNo path changed by more than chance makes.\n".to_owned();
        }
        output::write_stdout(&(head + &text))?;
    }
    names::warn_of_other_files(&symbols);
    Ok(Exit::Done)
}

fn total(side: &Side) -> f64 {
    side.paths.iter().map(|path| path.bytes).sum()
}

fn read(trace: &Path, of: Of, symbols: &mut Symbols) -> Result<Side> {
    profile::require_stacks(trace)?;
    let survey = replay::survey(trace)?;
    let stream = survey.choose(None)?;
    let process = &survey.processes[&stream];
    let seconds = process.last_time.saturating_sub(process.first_time) as f64 * 1e-9;
    let figure = |_: usize, site: &Site| of.estimate(site);
    let (paths, types) = match stacks::of(&survey, stream)? {
        Some(stacks) => (
            paths::without_lines(&stacks, symbols, figure),
            paths::types(&stacks),
        ),
        None => (Vec::new(), None),
    };
    Ok(Side {
        survey,
        seconds,
        paths,
        types,
    })
}

fn as_type(changed: &Changed) -> serde_json::Value {
    json!({
        "type": changed.functions.concat(),
        "before": changed.before,
        "after": changed.after,
        "error": changed.error,
    })
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
