//! What is wrong with a process's memory, how that shows, what to do, and what it would bring.
//!
//! ```text
//! View (mappings, counters) + glibc's heap + limits --> Evidence --.
//! the same again and again -----------------------> Growth --------+--> rules --> Diagnosis
//! ```
//!
//! A rule looks at a share *and* at bytes, so that neither a tiny program nor a tiny share is called sick. A finding is a
//! *fault* or a *note*: memory that lies outside of the heap, or that the kernel takes back by itself, explains a figure and
//! makes no program sick.

pub mod evidence;
pub mod growth;
mod rules;
pub mod stall;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use evidence::{Evidence, HeapEvidence};
pub use growth::Growth;

/// What a rule looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What the program holds grows and grows.
    Leak,
    /// Memory outside of the heap grows and grows.
    GrowthOutside,
    /// Free space between live blocks that no page can be taken from.
    Fragmentation,
    /// A few blocks at its end keep a heap from getting shorter.
    PinnedTop,
    /// Whole free pages that the heap keeps.
    KeptForReuse,
    /// Free memory in more arenas than there are cores.
    Arenas,
    /// Freed blocks that threads keep for themselves.
    Caches,
    /// Huge pages that reach over memory which is not in use.
    HugePageSlack,
    /// The control group's limit is near.
    MemoryLimit,
    /// More is swapped out than is good.
    Swapped,
    /// Freed already; the kernel takes it when it needs it.
    LazilyFreed,
    /// Held by the program and never written to.
    Untouched,
    /// Most memory is not the heap's.
    OutsideHeap,
}

impl Kind {
    /// Every kind, in the order of the list of what was ruled out.
    pub const ALL: [Kind; 13] = [
        Kind::Leak,
        Kind::GrowthOutside,
        Kind::Fragmentation,
        Kind::PinnedTop,
        Kind::KeptForReuse,
        Kind::Arenas,
        Kind::Caches,
        Kind::HugePageSlack,
        Kind::MemoryLimit,
        Kind::Swapped,
        Kind::LazilyFreed,
        Kind::Untouched,
        Kind::OutsideHeap,
    ];

    /// What people call it.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Leak => "growth of what the program holds",
            Kind::GrowthOutside => "growth outside of the heap",
            Kind::Fragmentation => "fragmentation",
            Kind::PinnedTop => "a heap kept long by its last blocks",
            Kind::KeptForReuse => "free pages kept",
            Kind::Arenas => "too many arenas",
            Kind::Caches => "freed blocks in threads' caches",
            Kind::HugePageSlack => "huge pages over unused memory",
            Kind::MemoryLimit => "the memory limit",
            Kind::Swapped => "swapping",
            Kind::LazilyFreed => "lazily freed pages",
            Kind::Untouched => "memory that was never touched",
            Kind::OutsideHeap => "memory outside of the heap",
        }
    }

    /// Whether it makes a program sick, or only explains a figure.
    pub fn is_fault(self) -> bool {
        !matches!(
            self,
            Kind::LazilyFreed | Kind::Untouched | Kind::OutsideHeap
        )
    }
}

/// Something that a rule found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// Whether it makes the program sick.
    pub is_fault: bool,
    /// In plain words.
    pub verdict: String,
    /// The figures behind it.
    pub evidence: Vec<String>,
    /// What to do.
    pub remedy: String,
    /// What that would bring, in bytes; none where that can not be known.
    pub gain_bytes: Option<u64>,
    /// The bytes that it is about: what findings are ordered by.
    pub bytes: u64,
}

/// A rule that found nothing, or could not look.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuledOut {
    /// What.
    pub kind: Kind,
    /// The figure that says so, or why nothing was seen.
    pub why: String,
    /// False: nothing was seen, so it may be there.
    pub was_looked_at: bool,
}

/// The doctor's answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Faults first, the largest first.
    pub findings: Vec<Finding>,
    /// What was not found.
    pub ruled_out: Vec<RuledOut>,
}

impl Diagnosis {
    /// Judges. `growth`: what several looks showed, if there were several.
    pub fn of(evidence: &Evidence, growth: Option<&Growth>) -> Diagnosis {
        let mut findings = Vec::new();
        let mut ruled_out = Vec::new();
        for kind in Kind::ALL {
            match rules::apply(kind, evidence, growth) {
                Ok(finding) => findings.push(finding),
                Err(out) => ruled_out.push(out),
            }
        }
        findings.sort_by_key(|finding| (!finding.is_fault, std::cmp::Reverse(finding.bytes)));
        Diagnosis {
            findings,
            ruled_out,
        }
    }

    /// Whether a fault was found.
    pub fn is_sick(&self) -> bool {
        self.findings.iter().any(|finding| finding.is_fault)
    }
}
