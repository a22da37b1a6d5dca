//! `loam stats`: shows once where the memory of a running program is.
//!
//! `observe` looks and `verdict` judges. `text` writes a page about one process, `table` a line for
//! each of several.

pub mod args;
mod table;
mod text;

use anyhow::{anyhow, bail, Result};

use loam_counters::document;
use loam_counters::snapshot::HeapFigures;
use loam_counters::view::View;
use loam_format::words;
use loam_process::choose::{self, ChoiceError};

use crate::exit::Exit;
use crate::output;
use args::StatsOptions;

/// Runs the verb.
pub fn run(options: &StatsOptions) -> Result<Exit> {
    let found = match &options.target {
        Some(target) => {
            let found = choose::find(target)?;
            if found.len() > 1 && !options.all {
                bail!(choose::ambiguous(
                    target,
                    &found,
                    "name one by its number, or show them with --all"
                ));
            }
            found
        }
        None => choose::all().map_err(ChoiceError::from)?,
    };
    let several = found.len() > 1;
    let mut documents = Vec::new();
    let mut pages = Vec::new();
    let mut rows = Vec::new();
    let mut failed = 0;
    let (json, heap) = (options.json, options.heap.clone());
    let is_table = options.all && heap.is_none();
    let show = move |view: &View| show(view, heap.as_deref(), json, is_table);
    for shown in View::each(found, show) {
        match shown {
            Ok(Ok(Shown::Document(document))) => documents.push(document),
            Ok(Ok(Shown::Row(row))) => rows.push(row),
            Ok(Ok(Shown::Page(page))) => pages.push(page),
            Ok(Err(error)) => return Err(error),
            // Among all processes, some end meanwhile and some belong to other users.
            Err(_) if options.target.is_none() => failed += 1,
            Err(error) if several => {
                // The other processes are still worth showing.
                output::print_warning(&error.to_string());
                failed += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if options.json {
        let text = serde_json::to_string_pretty(&document::document(documents))?;
        output::write_stdout(&(text + "\n"))?;
    } else if !rows.is_empty() {
        output::write_stdout(&table::render(rows))?;
    } else {
        output::write_stdout(&pages.join("\n"))?;
    }
    if options.target.is_some() {
        return Ok(if failed > 0 { Exit::Error } else { Exit::Done });
    }
    if failed > 0 {
        let processes = words::count_of(failed, "process", "processes");
        eprintln!("{processes} may not be read, or ended meanwhile; root may read all");
    }
    Ok(Exit::Done)
}

/// What is shown of a process.
enum Shown {
    Document(serde_json::Value),
    Row(table::Row),
    Page(String),
}

fn show(view: &View, heap: Option<&str>, json: bool, is_table: bool) -> Result<Shown> {
    let heap = heap.map(|wanted| find_heap(view, wanted)).transpose()?;
    Ok(match (json, is_table) {
        (true, _) => Shown::Document(document::process(view, heap)),
        (false, true) => Shown::Row(table::Row::of(view)),
        (false, false) => Shown::Page(text::render(view, heap)),
    })
}

/// How many heaps are listed if there is none of a name.
const LISTED: usize = 20;

fn find_heap<'a>(view: &'a View, wanted: &str) -> Result<&'a HeapFigures> {
    let pid = view.identity.key.pid;
    let Some(snapshot) = view.snapshot() else {
        let reason = match &view.counters {
            Err(error) => error.to_string(),
            Ok(_) => "it is not on Loam, which alone has heaps to choose from".to_owned(),
        };
        bail!("no heap `{wanted}` in process {pid}: {reason}");
    };
    snapshot.heap(wanted).ok_or_else(|| {
        let known: Vec<String> = snapshot
            .heaps
            .iter()
            .take(LISTED)
            .map(|heap| format!("{} ({})", heap.number, heap.label()))
            .collect();
        anyhow!(
            "process {pid} has no heap `{wanted}`; it has {}",
            words::list(&known)
        )
    })
}
