//! Everything that was found out about a program or a process, before it is judged.

use std::path::PathBuf;

use loam_process::process::Pid;

use crate::linked::Linked;

/// A library that should be preloaded.
#[derive(Debug, Clone)]
pub struct Preload {
    /// Its entry in `LD_PRELOAD`.
    pub entry: String,
    /// Why it is not in the program, or can not be loaded.
    pub failure: Option<Failure>,
}

/// A problem and its remedy.
#[derive(Debug, Clone)]
pub struct Failure {
    /// A clause: `is for aarch64, and the program for x86-64`.
    pub what: String,
    /// A sentence without its full stop.
    pub remedy: String,
}

/// A library that can not be found.
#[derive(Debug, Clone)]
pub struct Missing {
    /// Its name.
    pub library: String,
    /// The module that needs it.
    pub asked_by: String,
}

/// A program that is about to be started or is running.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The process; none for a program that does not run.
    pub pid: Option<Pid>,
    /// Its name in messages.
    pub title: String,
    /// The executable file. For a script, this is its interpreter's.
    pub program: PathBuf,
    /// Modules and bindings.
    pub linked: Linked,
    /// Whether it has no dynamic linker.
    pub is_static: bool,
    /// Why the dynamic linker ignores `LD_PRELOAD`: `is set-user-ID`.
    pub raised: Option<String>,
    /// The libraries that should be preloaded.
    pub preloads: Vec<Preload>,
    /// Libraries that can not be found.
    pub missing: Vec<Missing>,
    /// Whether the heap's counters were found in a process without symbols.
    pub has_counters: bool,
}

impl Examined {
    /// Whether the heap is in the program at all.
    pub fn has_loam(&self) -> bool {
        self.has_counters || self.linked.modules.iter().any(|module| module.is_loam())
    }
}
