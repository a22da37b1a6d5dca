//! What live blocks say to a diagnosis: which types grow, and what CPython's own allocator keeps.

use std::time::Duration;

use loam_counters::diagnosis::{Diagnosis, Evidence, Kind, PythonPools};
use loam_format::plain;
use loam_process::apart;

use crate::census::{Census, Wanted};
use crate::diff::{self, Change};
use crate::document;
use crate::python;
use crate::target::Live;

/// A census of a larger heap takes more time and memory than a doctor's visit should.
const LARGEST_CENSUS: u64 = 8 << 30;
/// How many rows of growth the finding names.
const ROWS_NAMED: usize = 3;

/// What the live blocks are, where that can be told at a moderate cost.
pub fn census_of(evidence: &Evidence, between: Option<Duration>) -> Option<Census> {
    let heap = evidence.heap.as_ref().ok()?;
    let room = evidence.limits.memory.map_or(u64::MAX, |limit| limit / 4);
    let is_moderate = !heap.is_peer && heap.live <= LARGEST_CENSUS.min(room);
    let wanted = Wanted {
        wait: between,
        content: false,
    };
    is_moderate.then(|| document::of_process(evidence.pid, wanted).ok())?
}

/// Says which types grow and how they are reached, if what the program holds grows.
pub fn name_growth(
    diagnosis: &mut Diagnosis,
    evidence: &Evidence,
    before: &Census,
) -> Option<Vec<Change>> {
    let finding = diagnosis
        .findings
        .iter_mut()
        .find(|one| one.kind == Kind::Leak)?;
    let after = census_of(evidence, Some(document::BETWEEN))?;
    let mut changes = diff::of(before, &after);
    changes.retain(|one| one.bytes > 0);
    let words = changes.iter().filter_map(Change::in_words);
    let words = words.map(|text| plain::line(&text).into_owned());
    finding.evidence.extend(words.take(ROWS_NAMED));
    if let Some(first) = changes.first() {
        finding.remedy = format!(
            "look at what makes {}: {}",
            plain::line(&first.title()),
            finding.remedy
        );
    }
    changes.truncate(20);
    Some(changes)
}

/// What CPython's own allocator keeps. Apart from this thread: reading a stranger's memory may
/// never end.
pub fn pools_of(evidence: &Evidence) -> Option<PythonPools> {
    evidence
        .runtime
        .filter(|runtime| runtime.name == "Python")?;
    let pid = evidence.pid;
    let found = apart::within(move || {
        let live = Live::open(pid).ok()?;
        python::of_process(&live)
    });
    let pools = found.ok()??;
    Some(PythonPools {
        arenas: pools.arenas,
        bytes: pools.pool_bytes,
        blocks: pools.blocks,
        live_bytes: pools.block_bytes,
        sparse_arenas: pools.sparse_arenas,
        sparse_bytes: pools.sparse_bytes,
        free_page_bytes: pools.free_page_bytes,
    })
}
