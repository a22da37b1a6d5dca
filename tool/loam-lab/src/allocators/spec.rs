//! The allocators that the user picked: `--allocators
//! system,loam,small=jemalloc:MALLOC_CONF=dirty_decay_ms:0`.
//!
//! ```text
//! LIST     SPEC[,SPEC]...            the option may be given more than once
//! SPEC     [LABEL=]NAME[:SETTING]... NAME is in the catalogue, or a path to a shared object
//! SETTING  VARIABLE=VALUE | memory   "memory": the settings that the allocator's authors advise
//! ```
//!
//! Values may hold commas and colons, as `MALLOC_CONF`'s do. So a comma ends a spec only if what
//! follows it starts with an allocator's name, a path or a label; a colon ends a setting only if a
//! VARIABLE= in capitals (or `memory`) follows. A piece that looks like a misspelt name is an error
//! instead of a part of the value before it.

use std::collections::BTreeMap;
use std::path::Path;

use thiserror::Error;

use loam_format::words;

use crate::allocators::{catalogue, discover, Allocator, Status};

/// Why a spec can not be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SpecError {
    /// No allocator of that name.
    #[error(
        "unknown allocator `{name}`{}\n  known: {known}\n  or a path to a shared object",
        did_you_mean(suggestion)
    )]
    Unknown {
        /// As it was written.
        name: String,
        /// What was probably meant.
        suggestion: Option<String>,
        /// All there are.
        known: String,
    },
    /// A known allocator that is not usable here.
    #[error("allocator `{name}` is not usable here: {reason}{}", to_get_it(remedy))]
    Absent {
        /// As it was written.
        name: String,
        /// Why not.
        reason: String,
        /// What would bring it.
        remedy: Option<String>,
    },
    /// Not `VARIABLE=VALUE`.
    #[error("`{setting}` in `{spec}` is no setting; write VARIABLE=VALUE, or `memory`")]
    Setting {
        /// As it was written.
        spec: String,
        /// The part that is wrong.
        setting: String,
    },
    /// A setting of the preload: the preload is how the allocator gets into the process.
    #[error(
        "`LD_PRELOAD` in `{spec}` can not be set: it is how the allocator gets into the process; \
             name the library itself, by its path"
    )]
    Preload {
        /// As it was written.
        spec: String,
    },
    /// `NAME:memory` for an allocator without such settings.
    #[error("no memory setting is known for `{name}`; write {name}:VARIABLE=VALUE")]
    NoMemorySetting {
        /// As it was written.
        name: String,
    },
    /// Two specs with the same label.
    #[error("`{label}` is listed twice; give one of them a label: LABEL={label}")]
    Twice {
        /// The label of both.
        label: String,
    },
    /// An empty spec: two commas in a row, or an empty list.
    #[error("the list of allocators has an empty entry")]
    Empty,
}

fn did_you_mean(suggestion: &Option<String>) -> String {
    suggestion
        .as_ref()
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default()
}

fn to_get_it(remedy: &Option<String>) -> String {
    remedy
        .as_ref()
        .map(|command| format!("\n  to get it: {command}"))
        .unwrap_or_default()
}

/// An allocator with the settings under which it is measured.
#[derive(Debug, Clone)]
pub struct Picked {
    /// What tables call it.
    pub label: String,
    /// The allocator.
    pub allocator: Allocator,
    /// Its environment: the settings that it needs and those that the user gave.
    pub environment: BTreeMap<String, String>,
}

impl Picked {
    /// The allocator as it is, under its own name.
    pub fn plain(allocator: Allocator) -> Picked {
        let label = allocator.name.clone();
        let environment = allocator.environment.clone();
        Picked {
            label,
            allocator,
            environment,
        }
    }
}

/// The allocator of this machine that a file means by this name: a trace, for example, names the
/// one that it was recorded on. Files come from strangers. So the name is only looked up: it is no
/// spec, has no settings, and is no path.
pub fn known<'a>(name: &str, available: &'a [Allocator]) -> Option<&'a Allocator> {
    let is_it = |one: &&Allocator| one.status == Status::Found && one.name == name;
    available.iter().find(is_it)
}

/// Looks up the user's lists among the known allocators.
pub fn pick(lists: &[String], available: &[Allocator]) -> Result<Vec<Picked>, SpecError> {
    let mut picked: Vec<Picked> = Vec::new();
    for spec in split(lists, available)? {
        let one = pick_one(&spec, available)?;
        if picked.iter().any(|other| other.label == one.label) {
            return Err(SpecError::Twice { label: one.label });
        }
        picked.push(one);
    }
    Ok(picked)
}

/// The single allocators of the lists, each with its label and settings. A value may contain
/// commas.
pub fn split(lists: &[String], available: &[Allocator]) -> Result<Vec<String>, SpecError> {
    let mut specs = Vec::new();
    for list in lists {
        specs.extend(split_list(list, available)?);
    }
    Ok(specs)
}

fn split_list(list: &str, available: &[Allocator]) -> Result<Vec<String>, SpecError> {
    let mut specs: Vec<String> = Vec::new();
    for piece in list.split(',') {
        let continues_a_value =
            specs.last().is_some_and(|spec| has_setting(spec)) && !starts_a_spec(piece, available);
        match specs.last_mut() {
            Some(spec) if continues_a_value => {
                if let Some(suggestion) = misspelt(piece, available) {
                    return Err(unknown(piece, Some(suggestion), available));
                }
                spec.push(',');
                spec.push_str(piece);
            }
            _ if piece.trim().is_empty() => return Err(SpecError::Empty),
            _ => specs.push(piece.trim().to_owned()),
        }
    }
    Ok(specs)
}

fn has_setting(spec: &str) -> bool {
    spec.split_once(':')
        .is_some_and(|(_, settings)| settings.contains('='))
}

fn starts_a_spec(piece: &str, available: &[Allocator]) -> bool {
    let head = piece.trim().split(':').next().unwrap_or_default();
    let name = head.split_once('=').map_or(head, |(_, name)| name);
    name.contains('/') || is_name(name, available)
}

fn is_name(name: &str, available: &[Allocator]) -> bool {
    catalogue::find(name).is_some() || available.iter().any(|allocator| allocator.name == name)
}

/// A piece without `=` or `:` that is nearly a name is taken for a misspelt name.
fn misspelt(piece: &str, available: &[Allocator]) -> Option<String> {
    let is_word = piece
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    let near = || words::nearest(piece, available.iter().map(|a| a.name.as_str()));
    if is_word {
        near().map(str::to_owned)
    } else {
        None
    }
}

fn unknown(name: &str, suggestion: Option<String>, available: &[Allocator]) -> SpecError {
    let known: Vec<&str> = available
        .iter()
        .map(|allocator| allocator.name.as_str())
        .collect();
    SpecError::Unknown {
        name: name.to_owned(),
        suggestion,
        known: known.join(", "),
    }
}

fn pick_one(spec: &str, available: &[Allocator]) -> Result<Picked, SpecError> {
    let (head, settings) = match spec.split_once(':') {
        Some((head, settings)) => (head, Some(settings)),
        None => (spec, None),
    };
    let (label, name) = match head.split_once('=') {
        Some((label, name)) => (Some(label), name),
        None => (None, head),
    };
    if name.is_empty() || label.is_some_and(str::is_empty) {
        return Err(SpecError::Empty);
    }
    let allocator = lookup(name, available)?;
    if allocator.status != Status::Found {
        return Err(SpecError::Absent {
            name: name.to_owned(),
            reason: allocator.reason.unwrap_or_else(|| "absent".to_owned()),
            remedy: allocator.remedy,
        });
    }
    let mut environment = allocator.environment.clone();
    for setting in settings.map(split_settings).unwrap_or_default() {
        if setting == "memory" {
            if allocator.memory_environment.is_empty() {
                return Err(SpecError::NoMemorySetting {
                    name: allocator.name,
                });
            }
            environment.extend(allocator.memory_environment.clone());
            continue;
        }
        match setting.split_once('=') {
            Some(("LD_PRELOAD", _)) => {
                return Err(SpecError::Preload {
                    spec: spec.to_owned(),
                })
            }
            Some((variable, value)) if is_variable(variable) => {
                environment.insert(variable.to_owned(), value.to_owned());
            }
            _ => {
                return Err(SpecError::Setting {
                    spec: spec.to_owned(),
                    setting,
                })
            }
        }
    }
    let own_label = || match settings {
        Some(settings) => format!("{}:{settings}", allocator.name),
        None => allocator.name.clone(),
    };
    Ok(Picked {
        label: label.map_or_else(own_label, str::to_owned),
        environment,
        allocator,
    })
}

fn lookup(name: &str, available: &[Allocator]) -> Result<Allocator, SpecError> {
    if name.contains('/') {
        return Ok(discover::from_path(Path::new(name)));
    }
    let name = catalogue::find(name).map_or(name, |known| known.name);
    match available.iter().find(|allocator| allocator.name == name) {
        Some(allocator) => Ok(allocator.clone()),
        None => {
            let nearest = words::nearest(name, available.iter().map(|a| a.name.as_str()));
            Err(unknown(name, nearest.map(str::to_owned), available))
        }
    }
}

fn split_settings(text: &str) -> Vec<String> {
    let mut settings: Vec<String> = Vec::new();
    for piece in text.split(':') {
        let starts = piece == "memory"
            || piece
                .split_once('=')
                .is_some_and(|(name, _)| is_variable(name));
        match settings.last_mut() {
            Some(setting) if !starts => {
                setting.push(':');
                setting.push_str(piece);
            }
            _ => settings.push(piece.to_owned()),
        }
    }
    settings
}

/// Only names in capitals count: `dirty_decay_ms:0` and `glibc.malloc.arena_max=1` are parts of
/// values.
fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests;
