//! Finds out what is wrong with a process's memory: the evidence, the remedy, and what the remedy
//! would save.
//!
//! ```text
//! View (mappings, counters) + glibc's heap + limits --> Evidence --.
//! the same again and again -----------------------> Growth --------+--> rules --> Diagnosis
//! ```
//!
//! A rule looks at a share *and* at bytes, so that neither a tiny program nor a tiny share counts
//! as sick. A finding is a *fault* or a *note*. A note explains a figure and makes no program sick:
//! for instance memory outside of the heap, or memory that the kernel takes back by itself.

pub mod evidence;
mod examine;
pub mod growth;
mod python;
mod rules;
mod spans;
pub mod stall;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use evidence::{Evidence, HeapEvidence};
pub use examine::Examined;
pub use growth::Growth;
pub use python::PythonPools;

/// The subject of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The program's live memory grows steadily.
    Leak,
    /// Memory outside of the heap grows steadily.
    GrowthOutside,
    /// The program writes to memory that it shares since a `fork()`, and gets copies.
    Copies,
    /// Free space between live blocks, in pieces without a whole page.
    Fragmentation,
    /// A few blocks at the end of a heap keep it from shrinking.
    PinnedTop,
    /// Whole free pages that the heap keeps.
    KeptForReuse,
    /// Free memory in more arenas than there are cores.
    Arenas,
    /// Freed blocks that threads keep in their caches.
    Caches,
    /// Huge pages that cover unused memory.
    HugePageSlack,
    /// Stacks in huge pages, locked in memory, or of threads that ended.
    Stacks,
    /// Arenas of CPython's own allocator that few live objects keep.
    PythonArenas,
    /// Files in memory that only descriptors hold.
    HeldFiles,
    /// The control group's limit is near.
    MemoryLimit,
    /// A harmful amount of memory is swapped out.
    Swapped,
    /// Memory that was freed already; the kernel takes it when it needs it.
    LazilyFreed,
    /// Live memory that the program never wrote to.
    Untouched,
    /// Most memory lies outside of the heap.
    OutsideHeap,
}

impl Kind {
    /// Every kind, in the order in which the answer lists what was ruled out.
    pub const ALL: [Kind; 17] = [
        Kind::Leak,
        Kind::GrowthOutside,
        Kind::Copies,
        Kind::Fragmentation,
        Kind::PinnedTop,
        Kind::KeptForReuse,
        Kind::Arenas,
        Kind::Caches,
        Kind::HugePageSlack,
        Kind::Stacks,
        Kind::PythonArenas,
        Kind::HeldFiles,
        Kind::MemoryLimit,
        Kind::Swapped,
        Kind::LazilyFreed,
        Kind::Untouched,
        Kind::OutsideHeap,
    ];

    /// The name for people.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Leak => "growth of what the program holds",
            Kind::GrowthOutside => "growth outside of the heap",
            Kind::Copies => "copies of shared pages",
            Kind::Fragmentation => "fragmentation",
            Kind::PinnedTop => "a heap kept long by its last blocks",
            Kind::KeptForReuse => "free pages kept",
            Kind::Arenas => "too many arenas",
            Kind::Caches => "freed blocks in threads' caches",
            Kind::HugePageSlack => "huge pages over unused memory",
            Kind::Stacks => "stacks",
            Kind::PythonArenas => "sparse arenas of CPython",
            Kind::HeldFiles => "files in memory that are not mapped",
            Kind::MemoryLimit => "the memory limit",
            Kind::Swapped => "swapping",
            Kind::LazilyFreed => "lazily freed pages",
            Kind::Untouched => "memory that was never touched",
            Kind::OutsideHeap => "memory outside of the heap",
        }
    }

    /// Whether the kind is growth, which ends a program in the end.
    pub fn is_growth(self) -> bool {
        matches!(self, Kind::Leak | Kind::GrowthOutside | Kind::Copies)
    }

    /// Whether the kind is a fault; otherwise it only explains a figure.
    pub fn is_fault(self) -> bool {
        !matches!(
            self,
            Kind::LazilyFreed | Kind::Untouched | Kind::OutsideHeap
        )
    }
}

/// The finding of a rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The kind.
    pub kind: Kind,
    /// Whether it makes the program sick.
    pub is_fault: bool,
    /// The verdict in plain words.
    pub verdict: String,
    /// The figures behind it.
    pub evidence: Vec<String>,
    /// The remedy.
    pub remedy: String,
    /// Bytes that the remedy would save; none if that can not be known.
    pub gain_bytes: Option<u64>,
    /// Bytes that it would save at least; none if that can not be known.
    pub gain_least_bytes: Option<u64>,
    /// The bytes of the finding: of growth what was added while it was watched.
    pub bytes: u64,
}

/// A rule that found nothing, or could not look.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuledOut {
    /// The kind.
    pub kind: Kind,
    /// The figure that shows it, or the reason why the rule could not look.
    pub why: String,
    /// False: the rule could not look, so the fault may exist.
    pub was_looked_at: bool,
}

/// The doctor's answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// Faults first, of these growth first, and then the largest first.
    pub findings: Vec<Finding>,
    /// The kinds that were not found.
    pub ruled_out: Vec<RuledOut>,
    /// Why no verdict is possible, and what would make it possible. None: what was seen is enough.
    pub unknown: Option<Unknown>,
}

/// What was not seen, and could hide a fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unknown {
    /// In words.
    pub what: String,
    /// What would tell.
    pub remedy: String,
}

impl Diagnosis {
    /// Judges the evidence. `growth`: the looks of a watch, if there was one.
    pub fn of(evidence: &Evidence, growth: Option<&Growth>) -> Diagnosis {
        let mut findings = Vec::new();
        let mut ruled_out = Vec::new();
        for kind in Kind::ALL {
            match rules::apply(kind, evidence, growth) {
                Ok(finding) => findings.push(finding),
                Err(out) => ruled_out.push(out),
            }
        }
        findings.sort_by_key(|finding| {
            let order = (finding.is_fault, finding.kind.is_growth(), finding.bytes);
            std::cmp::Reverse(order)
        });
        let is_sick = findings.iter().any(|finding| finding.is_fault);
        let unknown = (!is_sick)
            .then(|| rules::unknown(evidence, growth))
            .flatten();
        Diagnosis {
            findings,
            ruled_out,
            unknown,
        }
    }

    /// Whether nothing is wrong, and enough was seen to say so.
    pub fn is_healthy(&self) -> bool {
        !self.is_sick() && self.unknown.is_none()
    }

    /// Whether a fault was found.
    pub fn is_sick(&self) -> bool {
        self.findings.iter().any(|finding| finding.is_fault)
    }
}
