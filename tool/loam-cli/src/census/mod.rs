//! `loam census`: what the live blocks of a process or a core are, who holds them, and which are
//! lost.

pub mod args;
mod page;
mod text;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use loam_census::census::{self, Census, Wanted};
use loam_census::core::{looks_like_core, Core};
use loam_census::diff::{self, Change};
use loam_census::target::{Live, Target};
use loam_format::plain;
use loam_format::units::bytes;
use loam_lab::store::Store;
use loam_process::apart;
use loam_process::choose;
use loam_process::process::{Identity, Pid};

use crate::exit::Exit;
use crate::output;
use crate::stats;
use args::CensusOptions;

/// Between the two looks of a census: longer than a pointer is on its way in most programs.
pub const BETWEEN: Duration = Duration::from_secs(2);

/// Whom to look at.
#[derive(Debug, Clone)]
enum Whom {
    Process(Identity),
    Core(PathBuf),
}

/// A census with whose it is, as a file has it. Fields may be added; none is removed or changes its
/// meaning while `version` stays.
#[derive(Debug, Serialize, Deserialize)]
struct Document {
    format: String,
    version: u32,
    #[serde(default)]
    pid: Option<u64>,
    name: String,
    census: Census,
}

const FORMAT: &str = "loam-census";
const VERSION: u32 = 1;

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
    let named: choose::Target = target.parse().map_err(|error: String| anyhow!(error))?;
    let mut found = choose::find(&named)?;
    match found.len() {
        1 => Ok(Whom::Process(found.remove(0))),
        _ => bail!(stats::ambiguous(&named, &found, "name one by its number")),
    }
}

fn take(whom: &Whom, options: &CensusOptions) -> Result<Document> {
    let wanted = Wanted {
        wait: Some(BETWEEN),
        content: options.show_content,
    };
    let (pid, name, census) = match whom {
        Whom::Process(identity) => {
            let pid = identity.key.pid;
            let census = of_process(pid, wanted)
                .with_context(|| format!("no census of {} ({pid})", plain::line(&identity.name)))?;
            (
                Some(u64::from(pid.unsigned_abs())),
                identity.name.clone(),
                census,
            )
        }
        Whom::Core(path) => {
            let shown = output::path(path);
            let core =
                Core::open(path).with_context(|| format!("the core {shown} can not be read"))?;
            let (pid, name) = (core.pid.map(u64::from), core.name.clone());
            let problems = core.problems().join("; ");
            drop(core);
            let path = path.clone();
            let open = move || -> Result<Box<dyn Target>, String> {
                let core = Core::open(&path).map_err(|error| error.to_string())?;
                Ok(Box::new(core))
            };
            let census = census::take(&open, wanted).with_context(|| match problems.as_str() {
                "" => format!("no census of the core {shown}"),
                problems => format!("no census of the core {shown}: {problems}"),
            })?;
            (pid, name, census)
        }
    };
    Ok(Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        pid,
        name,
        census,
    })
}

/// Apart from this thread: reading a stranger's memory may never end. Without a wait there is one
/// look.
pub fn of_process(pid: Pid, wanted: Wanted) -> Result<Census> {
    let taken = apart::within(move || {
        let open = || -> Result<Box<dyn Target>, String> {
            let live = Live::open(pid).map_err(|error| error.to_string())?;
            Ok(Box::new(live))
        };
        census::take(&open, wanted)
    });
    Ok(taken.map_err(|doing| anyhow!("process {pid} can not be read: {doing}"))??)
}

fn compare(options: &CensusOptions, before: &Path, after: &Path) -> Result<Exit> {
    let store = claim(options)?;
    show_changes(options, store.as_ref(), &load(before)?, &load(after)?)
}

fn load(path: &Path) -> Result<Document> {
    let shown = output::path(path);
    let text = std::fs::read_to_string(path).with_context(|| format!("{shown} can not be read"))?;
    let document: Document = serde_json::from_str(&text)
        .with_context(|| format!("{shown} is no census: write one by `loam census PID --json`"))?;
    if document.format != FORMAT || document.version > VERSION {
        bail!("{shown} is of a newer version of this tool, or no census");
    }
    Ok(document)
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
        let document = json!({
            "format": "loam-census-diff",
            "version": VERSION,
            "before": { "pid": before.pid, "name": before.name, "live": before.census.live },
            "after": { "pid": after.pid, "name": after.name, "live": after.census.live },
            "seconds": seconds,
            "changes": changes,
        });
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
