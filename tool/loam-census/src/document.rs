//! A census with whose it is, as a file has it; and the difference of two.

use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail, Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

use loam_format::plain;
use loam_process::apart;
use loam_process::process::{Identity, Pid};

use crate::census::{self, Census, Wanted};
use crate::core::Core;
use crate::diff::Change;
use crate::target::{Live, Target};

/// Between the two looks of a census: longer than a pointer is on its way in most programs.
pub const BETWEEN: Duration = Duration::from_secs(2);

const FORMAT: &str = "loam-census";
const VERSION: u32 = 1;

/// A census with whose it is. Fields may be added; none is removed or changes its meaning while
/// `version` stays.
#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    format: String,
    version: u32,
    /// The process, if there was one.
    #[serde(default)]
    pub pid: Option<u64>,
    /// Its name.
    pub name: String,
    /// What its blocks are.
    pub census: Census,
}

impl Document {
    fn new(pid: Option<u64>, name: String, census: Census) -> Document {
        Document {
            format: FORMAT.to_owned(),
            version: VERSION,
            pid,
            name,
            census,
        }
    }

    /// The census of a process.
    pub fn of_process(identity: &Identity, wanted: Wanted) -> Result<Document> {
        let (pid, name) = (identity.key.pid, &identity.name);
        let census = of_process(pid, wanted)
            .with_context(|| format!("no census of {} ({pid})", plain::line(name)))?;
        let pid = Some(u64::from(pid.unsigned_abs()));
        Ok(Document::new(pid, name.clone(), census))
    }

    /// The census of a core.
    pub fn of_core(path: &Path, wanted: Wanted) -> Result<Document> {
        let shown = plain::path(path);
        let core = Core::open(path).with_context(|| format!("the core {shown} can not be read"))?;
        let (pid, name) = (core.pid.map(u64::from), core.name.clone());
        let problems = core.problems().join("; ");
        drop(core);
        let path = path.to_owned();
        let open = move || -> Result<Box<dyn Target>, String> {
            let core = Core::open(&path).map_err(|error| error.to_string())?;
            Ok(Box::new(core))
        };
        let census = census::take(&open, wanted).with_context(|| match problems.as_str() {
            "" => format!("no census of the core {shown}"),
            problems => format!("no census of the core {shown}: {problems}"),
        })?;
        Ok(Document::new(pid, name, census))
    }

    /// The census in a file.
    pub fn load(path: &Path) -> Result<Document> {
        let shown = plain::path(path);
        let text =
            std::fs::read_to_string(path).with_context(|| format!("{shown} can not be read"))?;
        let document: Document = serde_json::from_str(&text).with_context(|| {
            format!("{shown} is no census: write one by `loam census PID --json`")
        })?;
        if document.format != FORMAT || document.version > VERSION {
            bail!("{shown} is of a newer version of this tool, or no census");
        }
        Ok(document)
    }
}

/// The census of a process, apart from this thread: reading a stranger's memory may never end.
/// Without a wait there is one look.
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

/// The difference of two censuses, for programs.
pub fn of_changes(before: &Document, after: &Document, changes: &[Change]) -> Value {
    json!({
        "format": "loam-census-diff",
        "version": VERSION,
        "before": { "pid": before.pid, "name": before.name, "live": before.census.live },
        "after": { "pid": after.pid, "name": after.name, "live": after.census.live },
        "seconds": after.census.when - before.census.when,
        "changes": changes,
    })
}
