//! `loam check`: does the program use the replacement of malloc?

pub mod args;
mod text;

use std::path::{Path, PathBuf};

use anyhow::{anyhow, Result};

use loam_check::examined::Examined;
use loam_check::findings::{self, Severity};
use loam_check::{command, document, process, program};
use loam_process::apart;
use loam_process::layout::Layout;
use loam_process::preload::find_library;

use crate::exit::Exit;
use crate::output;
use crate::run::layout_for;
use args::{CheckOptions, Target};

/// Runs the verb.
pub fn run(options: &CheckOptions, layout: &Layout) -> Result<Exit> {
    let (target, library) = (options.target.clone(), options.library.clone());
    let layout = layout.clone();
    let examined = apart::within(move || examine(&target, library.as_deref(), &layout));
    let examined =
        examined.unwrap_or_else(|doing| Err(anyhow!("nothing can be said of it: {doing}")))?;
    let findings = findings::diagnose(&examined);
    let verdict = findings::verdict(&examined, &findings);
    let text = if options.json {
        serde_json::to_string_pretty(&document::document(&examined, verdict, &findings))? + "\n"
    } else {
        text::render(&examined, verdict, &findings)
    };
    output::write_stdout(&text)?;
    let is_finding = findings
        .iter()
        .any(|finding| finding.severity != Severity::Note);
    Ok(if is_finding {
        Exit::Finding
    } else {
        Exit::Done
    })
}

fn examine(target: &Target, library: Option<&Path>, layout: &Layout) -> Result<Examined> {
    let program = match target {
        Target::Process(pid) => return process::examine(*pid),
        // The shell's exit codes are only for verbs that start a program.
        Target::Program(program) => command::resolve(program)?,
    };
    // A program that contains the heap needs no preload, unless the caller names a library.
    if library.is_none() && program::brings_loam(&program)? {
        return program::examine(&program, None);
    }
    let layout = layout_for(layout, &program, &[])?;
    let library: PathBuf = find_library(library, &layout)?.path;
    program::examine(&program, Some(&library))
}
