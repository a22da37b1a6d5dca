//! One line in plain words: the largest part of a process's memory.
//!
//! Thresholds are chosen. A quarter of the resident set in one kind of overhead deserves the
//! headline even if live blocks are more, since live blocks are what memory is for. An overhead
//! below a MiB needs no action, whatever its share.

use serde::Serialize;

use loam_format::units::bytes;
use loam_process::residence::Kind;

use crate::account::{Account, Share};
use crate::view::View;

/// The subject of the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Live blocks of the program.
    Live,
    /// Free space between live blocks.
    Fragmentation,
    /// Freed blocks that threads keep.
    Cached,
    /// Free pages kept for the next request.
    Retained,
    /// The heap's own records.
    Records,
    /// Memory that was given up already; the kernel takes it when it needs it.
    LazilyFreed,
    /// Outside of any heap.
    OutsideHeap,
    /// Memory of an allocator that does not report its live bytes.
    OpaqueHeap,
    /// More memory is swapped out than is resident.
    Swapped,
    /// Resident beyond what the heap counts: huge pages over holes.
    Uncounted,
}

/// The verdict with its sentence.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// The verdict for programs.
    pub finding: Finding,
    /// The verdict for people.
    pub sentence: String,
}

const WORTH_A_HEADLINE: f64 = 0.25;
const WORTH_ACTING: u64 = 1 << 20;

/// Judges a process.
pub fn of(view: &View) -> Verdict {
    let account = &view.account;
    let total = view.residence.total();
    if total.swapped > account.resident {
        return Verdict {
            finding: Finding::Swapped,
            sentence: format!(
                "more is swapped out than resident: {} against {}; counters and pauses alike \
                 depend on the disk",
                bytes(total.swapped as f64),
                bytes(account.resident as f64)
            ),
        };
    }
    if is_headline(total.lazily_freed, account.resident) {
        return Verdict {
            finding: Finding::LazilyFreed,
            sentence: format!(
                "{} is freed already (MADV_FREE) and only counted as resident until the kernel \
                 needs it",
                part(total.lazily_freed, account.resident)
            ),
        };
    }
    match view.snapshot() {
        Some(snapshot) if snapshot.is_accounted() => on_loam(account),
        _ => elsewhere(view),
    }
}

fn is_headline(amount: u64, resident: u64) -> bool {
    amount >= WORTH_ACTING && amount as f64 >= WORTH_A_HEADLINE * resident as f64
}

/// `45.2 MiB of 143 MiB resident (32%)`
fn part(amount: u64, resident: u64) -> String {
    let percent = 100.0 * amount as f64 / (resident.max(1)) as f64;
    format!(
        "{} of {} resident ({percent:.0}%)",
        bytes(amount as f64),
        bytes(resident as f64)
    )
}

fn on_loam(account: &Account) -> Verdict {
    let resident = account.resident;
    let live = account.bytes(Share::Live);
    let overheads = [
        (Finding::Fragmentation, Share::FreeInSpans),
        (Finding::Cached, Share::Cached),
        (Finding::Retained, Share::Retained),
        (Finding::Records, Share::System(Kind::LoamMetadata)),
        (Finding::Uncounted, Share::Uncounted),
    ];
    let worst = overheads
        .map(|(finding, share)| (finding, account.bytes(share)))
        .into_iter()
        .filter(|(_, amount)| is_headline(*amount, resident))
        .max_by_key(|(_, amount)| *amount);
    if let Some((finding, amount)) = worst {
        let what = match finding {
            Finding::Fragmentation => "is free space between live blocks (fragmentation)",
            Finding::Cached => "is in freed blocks that threads keep for themselves",
            Finding::Retained => {
                "is free pages kept for the next peak; they go back step by step, and at once with \
                 malloc_trim(0)"
            }
            Finding::Records => "is the heap's own records",
            _ => "is resident beyond what the heap counts: huge pages over free ones, most likely",
        };
        return Verdict {
            finding,
            sentence: format!(
                "{} {what}; live blocks are {}",
                part(amount, resident),
                bytes(live as f64)
            ),
        };
    }
    let outside = outside_heap(account);
    if outside > live {
        let (what, most) = largest_outside(account);
        return Verdict {
            finding: Finding::OutsideHeap,
            sentence: format!(
                "{} is not the heap: {} is {what}; live blocks are {}",
                part(outside, resident),
                bytes(most as f64),
                bytes(live as f64)
            ),
        };
    }
    Verdict {
        finding: Finding::Live,
        sentence: format!(
            "{} is live: blocks that the program holds; the heap's overhead is {}",
            part(live, resident),
            bytes(account.heap_overhead() as f64)
        ),
    }
}

fn outside_heap(account: &Account) -> u64 {
    let outside = account.lines.iter().filter(|(share, _)| !share.is_loam());
    outside.map(|(_, bytes)| *bytes).sum()
}

fn largest_outside(account: &Account) -> (&'static str, u64) {
    let outside = account.lines.iter().filter(|(share, _)| !share.is_loam());
    let most = outside.max_by_key(|(_, bytes)| *bytes);
    most.map_or(("nothing", 0), |(share, bytes)| (share.title(), *bytes))
}

fn elsewhere(view: &View) -> Verdict {
    let resident = view.account.resident;
    let heaps = view
        .residence
        .resident_of(&[Kind::Heap, Kind::Anonymous, Kind::LoamHeap]);
    let (what, most) = largest_outside(&view.account);
    if heaps.saturating_mul(2) < resident {
        return Verdict {
            finding: Finding::OutsideHeap,
            sentence: format!(
                "{} is {what}; its heap can be no more than {}",
                part(most, resident),
                bytes(heaps as f64)
            ),
        };
    }
    let allocator = view
        .allocator
        .as_ref()
        .map_or("its allocator", |found| found.name.as_str());
    let holder = match view.runtime {
        Some(runtime) => format!("{} or {allocator}", runtime.heap),
        None => allocator.to_owned(),
    };
    Verdict {
        finding: Finding::OpaqueHeap,
        sentence: format!(
            "{} is private memory, most likely of {holder}; `loam doctor {}` says more",
            part(heaps, resident),
            view.identity.key.pid
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn verdict(lines: &[(Share, u64)]) -> Verdict {
        on_loam(&Account {
            resident: lines.iter().map(|(_, bytes)| *bytes).sum(),
            lines: lines.to_vec(),
            ..Account::default()
        })
    }

    #[test]
    fn the_headline_names_what_one_would_act_on() {
        use Share::*;
        for (lines, finding, said) in [
            (
                vec![(Live, 80 * MIB), (FreeInSpans, 10 * MIB)],
                Finding::Live,
                "80.0 MiB of 90.0 MiB",
            ),
            (
                vec![(Live, 60 * MIB), (FreeInSpans, 30 * MIB)],
                Finding::Fragmentation,
                "(33%)",
            ),
            (
                vec![(Live, 10 * MIB), (Cached, 9 * MIB)],
                Finding::Cached,
                "threads keep",
            ),
            (
                vec![(Live, 10 * MIB), (Retained, 50 * MIB)],
                Finding::Retained,
                "malloc_trim",
            ),
            (
                vec![(Live, 10 * MIB), (System(Kind::File), 30 * MIB)],
                Finding::OutsideHeap,
                "program and other files",
            ),
            // An overhead below a MiB is not reported, whatever its share.
            (
                vec![(Live, MIB / 2), (Cached, MIB / 2)],
                Finding::Live,
                "is live",
            ),
            (
                vec![(Live, 10 * MIB), (Retained, 30 * MIB)],
                Finding::Retained,
                "live blocks are 10.0 MiB",
            ),
        ] {
            let found = verdict(&lines);
            assert_eq!(found.finding, finding, "{}", found.sentence);
            assert!(found.sentence.contains(said), "{}", found.sentence);
        }
    }

    #[test]
    fn nothing_at_all_is_judged_without_a_fault() {
        assert_eq!(verdict(&[]).finding, Finding::Live);
    }
}
