//! All that was found out about a program or a process, before it is judged.

use std::path::PathBuf;

use loam_process::process::Pid;

use crate::check::linked::Linked;

/// A library that was to be preloaded.
#[derive(Debug, Clone)]
pub struct Preload {
    /// As `LD_PRELOAD` names it.
    pub entry: String,
    /// Why it is not in the program, or can not come in.
    pub failure: Option<Failure>,
}

/// What is wrong and what helps.
#[derive(Debug, Clone)]
pub struct Failure {
    /// A clause: `is for aarch64, and the program for x86-64`.
    pub what: String,
    /// A sentence without its full stop.
    pub remedy: String,
}

/// A library that nothing provides.
#[derive(Debug, Clone)]
pub struct Missing {
    /// Its name.
    pub library: String,
    /// Who asks for it.
    pub asked_by: String,
}

/// One program, about to be started or running.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The process; none for a program that does not run.
    pub pid: Option<Pid>,
    /// What to call it.
    pub title: String,
    /// The executable file: for a script, its interpreter's.
    pub program: PathBuf,
    /// Modules and bindings.
    pub linked: Linked,
    /// It has no dynamic linker.
    pub is_static: bool,
    /// Why the dynamic linker ignores `LD_PRELOAD`: `is set-user-ID`.
    pub raised: Option<String>,
    /// What was to be preloaded.
    pub preloads: Vec<Preload>,
    /// Libraries that are not there.
    pub missing: Vec<Missing>,
    /// The heap's counters were found in a process without symbols.
    pub has_counters: bool,
}

impl Examined {
    /// Whether the heap is in it at all.
    pub fn has_loam(&self) -> bool {
        self.has_counters || self.linked.modules.iter().any(|module| module.is_loam())
    }
}
