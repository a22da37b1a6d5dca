//! The rules, one function each. A rule returns a finding, or the reason why there is none.

use loam_format::units::bytes;
use loam_format::words;

use super::evidence::{Evidence, HeapEvidence, PRIVATE};
use super::growth::{Growth, Rise};
use super::{Finding, Kind, RuledOut};

/// A share of the resident memory worth acting on. Chosen: what a new allocator or a setting commonly saves.
const SHARE: f64 = 0.25;
/// An amount below this is not worth a person's time. Chosen: about what a small program needs in all.
const BYTES: u64 = 8 << 20;
/// The last blocks of a heap are few if they are less than this share of the memory that they keep.
const FEW: f64 = 0.05;
/// A group is in danger if it uses this share of its limit.
const NEAR_LIMIT: f64 = 0.9;
/// A program has too many arenas if it reaches both this number and the number for each core. glibc makes up to 8 a
/// core, and with half of them threads rarely meet at a lock.
const MANY_ARENAS: usize = 8;
const ARENAS_A_CORE: usize = 4;
/// How many of the block sizes that grew most a finding names.
const SIZES_NAMED: usize = 3;

type Answer = Result<Finding, RuledOut>;

/// Applies the rule for a kind.
pub fn apply(kind: Kind, evidence: &Evidence, growth: Option<&Growth>) -> Answer {
    match kind {
        Kind::Leak => leak(evidence, growth),
        Kind::GrowthOutside => growth_outside(growth),
        Kind::Fragmentation => with_heap(kind, evidence, fragmentation),
        Kind::PinnedTop => with_heap(kind, evidence, pinned_top),
        Kind::KeptForReuse => with_heap(kind, evidence, kept_for_reuse),
        Kind::Arenas => with_heap(kind, evidence, arenas),
        Kind::Caches => with_heap(kind, evidence, caches),
        Kind::HugePageSlack => with_heap(kind, evidence, huge_page_slack),
        Kind::MemoryLimit => memory_limit(evidence),
        Kind::Swapped => swapped(evidence),
        Kind::LazilyFreed => lazily_freed(evidence),
        Kind::Untouched => with_heap(kind, evidence, untouched),
        Kind::OutsideHeap => outside_heap(evidence),
    }
}

fn with_heap(
    kind: Kind,
    evidence: &Evidence,
    rule: fn(&Evidence, &HeapEvidence) -> Answer,
) -> Answer {
    match &evidence.heap {
        Ok(heap) if heap.untold.contains(&kind) => Err(unseen(
            kind,
            format!("{} does not tell it", evidence.allocator),
        )),
        Ok(heap) => rule(evidence, heap),
        Err(reason) => Err(unseen(kind, reason)),
    }
}

fn out(kind: Kind, why: impl Into<String>) -> RuledOut {
    RuledOut {
        kind,
        why: why.into(),
        was_looked_at: true,
    }
}

fn unseen(kind: Kind, why: impl Into<String>) -> RuledOut {
    RuledOut {
        kind,
        why: why.into(),
        was_looked_at: false,
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * share(part, whole))
}

/// `12.0 MiB, 31 % of the 39.0 MiB that are resident`
fn part(amount: u64, evidence: &Evidence) -> String {
    format!(
        "{}, {} of the {} that are resident",
        show(amount),
        percent(amount, evidence.resident),
        show(evidence.resident)
    )
}

fn show(amount: u64) -> String {
    bytes(amount as f64)
}

/// Whether the amount is worth acting on.
fn matters(amount: u64, evidence: &Evidence) -> bool {
    amount >= BYTES && share(amount, evidence.resident) >= SHARE
}

/// `1.2 MiB (3 %)`: too little to matter.
fn little(kind: Kind, amount: u64, evidence: &Evidence) -> RuledOut {
    out(
        kind,
        format!("{} ({})", show(amount), percent(amount, evidence.resident)),
    )
}

fn is_glibc(evidence: &Evidence) -> bool {
    evidence.allocator.starts_with("glibc")
}

impl Finding {
    fn without_gain(self) -> Finding {
        Finding {
            gain_bytes: None,
            ..self
        }
    }
}

fn finding(
    kind: Kind,
    amount: u64,
    verdict: String,
    evidence: Vec<String>,
    remedy: String,
) -> Finding {
    Finding {
        kind,
        is_fault: kind.is_fault(),
        verdict,
        evidence,
        remedy,
        gain_bytes: Some(amount),
        bytes: amount,
    }
}

// ---- What several looks show ----------------------------------------------------------------------

/// The growth, or the reason why it can not be judged.
fn watched(
    kind: Kind,
    growth: Option<&Growth>,
    rise: impl Fn(&Growth) -> Option<Rise>,
) -> Result<(&Growth, Rise), RuledOut> {
    let growth = growth.ok_or_else(|| {
        unseen(
            kind,
            "one look shows no growth; `--watch 30` looks for half a minute",
        )
    })?;
    if !growth.is_enough() {
        return Err(unseen(kind, "the watch was too short; watch longer"));
    }
    match rise(growth) {
        Some(rise) => Ok((growth, rise)),
        None => Err(out(
            kind,
            format!("none in {:.0} s", growth.duration().as_secs_f64()),
        )),
    }
}

fn leak(evidence: &Evidence, growth: Option<&Growth>) -> Answer {
    if let Err(reason) = &evidence.heap {
        return Err(unseen(Kind::Leak, reason));
    }
    let (growth, rise) = watched(Kind::Leak, growth, Growth::live)?;
    let sizes = growth.sizes();
    let named = sizes
        .iter()
        .take(SIZES_NAMED)
        .map(|(size, grown)| format!("blocks of up to {} grew by {}", show(*size), show(*grown)));
    let mut figures = vec![format!(
        "the least that it held rose by {} in {:.0} s, through nearly all of {} looks",
        show(rise.bytes),
        growth.duration().as_secs_f64(),
        growth.count()
    )];
    figures.extend(named);
    Ok(Finding {
        kind: Kind::Leak,
        is_fault: true,
        verdict: format!(
            "what the program holds grows by {} a second: it allocates more than it frees",
            show(rise.rate as u64)
        ),
        evidence: figures,
        remedy: "find who allocates the sizes that grow (a heap profiler's stacks), and free them or bound what holds them; \
                 no setting of an allocator helps. If the program is still filling its caches, watch it again later"
            .to_owned(),
        gain_bytes: None,
        bytes: u64::MAX,
    })
}

fn growth_outside(growth: Option<&Growth>) -> Answer {
    let (growth, rise) = watched(Kind::GrowthOutside, growth, Growth::outside)?;
    Ok(Finding {
        kind: Kind::GrowthOutside,
        is_fault: true,
        verdict: format!("memory outside of the heap grows by {} a second", show(rise.rate as u64)),
        evidence: vec![format!(
            "resident memory that no heap holds rose by {} in {:.0} s",
            show(rise.bytes),
            growth.duration().as_secs_f64()
        )],
        remedy: "look for mmap() without munmap(), for files that are mapped and read, for threads that are not joined and for \
                 shared memory; malloc has no part in it"
            .to_owned(),
        gain_bytes: None,
        bytes: rise.bytes,
    })
}

// ---- What the heap shows --------------------------------------------------------------------------

fn fragmentation(evidence: &Evidence, heap: &HeapEvidence) -> Answer {
    if !matters(heap.between, evidence) {
        return Err(little(Kind::Fragmentation, heap.between, evidence));
    }
    Ok(finding(
        Kind::Fragmentation,
        heap.between,
        format!("the heap is fragmented: {} are free space between live blocks", part(heap.between, evidence)),
        vec![
            format!("live blocks hold {}", show(heap.live - heap.live.min(heap.untouched))),
            if heap.trim.between != 0 {
                format!(
                    "malloc_trim(0) would take about {} of the free pieces, in pages that are free as a whole",
                    show(heap.trim.between.min(heap.between))
                )
            } else {
                "the free pieces hold no whole page, so neither malloc_trim() nor the system can take them".to_owned()
            },
        ],
        format!(
            "blocks that live long lie among blocks that do not. In the program: allocate what lives long at one time, or in a \
             private heap. Whether another allocator leaves fewer holes{} can be measured: `loam record`, then `loam replay`",
            if is_glibc(evidence) { ", Loam for one," } else { "" }
        ),
    )
    .without_gain())
}

fn pinned_top(evidence: &Evidence, heap: &HeapEvidence) -> Answer {
    let Some((hole, behind)) = heap.pinned else {
        return Err(out(
            Kind::PinnedTop,
            "this heap has no end that blocks could hold",
        ));
    };
    let is_pinned =
        matters(hole.min(heap.kept()), evidence) && (behind.bytes as f64) < FEW * hole as f64;
    if !is_pinned {
        return Err(out(
            Kind::PinnedTop,
            format!("the longest hole of the main arena is {}", show(hole)),
        ));
    }
    Ok(finding(
        Kind::PinnedTop,
        hole.min(heap.kept()),
        format!(
            "{} at the end of the heap keep {} below them: the heap can only get shorter from its end",
            words::count(behind.count as usize, "block"),
            part(hole.min(heap.kept()), evidence)
        ),
        vec![format!(
            "behind a hole of {} lie {} in {}",
            show(hole),
            show(behind.bytes),
            words::count(behind.count as usize, "block")
        )],
        format!(
            "call malloc_trim(0) after the peak: it takes pages out of the middle, too, here in about {:.1} ms; or allocate what \
             stays before what goes",
            heap.trim.milliseconds
        ),
    ))
}

fn kept_for_reuse(evidence: &Evidence, heap: &HeapEvidence) -> Answer {
    if !matters(heap.kept(), evidence) {
        return Err(little(Kind::KeptForReuse, heap.kept(), evidence));
    }
    // More specific rules take precedence.
    if huge_page_slack(evidence, heap).is_ok() {
        return Err(out(Kind::KeptForReuse, "named above"));
    }
    if let Ok(pinned) = pinned_top(evidence, heap) {
        if pinned.bytes * 2 > heap.kept() {
            return Err(out(Kind::KeptForReuse, "named above"));
        }
    }
    let remedy = if heap.is_peer {
        format!(
            "{} gives them back as its settings say (jemalloc: MALLOC_CONF=dirty_decay_ms:0; tcmalloc: TCMALLOC_RELEASE_RATE=10); \
             `loam record` and `loam advise` measure what that brings and costs",
            evidence.allocator
        )
    } else if heap.purges {
        "malloc_trim(0) gives them back at once. Loam does so in its calls, a second or some after a peak: a program that is silent \
         needs LOAM_BACKGROUND_PURGE=on"
            .to_owned()
    } else {
        format!(
            "malloc_trim(0) would give them back and hold up the program's allocations for about {:.1} ms. glibc does not do so by \
             itself: call it when a peak is over, or run on a heap that does: `LOAM_BACKGROUND_PURGE=on loam run -- ...`",
            heap.trim.milliseconds
        )
    };
    Ok(finding(
        Kind::KeptForReuse,
        heap.kept(),
        format!(
            "the heap keeps whole free pages: {}",
            part(heap.kept(), evidence)
        ),
        vec![
            format!(
                "live blocks hold {}",
                show(heap.live - heap.live.min(heap.untouched))
            ),
            format!(
                "to take them back would need about {:.1} ms",
                heap.trim.milliseconds
            ),
        ],
        remedy,
    ))
}

fn arenas(evidence: &Evidence, heap: &HeapEvidence) -> Answer {
    let cores = evidence.limits.usable_cores() as usize;
    let others = heap.arenas.get(1..).unwrap_or_default();
    let free: u64 = others.iter().map(|arena| arena.free_bytes).sum();
    let count = words::count(heap.arenas.len(), "arena");
    if heap.arenas.is_empty() {
        return Err(out(Kind::Arenas, "this heap has no arenas"));
    }
    if heap.arenas.len() < MANY_ARENAS.max(ARENAS_A_CORE * cores) || !matters(free, evidence) {
        let said = format!(
            "{count} for {}; {} free in all but the main one",
            words::count(cores, "core"),
            show(free)
        );
        return Err(out(Kind::Arenas, said));
    }
    let mut figures = vec![
        format!(
            "{count}, and the program can use {}",
            words::count(cores, "core")
        ),
        format!("in all but the main one {} are free", show(free)),
    ];
    if evidence.limits.cores as usize > cores {
        figures.push(format!(
            "glibc allows 8 arenas for each of the {} cores that it sees; the limit of its control group is {cores}",
            evidence.limits.cores
        ));
    }
    Ok(finding(
        Kind::Arenas,
        free,
        format!("too many arenas strand free memory: {}", part(free, evidence)),
        figures,
        format!(
            "start it with GLIBC_TUNABLES=glibc.malloc.arena_max={}, or on a heap whose threads share free memory: `loam run -- ...`",
            cores.max(2)
        ),
    ))
}

fn caches(evidence: &Evidence, heap: &HeapEvidence) -> Answer {
    if !matters(heap.cached, evidence) {
        return Err(little(Kind::Caches, heap.cached, evidence));
    }
    let remedy = if is_glibc(evidence) {
        "fewer threads, or GLIBC_TUNABLES=glibc.malloc.tcache_count=1; malloc_trim(0) joins what the fast bins keep"
    } else {
        "fewer threads; a thread's cache goes back when the thread ends or allocates little for a while"
    };
    Ok(finding(
        Kind::Caches,
        heap.cached,
        format!(
            "threads keep freed blocks for themselves: {}",
            part(heap.cached, evidence)
        ),
        match heap.caches {
            0 => Vec::new(),
            caches => vec![format!(
                "{} keep some",
                words::count(caches as usize, "cache")
            )],
        },
        remedy.to_owned(),
    ))
}

fn untouched(evidence: &Evidence, heap: &HeapEvidence) -> Answer {
    let held = heap.live.max(1);
    if heap.untouched < BYTES || share(heap.untouched, held) < SHARE {
        return Err(out(
            Kind::Untouched,
            format!("{} of what the program holds", show(heap.untouched)),
        ));
    }
    Ok(finding(
        Kind::Untouched,
        heap.untouched,
        format!(
            "{} of the {} that the program holds were never written to, and take no memory",
            show(heap.untouched),
            show(heap.live)
        ),
        vec![format!("resident are {} in all", show(evidence.resident))],
        "none is needed; a program that counts what it asks for sees more than it uses".to_owned(),
    ))
}

// ---- What the system shows ------------------------------------------------------------------------

/// Resident bytes without a block, in a heap in huge pages: those behind the last blocks. If the heap is mostly in
/// huge pages, its free pages count too, because they go and come back two MiB at a time.
fn slack(evidence: &Evidence, heap: &HeapEvidence) -> u64 {
    let is_huge = evidence.huge >= heap.resident / 2;
    let free = if is_huge { heap.kept() } else { 0 };
    (heap.top + free).min(evidence.huge)
}

fn huge_page_slack(evidence: &Evidence, heap: &HeapEvidence) -> Answer {
    let slack = slack(evidence, heap);
    if !matters(slack, evidence) {
        return Err(little(Kind::HugePageSlack, slack, evidence));
    }
    Ok(finding(
        Kind::HugePageSlack,
        slack,
        format!("huge pages reach over memory that is not in use: {}", part(slack, evidence)),
        vec![
            format!("{} lie in huge pages", show(evidence.huge)),
            "free pages among blocks come back with each huge page that the kernel makes of their neighbourhood".to_owned(),
        ],
        "let it have huge pages only where it asks for them (`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`), and          leave glibc.malloc.hugetlb off; a trim helps until the kernel fills the gaps again"
            .to_owned(),
    ))
}

fn memory_limit(evidence: &Evidence) -> Answer {
    let limits = &evidence.limits;
    let (Some(limit), Some(used)) = (limits.memory, limits.memory_used) else {
        return Err(out(Kind::MemoryLimit, "its control group has none"));
    };
    let is_ours = share(evidence.resident, limit) >= SHARE;
    if share(used, limit) < NEAR_LIMIT || !is_ours {
        return Err(out(
            Kind::MemoryLimit,
            format!("{} of {}", show(used), show(limit)),
        ));
    }
    let free = evidence
        .heap
        .as_ref()
        .map_or(0, |heap| heap.kept() + heap.cached);
    Ok(Finding {
        kind: Kind::MemoryLimit,
        is_fault: true,
        verdict: format!(
            "its control group is near its limit: {} of {}",
            show(used),
            show(limit)
        ),
        evidence: vec![format!(
            "this process has {} of it resident",
            show(evidence.resident)
        )],
        remedy: format!(
            "raise the limit, or lower what the other findings name; {} of the heap are free",
            show(free)
        ),
        gain_bytes: None,
        bytes: used,
    })
}

fn swapped(evidence: &Evidence) -> Answer {
    let whole = evidence.resident + evidence.swapped;
    if evidence.swapped < BYTES || share(evidence.swapped, whole) < SHARE {
        return Err(out(
            Kind::Swapped,
            format!("{} swapped out", show(evidence.swapped)),
        ));
    }
    Ok(Finding {
        kind: Kind::Swapped,
        is_fault: true,
        verdict: format!(
            "{} are swapped out, beside {} resident",
            show(evidence.swapped),
            show(evidence.resident)
        ),
        evidence: vec!["each touch of a page that is out waits for the disk".to_owned()],
        remedy: "more memory for the machine or the container, or less in the programs beside it"
            .to_owned(),
        gain_bytes: None,
        bytes: evidence.swapped,
    })
}

fn lazily_freed(evidence: &Evidence) -> Answer {
    let kind = Kind::LazilyFreed;
    let Some(freed) = evidence.lazily_freed else {
        // Neither glibc nor Loam frees in this way.
        let most = evidence.private_outside();
        if !matters(most, evidence) {
            let share = percent(most, evidence.resident);
            return Err(out(kind, format!("at most {} ({share})", show(most))));
        }
        return Err(unseen(
            kind,
            "the system counts them mapping by mapping, and holds up what the program maps meanwhile: for more than a \
             millisecond with mappings this large. `grep LazyFree /proc/PID/smaps_rollup` shows them",
        ));
    };
    if !matters(freed, evidence) {
        return Err(little(kind, freed, evidence));
    }
    Ok(finding(
        kind,
        freed,
        format!("{} are freed already (MADV_FREE)", part(freed, evidence)),
        vec!["the kernel takes such pages as soon as it needs memory; until then they count as resident".to_owned()],
        "none is needed; measure with LazyFree taken off, or set the allocator to MADV_DONTNEED where the figure matters"
            .to_owned(),
    ))
}

fn outside_heap(evidence: &Evidence) -> Answer {
    let outside = evidence.outside_bytes();
    let (place, most) = evidence.outside.first().copied().unwrap_or(("nothing", 0));
    if outside < BYTES || share(outside, evidence.resident) < 0.5 || !matters(most, evidence) {
        return Err(little(Kind::OutsideHeap, outside, evidence));
    }
    Ok(finding(
        Kind::OutsideHeap,
        outside,
        format!(
            "most of the memory is not the heap's: {} are {place}",
            part(most, evidence)
        ),
        evidence
            .outside
            .iter()
            .filter(|(_, bytes)| *bytes >= BYTES)
            .map(|(place, bytes)| format!("{place}: {}", show(*bytes)))
            .collect(),
        if place == PRIVATE {
            "an interpreter's or a virtual machine's own heap, most likely: its settings decide, not malloc's"
        } else {
            "no allocator changes this; unchanged pages of files go by themselves when memory is short"
        }
        .to_owned(),
    ))
}
