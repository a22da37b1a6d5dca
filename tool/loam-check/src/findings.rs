//! Judges whether the replacement works, and what is unsafe about it.
//!
//! Each finding has a fixed code, the problem, its consequence and the remedy. Codes:
//!
//! ```text
//! fails    static-executable raised-privileges preload-failed sanitizer searched-first not-loaded
//!          missing-library
//! unsafe   partial-override bound-elsewhere own-interface torn-operators two-heaps
//! partial  second-allocator other-namespace go-runtime not-inspected
//! note     opens-namespaces own-operators replaced-file; second-allocator where it stands idle,
//!          and preload-failed of something else than the heap
//! ```

use serde::Serialize;

use loam_process::elf::OwnMalloc;

use crate::examined::Examined;
use crate::family::Function;
use crate::file::ObjectFile;
use crate::linked::{Linked, Module, Origin};

/// The severity of a finding. A note does not count as a finding in the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The heap does not serve the program.
    Fails,
    /// A block may be freed by an allocator that did not allocate it.
    Unsafe,
    /// Some of the program's memory does not come from the heap.
    Partial,
    /// Worth knowing.
    Note,
}

/// A finding.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The kind of finding. Programs read it, so it never changes.
    pub code: &'static str,
    /// How bad.
    pub severity: Severity,
    /// The file that the finding is about.
    pub module: String,
    /// The problem and its consequence.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

/// Whether the program uses the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every module uses it.
    Taken,
    /// Some calls go to another allocator.
    Partly,
    /// The program does not use it.
    Not,
}

/// Findings, the worst first.
pub fn diagnose(examined: &Examined) -> Vec<Finding> {
    let mut judge = Judge {
        examined,
        findings: Vec::new(),
    };
    judge.start();
    judge.allocators();
    if examined.has_loam() {
        judge.bindings();
    }
    judge.notes();
    judge.absence();
    judge.findings.sort_by_key(|finding| finding.severity);
    judge.findings
}

/// The verdict that goes with the findings.
pub fn verdict(examined: &Examined, findings: &[Finding]) -> Verdict {
    let worst = findings.iter().map(|finding| finding.severity).min();
    match worst {
        _ if !examined.has_loam() => Verdict::Not,
        Some(Severity::Fails) => Verdict::Not,
        Some(Severity::Unsafe | Severity::Partial) => Verdict::Partly,
        _ => Verdict::Taken,
    }
}

pub(super) struct Judge<'a> {
    pub(super) examined: &'a Examined,
    findings: Vec<Finding>,
}

impl Judge<'_> {
    pub(super) fn add(
        &mut self,
        code: &'static str,
        severity: Severity,
        module: &str,
        what: String,
        remedy: &str,
    ) {
        let finding = Finding {
            code,
            severity,
            module: module.to_owned(),
            what,
            remedy: remedy.to_owned(),
        };
        self.findings.push(finding);
    }

    pub(super) fn linked(&self) -> &Linked {
        &self.examined.linked
    }

    /// Problems that exist before the program starts.
    fn start(&mut self) {
        let examined = self.examined;
        let program = examined.program.display().to_string();
        let is_by_preload = !examined
            .linked
            .modules
            .iter()
            .any(|m| m.is_loam() && m.origin != Origin::Preloaded);
        if examined.is_static && !examined.has_loam() {
            self.add(
                "static-executable",
                Severity::Fails,
                &program,
                "is a static executable: it has no dynamic linker, so nothing can be preloaded"
                    .to_owned(),
                "link it with libloam.a, first among the libraries, or build it dynamically",
            );
        }
        if let Some(raised) = examined
            .raised
            .as_ref()
            .filter(|_| is_by_preload && !examined.is_static)
        {
            self.add(
                "raised-privileges",
                Severity::Fails,
                &program,
                format!("{raised}: the dynamic linker ignores LD_PRELOAD"),
                "start it as the user that it becomes, link it with -lloam, or list the heap in \
                 /etc/ld.so.preload",
            );
        }
        self.preloads();
        self.libraries();
    }

    /// Libraries that should be preloaded and are not loaded.
    fn preloads(&mut self) {
        let examined = self.examined;
        // If the heap is loaded, a preload that failed is another library, which does not concern
        // the heap.
        let severity = if examined.has_loam() {
            Severity::Note
        } else {
            Severity::Fails
        };
        for preload in &examined.preloads {
            if let Some(failure) = &preload.failure {
                let what = format!("was to be preloaded and {}", failure.what);
                self.add(
                    "preload-failed",
                    severity,
                    &preload.entry,
                    what,
                    &failure.remedy,
                );
            }
        }
    }

    /// Libraries that are missing, or that need another malloc.
    fn libraries(&mut self) {
        for missing in &self.examined.missing {
            self.add(
                "missing-library",
                Severity::Fails,
                &missing.library,
                format!(
                    "is not in any folder in which the dynamic linker looks; {} needs it",
                    missing.asked_by
                ),
                "install the package that has it, or add its folder to LD_LIBRARY_PATH",
            );
        }
        let sanitized = self.linked().modules.iter().find_map(|module| {
            let sanitizer = module.file.as_ref()?.sanitizer?;
            Some((module.path.clone(), sanitizer))
        });
        if let Some((module, sanitizer)) = sanitized {
            self.add(
                "sanitizer",
                Severity::Fails,
                &module,
                format!(
                    "was built with {sanitizer}, which has a malloc of its own that it relies on"
                ),
                "test with the sanitizer or run on the heap, not both: build without -fsanitize",
            );
        }
    }

    /// Modules that can not be inspected, and allocators beside the heap.
    fn allocators(&mut self) {
        let modules = &self.examined.linked.modules;
        for (place, module) in modules.iter().enumerate() {
            let Some(file) = &module.file else {
                self.add(
                    "not-inspected",
                    Severity::Partial,
                    &module.path,
                    "can not be read, so what it uses can not be told".to_owned(),
                    "run loam as a user who may read it",
                );
                continue;
            };
            self.hidden(module, file);
            self.second_allocator(place, module, file);
        }
    }

    /// A file that hides its calls of malloc, or makes none.
    fn hidden(&mut self, module: &Module, file: &ObjectFile) {
        if file.is_blind {
            self.add(
                "not-inspected",
                Severity::Partial,
                &module.path,
                "has no section headers, so what it uses can not be told".to_owned(),
                "use a file that strip(1) and not sstrip(1) has made small",
            );
        }
        if file.image.is_go {
            self.add(
                "go-runtime",
                Severity::Partial,
                &module.path,
                "was built by the Go compiler: Go's objects come from Go's own heap, and only C \
                 code in it calls malloc"
                    .to_owned(),
                "nothing replaces Go's heap; GOGC and GOMEMLIMIT set it",
            );
        }
    }

    /// An allocator inside a module.
    fn second_allocator(&mut self, place: usize, module: &Module, file: &ObjectFile) {
        let examined = self.examined;
        let is_expected = module.is_system()
            || module.is_loam()
            || file.sanitizer.is_some()
            || module.namespace != 0;
        let inside = file.image.compiled_in;
        if is_expected || (file.image.own_malloc == OwnMalloc::None && inside.is_none()) {
            return;
        }
        if examined.is_static && inside.is_none() {
            return; // Its C library's.
        }
        let takes_over = examined.linked.first(Function::MALLOC, 0) == Some(place);
        if takes_over && examined.has_loam() {
            return; // Told as searched-first.
        }
        let asked_for = examined.linked.references(place);
        let (severity, what) = role_of(file, takes_over, asked_for.contains(&Function::MALLOC));
        self.add(
            "second-allocator",
            severity,
            &module.path,
            what,
            "build it without that allocator, so that it calls malloc (for Rust: no \
             #[global_allocator]; for a library: default visibility and no -Bsymbolic)",
        );
    }

    fn notes(&mut self) {
        let examined = self.examined;
        for module in &examined.linked.modules {
            let calls = module.file.as_ref().is_some_and(|file| file.calls_dlmopen);
            if examined.pid.is_none() && calls && !module.is_system() {
                self.add(
                    "opens-namespaces",
                    Severity::Note,
                    &module.path,
                    "calls dlmopen, and may load libraries that no preload reaches".to_owned(),
                    "check the running process: loam check PID",
                );
            }
            if module.is_loam() && module.path.ends_with(" (deleted)") {
                self.add(
                    "replaced-file",
                    Severity::Note,
                    &module.path,
                    "was replaced on disk since the program started, which goes on with the old one"
                        .to_owned(),
                    "start the program again to use the new one",
                );
            }
        }
    }

    /// Adds a finding if no other finding explains why the heap is absent.
    fn absence(&mut self) {
        let examined = self.examined;
        if examined.has_loam()
            || self
                .findings
                .iter()
                .any(|finding| finding.severity == Severity::Fails)
        {
            return;
        }
        let uses = examined.linked.first(Function::MALLOC, 0);
        let uses = uses.map(|place| examined.linked.modules[place].name().to_owned());
        self.add(
            "not-loaded",
            Severity::Fails,
            &examined.program.display().to_string(),
            format!(
                "is not on the heap: its malloc is that of {}",
                uses.as_deref().unwrap_or("nobody")
            ),
            "start it with `loam run`, or with LD_PRELOAD=libloam.so (full path), or link it with \
             -lloam first",
        );
    }
}

/// What the allocator in a file is used for.
fn role_of(file: &ObjectFile, takes_over: bool, asks_for_malloc: bool) -> (Severity, String) {
    let inside = file.image.compiled_in;
    let name = inside.map(|name| format!(" ({name})")).unwrap_or_default();
    let is_protected = file.exports.iter().any(|export| export.is_protected);
    let is_exported = file.image.own_malloc == OwnMalloc::Exported;
    if is_exported && takes_over {
        (
            Severity::Partial,
            format!("brings an allocator{name}, and the whole program uses it"),
        )
    } else if is_exported && asks_for_malloc {
        (
            Severity::Note,
            format!(
                "brings an allocator of its own{name}, which stands idle: malloc is the heap's"
            ),
        )
    } else if is_exported {
        let why = if file.is_symbolic {
            "it was linked with -Bsymbolic, so its own calls stay inside"
        } else if is_protected {
            "its symbols are protected, so its own calls stay inside"
        } else {
            "its own calls may have been bound inside it when it was linked"
        };
        (
            Severity::Partial,
            format!("brings an allocator of its own{name}: {why}"),
        )
    } else {
        (
            Severity::Partial,
            format!(
                "has an allocator compiled in{name}: its own code may use that and not the heap"
            ),
        )
    }
}
