//! `loam census`: what the live blocks of a process or a core are, who holds them, and which are
//! lost.

pub mod args;
mod text;

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Context, Result};

use loam_census::census::Wanted;
use loam_census::core::looks_like_core;
use loam_census::diff::{self, Change};
use loam_census::document::{self, Document, BETWEEN};
use loam_census::page;
use loam_format::units::bytes;
use loam_lab::store::Store;
use loam_process::choose;
use loam_process::process::Identity;

use crate::exit::Exit;
use crate::output;
use args::CensusOptions;

/// Whom to look at.
#[derive(Debug, Clone)]
enum Whom {
    Process(Identity),
    Core(PathBuf),
}

/// Runs the verb.
pub fn run(options: &CensusOptions) -> Result<Exit> {
    if let Some([before, after]) = &options.diff {
        return compare(options, before, after);
    }
    let target = options.target.as_deref().unwrap_or_default();
    let whom = whom(target)?;
    // Before the work, so that a place that can not be written costs none.
    let store = claim(options)?;
    let document = take(&whom, options)?;
    if let Some(watch) = options.watch {
        if matches!(whom, Whom::Core(_)) {
            bail!("a core does not change, so there is nothing to watch");
        }
        std::thread::sleep(watch);
        let later = take(&whom, options)?;
        return show_changes(options, store.as_ref(), &document, &later);
    }
    let is_found = options.leaks && document.census.lost.blocks > 0;
    let exit = if is_found { Exit::Finding } else { Exit::Done };
    if let Some(store) = store {
        write(
            options,
            &store,
            page::of_census(&document.name, &document.census),
        )?;
        return Ok(exit);
    }
    let text = if options.json {
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        text::census(&document.name, &document.census, options.top, options.leaks)
    };
    output::write_stdout(&text)?;
    Ok(exit)
}

fn claim(options: &CensusOptions) -> Result<Option<Store>> {
    let path = options.html.as_deref();
    let claim = |path| Store::claim(path, page::looks_like_page);
    Ok(path.map(claim).transpose()?)
}

fn write(options: &CensusOptions, store: &Store, page: Option<String>) -> Result<()> {
    let page = page.context(
        "there is nothing to draw: an older loam wrote these files, or there are no blocks",
    )?;
    store.replace(|file| file.write_all(page.as_bytes()))?;
    output::say(&format!(
        "loam: a page of {}: {}; open it in a browser",
        bytes(page.len() as f64),
        output::path(options.html.as_deref().unwrap_or(Path::new("")))
    ));
    Ok(())
}

fn whom(target: &str) -> Result<Whom> {
    let path = Path::new(target);
    if target.contains('/') || path.is_file() && looks_like_core(path) {
        return Ok(Whom::Core(path.to_owned()));
    }
    let no_file = match path.is_file() {
        true => format!("{target} is no core"),
        false => format!("there is no file {target}"),
    };
    let found = choose::one_or_file(target, &no_file);
    found.map(Whom::Process).map_err(|error| anyhow!(error))
}

fn take(whom: &Whom, options: &CensusOptions) -> Result<Document> {
    let wanted = Wanted {
        wait: Some(BETWEEN),
        content: options.show_content,
    };
    match whom {
        Whom::Process(identity) => Document::of_process(identity, wanted),
        Whom::Core(path) => Document::of_core(path, wanted),
    }
}

fn compare(options: &CensusOptions, before: &Path, after: &Path) -> Result<Exit> {
    let store = claim(options)?;
    show_changes(
        options,
        store.as_ref(),
        &Document::load(before)?,
        &Document::load(after)?,
    )
}

fn show_changes(
    options: &CensusOptions,
    store: Option<&Store>,
    before: &Document,
    after: &Document,
) -> Result<Exit> {
    let changes: Vec<Change> = diff::of(&before.census, &after.census);
    let seconds = after.census.when - before.census.when;
    if let Some(store) = store {
        let page = page::of_changes(
            &before.census,
            &after.census,
            &after.name,
            &changes,
            seconds,
        );
        write(options, store, page)?;
        return Ok(Exit::Done);
    }
    let text = if options.json {
        let document = document::of_changes(before, after, &changes);
        serde_json::to_string_pretty(&document)? + "\n"
    } else {
        text::changes(
            &before.census,
            &after.census,
            &after.name,
            &changes,
            seconds,
            options.top,
        )
    };
    output::write_stdout(&text)?;
    Ok(Exit::Done)
}
