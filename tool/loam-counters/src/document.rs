//! All figures of processes as a document, for programs.
//!
//! Fields may be added. While `version` stays, none is removed or changes its meaning.

use serde_json::{json, Map, Value};

use crate::snapshot::{HeapFigures, LockFigures};
use crate::view::View;
use crate::{verdict, Snapshot};

/// The counters, without the locks that were never taken: a heap has a lock for each size class.
fn counters(snapshot: &Snapshot, heap: Option<&HeapFigures>) -> Value {
    let locks = snapshot.locks.iter();
    let used: Vec<&LockFigures> = locks.filter(|lock| !lock.is_unused()).collect();
    let mut counters = json!(snapshot);
    counters["locks"] = json!(used);
    counters["locks_never_taken"] = json!(snapshot.locks.len() - used.len());
    if let Some(heap) = heap {
        counters["heaps"] = json!([heap]);
    }
    counters
}

/// One process. With `heap`, only that heap of it.
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
    json!({
        "looked_at": humantime::format_rfc3339_millis(view.looked_at).to_string(),
        "pid": identity.key.pid,
        "started_ticks": identity.key.started,
        "name": identity.name,
        "command": identity.command,
        "user_id": identity.user,
        "allocator": view.allocator.as_ref().map(|found| json!({
            "name": found.name,
            "file": found.file,
        })),
        "verdict": verdict::of(view),
        "resident_bytes": view.account.resident,
        "account_bytes": account,
        "untouched_bytes": view.account.untouched,
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
        "counters": view.snapshot().map(|snapshot| counters(snapshot, heap)),
        "counters_error": view.counters.as_ref().err().map(ToString::to_string),
    })
}

/// The whole document.
pub fn document(processes: Vec<Value>) -> Value {
    let system = rustix::system::uname();
    json!({
        "format": "loam-stats",
        "version": 2,
        "host": system.nodename().to_string_lossy(),
        "kernel": system.release().to_string_lossy(),
        "processes": processes,
    })
}
