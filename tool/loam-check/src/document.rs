//! What was examined and found as a document, for programs.
//!
//! Fields and codes may be added. While `version` stays, none is removed or changes its meaning.

use serde_json::{json, Value};

use crate::examined::Examined;
use crate::findings::{Finding, Verdict};
use crate::linked::{How, Provider};

/// The document.
pub fn document(examined: &Examined, verdict: Verdict, findings: &[Finding]) -> Value {
    let linked = &examined.linked;
    let modules: Vec<Value> = linked
        .modules
        .iter()
        .map(|module| {
            json!({
                "path": module.path,
                "origin": module.origin.word(),
                "namespace": module.namespace,
                "is_loam": module.is_loam(),
            })
        })
        .collect();
    let bindings: Vec<Value> = linked
        .bindings
        .iter()
        .map(|binding| {
            let (path, address) = match binding.provider {
                Provider::Module(module) => (Some(&linked.modules[module].path), None),
                Provider::Elsewhere(address) => (None, Some(address)),
            };
            json!({
                "module": linked.modules[binding.module].path,
                "function": binding.function.symbol(),
                "provider": path,
                "address": address,
                "is_loam": linked.is_loam(binding.provider),
                "known_by": match binding.how {
                    How::Read => "memory",
                    How::Searched => "search-order",
                },
            })
        })
        .collect();
    let preloads: Vec<Value> = examined
        .preloads
        .iter()
        .map(|preload| {
            json!({
                "entry": preload.entry,
                "failure": preload.failure.as_ref().map(|failure| failure.what.clone()),
            })
        })
        .collect();
    json!({
        "format": "loam-check",
        "version": 1,
        "pid": examined.pid,
        "program": examined.program,
        "verdict": verdict,
        "is_static": examined.is_static,
        "preloads": preloads,
        "modules": modules,
        "bindings": bindings,
        "findings": findings,
    })
}
