//! What `loam stats --json` prints: everything that is known, for programs.
//!
//! Fields may be added; none is removed or changes its meaning while `version` stays.

use serde_json::{json, Map, Value};

use super::verdict;
use crate::counters::snapshot::HeapFigures;
use crate::observe::view::View;

/// One process. With `heap`, of its heaps only that one.
pub fn process(view: &View, heap: Option<&HeapFigures>) -> Value {
    let identity = &view.identity;
    let account = view.account.lines.iter();
    let account: Map<String, Value> = account
        .map(|(share, bytes)| (share.key().to_owned(), json!(bytes)))
        .collect();
    let parts = view.residence.parts();
    let parts: Map<String, Value> = parts
        .filter(|(_, part)| **part != Default::default())
        .map(|(kind, part)| (kind.key().to_owned(), json!(part)))
        .collect();
    let counters = view.snapshot().map(|snapshot| {
        let mut counters = json!(snapshot);
        if let Some(heap) = heap {
            counters["heaps"] = json!([heap]);
        }
        counters
    });
    json!({
        "pid": identity.key.pid,
        "started_ticks": identity.key.started,
        "name": identity.name,
        "command": identity.command,
        "user": identity.user,
        "allocator": view.allocator.as_ref().map(|found| json!({
            "name": found.name,
            "file": found.file,
        })),
        "verdict": verdict::of(view),
        "resident_bytes": view.account.resident,
        "account_bytes": account,
        "system": {
            "kinds": parts,
            "total": view.residence.total(),
            "proportional_bytes": view.residence.proportional,
            "hugetlb_bytes": view.residence.hugetlb,
            "peak_resident_bytes": view.outline.peak_resident,
            "threads": view.outline.threads,
            "minor_faults": view.outline.minor_faults,
            "major_faults": view.outline.major_faults,
        },
        "counters": counters,
        "counters_error": view.counters.as_ref().err().map(ToString::to_string),
    })
}

/// The whole document.
pub fn document(processes: Vec<Value>) -> Value {
    json!({
        "format": "loam-stats",
        "version": 1,
        "processes": processes,
    })
}
