//! Programs of other projects that read the tool's files. `make setup` installs them. Without its
//! program a test reports that it was skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{root, skip};

/// A Python that has the module.
pub fn python(module: &str) -> Option<PathBuf> {
    let own = root().join("build/python/bin/python3");
    let has = |python: &Path| {
        let found = Command::new(python)
            .args(["-c", &format!("import {module}")])
            .output();
        found.is_ok_and(|out| out.status.success())
    };
    let found = [own, PathBuf::from("python3")]
        .into_iter()
        .find(|one| has(one));
    if found.is_none() {
        skip(&format!("Python has no {module} (`make setup` brings it)"));
    }
    found
}

/// The command line of the Firefox Profiler.
pub fn firefox_profiler() -> Option<PathBuf> {
    let script = root().join("build/firefox-profiler/dist/profiler-cli.js");
    // An old version of node can not run it.
    let version = Command::new("node").arg(&script).arg("--version").output();
    if script.is_file() && version.is_ok_and(|out| out.status.success()) {
        return Some(script);
    }
    skip("the Firefox Profiler's command line is not here (`make setup` brings it where node is)");
    None
}
