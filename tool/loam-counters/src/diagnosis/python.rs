//! Memory that CPython's own allocator keeps. It takes arenas from the system, cuts them into
//! pools, and gives an arena back only when none of its pools has a live object. So objects that
//! stay keep arenas that those that went have filled.

use serde::Serialize;

use super::evidence::Evidence;
use super::rules::{out, show, Answer, BYTES, SHARE};
use super::{Finding, Kind};

/// What the pools of a process say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PythonPools {
    /// Arenas.
    pub arenas: u64,
    /// Bytes of their pools that were ever used.
    pub bytes: u64,
    /// Live objects and other live blocks.
    pub blocks: u64,
    /// Bytes of these.
    pub live_bytes: u64,
    /// Arenas of which less than a quarter is live.
    pub sparse_arenas: u64,
    /// Bytes of the pools of these.
    pub sparse_bytes: u64,
    /// Bytes of the pages in pools that no live block touches.
    pub free_page_bytes: u64,
}

/// CPython keeps arenas for few objects.
pub(super) fn arenas(evidence: &Evidence) -> Answer {
    let kind = Kind::PythonArenas;
    let Some(pools) = evidence.python else {
        return Err(out(kind, "it has no pools of CPython's"));
    };
    let free = pools.bytes.saturating_sub(pools.live_bytes);
    let is_much = free >= BYTES
        && free as f64 >= SHARE * evidence.resident as f64
        && free as f64 >= 0.5 * pools.bytes as f64;
    if !is_much {
        let live = show(pools.live_bytes);
        return Err(out(
            kind,
            format!("of {} in pools {live} are live", show(pools.bytes)),
        ));
    }
    let by_pages = match pools.free_page_bytes >= BYTES {
        true => {
            " PYTHONMALLOC=malloc lets the program's allocator serve these objects: with Loam it \
             gives single pages back (`PYTHONMALLOC=malloc loam run -- COMMAND`)."
        }
        false => "",
    };
    Ok(Finding {
        kind,
        is_fault: true,
        verdict: format!(
            "CPython keeps {} of arenas for {} of objects",
            show(pools.bytes),
            show(pools.live_bytes)
        ),
        evidence: vec![
            format!(
                "{} live blocks lie in {} arenas",
                pools.blocks, pools.arenas
            ),
            format!(
                "{} of these arenas, with {}, are live to less than a quarter",
                pools.sparse_arenas,
                show(pools.sparse_bytes)
            ),
            format!(
                "{} are whole pages without a live block",
                show(pools.free_page_bytes)
            ),
        ],
        remedy: format!(
            "objects that stay were made among many that went, and each keeps a whole arena. Make \
             what stays first (load modules, caches and tables before the work that peaks), or do \
             the peak's work in a process that ends.{by_pages} `loam census PID` names what stays"
        ),
        gain_bytes: Some(free),
        gain_least_bytes: Some(pools.free_page_bytes.min(free)),
        bytes: free,
    })
}
