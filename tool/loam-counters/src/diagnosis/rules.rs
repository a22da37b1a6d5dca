//! The rules, one function each. A rule returns a finding, or the reason why there is none.

use loam_format::units::bytes;
use loam_format::words;

use loam_process::runtimes::Garbage;

use super::evidence::{Evidence, HeapEvidence};
use super::growth::{Growth, Rise};
use super::python;
use super::{Finding, Kind, RuledOut, Unknown};

/// A share of the resident memory worth acting on. Chosen: what a new allocator or a setting
/// commonly saves.
pub(super) const SHARE: f64 = 0.25;
/// An amount below this is not worth a person's time. Chosen: about what a small program needs in
/// all.
pub(super) const BYTES: u64 = 8 << 20;
/// The last blocks of a heap are few if they are less than this share of the memory that they keep.
const FEW: f64 = 0.05;
/// A group is in danger if it uses this share of its limit.
const NEAR_LIMIT: f64 = 0.9;
/// A program has too many arenas if it reaches both this number and the number for each core. glibc
/// makes up to 8 a core, and with half of them threads rarely meet at a lock.
const MANY_ARENAS: usize = 8;
const ARENAS_A_CORE: usize = 4;
/// How many of the block sizes that grew most a finding names.
const SIZES_NAMED: usize = 3;
/// The C library keeps stacks of threads that have ended, up to 40 MiB, for new ones. So many are
/// none of these.
const STACKS_KEPT: u64 = 32;
const STACKS_ROOM: u64 = 80 << 20;
/// From this size on malloc gives a block a mapping of its own, as long as nobody sets another one.
const MAPPED: u64 = 128 << 10;
const DAY: f64 = 86_400.0;

pub(super) type Answer = Result<Finding, RuledOut>;

/// Applies the rule for a kind.
pub fn apply(kind: Kind, evidence: &Evidence, growth: Option<&Growth>) -> Answer {
    match kind {
        Kind::Leak => leak(evidence, growth),
        Kind::GrowthOutside => growth_outside(evidence, growth),
        Kind::Copies => copies(evidence, growth),
        Kind::Fragmentation => with_heap(kind, evidence, fragmentation),
        Kind::PinnedTop => with_heap(kind, evidence, |evidence, heap| {
            pinned_top(evidence, heap, growth)
        }),
        Kind::KeptForReuse => with_heap(kind, evidence, |evidence, heap| {
            kept_for_reuse(evidence, heap, growth)
        }),
        Kind::Arenas => with_heap(kind, evidence, arenas),
        Kind::Caches => with_heap(kind, evidence, caches),
        Kind::HugePageSlack => with_heap(kind, evidence, huge_page_slack),
        Kind::Stacks => stacks(evidence),
        Kind::PythonArenas => python::arenas(evidence),
        Kind::HeldFiles => held_files(evidence),
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
    rule: impl Fn(&Evidence, &HeapEvidence) -> Answer,
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

pub(super) fn out(kind: Kind, why: impl Into<String>) -> RuledOut {
    RuledOut {
        kind,
        why: why.into(),
        was_looked_at: true,
    }
}

pub(super) fn unseen(kind: Kind, why: impl Into<String>) -> RuledOut {
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
    // Pages of hugetlbfs do not count as resident.
    if amount > evidence.resident {
        return format!(
            "{} beside the {} that are resident",
            show(amount),
            show(evidence.resident)
        );
    }
    format!(
        "{}, {} of the {} that are resident",
        show(amount),
        percent(amount, evidence.resident),
        show(evidence.resident)
    )
}

pub(super) fn show(amount: u64) -> String {
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

/// The command that gives free pages back from outside, where the tool has it, and what it would
/// give back.
fn trim_now(evidence: &Evidence, heap: &HeapEvidence) -> String {
    let is_known = is_glibc(evidence) || heap.purges && !heap.is_peer;
    let is_there = cfg!(target_arch = "x86_64") && is_known && heap.trim.from_outside() > 0;
    let (pid, bytes) = (evidence.pid, show(heap.trim.from_outside()));
    match is_there {
        false => String::new(),
        // The heap itself answers.
        true if heap.purges => {
            format!(
                "`loam trim {pid}` asks its own heap for these {bytes}, which trims at the \
                 process's next slow call. In the program: "
            )
        }
        true => format!("`loam trim {pid}` gives {bytes} back now, from outside. In the program: "),
    }
}

impl Finding {
    fn without_gain(self) -> Finding {
        Finding {
            gain_bytes: None,
            gain_least_bytes: None,
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
        gain_least_bytes: Some(amount),
        bytes: amount,
    }
}

/// What keeps a verdict from being one.
pub fn unknown(evidence: &Evidence, growth: Option<&Growth>) -> Option<Unknown> {
    if let Some((bytes, why)) = evidence.unknown() {
        return Some(Unknown {
            what: format!("{} were not seen: {why}", part(bytes, evidence)),
            remedy: match &evidence.heap {
                Ok(_) => "`loam stats PID` shows where the memory is; `loam record` sees what the \
                          program allocates, whatever its heap looks like"
                    .to_owned(),
                Err(_) => format!(
                    "`loam record --pid {}` samples what it allocates; where its malloc can be \
                     replaced, `loam run --allocator NAME -- COMMAND` starts it on an allocator \
                     that tells its figures",
                    evidence.pid
                ),
            },
        });
    }
    let growth = growth?;
    let seconds = growth.duration().as_secs_f64();
    if !growth.is_enough() {
        return Some(Unknown {
            what: format!(
                "{} in {seconds:.0} s are too few to see growth by: {} are needed",
                words::count(growth.count(), "look"),
                Growth::ENOUGH
            ),
            remedy: "watch longer, or when the machine is less busy".to_owned(),
        });
    }
    let rate = growth.faint()?;
    let longer = 2.0 * seconds * growth.least_rate() / rate;
    Some(Unknown {
        what: format!(
            "what it holds rises by about {} a second ({} a day), which is slower than I can see \
             in {seconds:.0} s",
            show(rate as u64),
            show((rate * DAY) as u64)
        ),
        remedy: format!(
            "`--watch {:.0}` would show whether that is growth",
            longer.ceil()
        ),
    })
}

// ---- What several looks show
// ----------------------------------------------------------------------

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
    let seconds = growth.duration().as_secs_f64();
    match rise(growth) {
        Some(rise) if rise.slows_down => Err(out(
            kind,
            format!(
                "{} in {seconds:.0} s, and it slows down, as a cache or a pool that fills; watch \
                 it again later",
                show(rise.bytes)
            ),
        )),
        Some(rise) => Ok((growth, rise)),
        None => Err(out(kind, none_seen(growth))),
    }
}

/// `none in 40 s; ...`: what would have been too slow to be seen, and how long it takes to see
/// less.
fn none_seen(growth: &Growth) -> String {
    let (seconds, least) = (growth.duration().as_secs_f64(), growth.least_rate());
    let a_gib = least / ((1u64 << 30) as f64 / DAY);
    let longer = if a_gib > 1.0 {
        format!(
            "; `--watch {:.0}` shows 1 GiB a day",
            (seconds * a_gib).ceil()
        )
    } else {
        String::new()
    };
    format!(
        "none in {seconds:.0} s; less than {} a day is slower than that shows{longer}",
        show((least * DAY) as u64)
    )
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
        remedy: {
            let next = if sizes.first().is_some_and(|(size, _)| *size >= MAPPED) {
                "these blocks are large, and so few that a debugger's breakpoint or `strace -k -e \
                 trace=mmap` names who asks for them; `loam record --pid PID` does so for all sizes"
            } else {
                "find who allocates the sizes that grow: `loam record --pid PID`, or a heap \
                 profiler"
            };
            let of_runtime = evidence.runtime.map_or_else(String::new, |runtime| {
                format!(" For objects of {}: {}.", runtime.name, runtime.next_step)
            });
            format!(
                "{next}. Free them or bound what holds them; no setting of an allocator \
                 helps.{of_runtime} If the program is still filling its caches, watch it again \
                 later"
            )
        },
        gain_bytes: None,
        gain_least_bytes: None,
        bytes: rise.bytes,
    })
}

fn copies(evidence: &Evidence, growth: Option<&Growth>) -> Answer {
    let kind = Kind::Copies;
    if growth.is_none() && evidence.common < BYTES {
        return Err(out(kind, format!("{} are shared", show(evidence.common))));
    }
    let (growth, rise) = watched(kind, growth, Growth::copies)?;
    Ok(Finding {
        kind,
        is_fault: true,
        verdict: format!(
            "the program writes to memory that it shares since a fork(), and gets copies: {} a \
             second",
            show(rise.rate as u64)
        ),
        evidence: vec![
            format!(
                "memory of this process alone rose by {} in {:.0} s, and what it shares fell as \
                 much",
                show(rise.bytes),
                growth.duration().as_secs_f64()
            ),
            format!(
                "{} are shared still, and may become copies",
                show(evidence.common)
            ),
        ],
        remedy: match evidence.runtime {
            Some(runtime) if runtime.name == "Python" => {
                "counts of references and the collector's marks write to objects that are only \
                 read: call gc.freeze() before the fork, and load in the parent only what all \
                 workers need"
            }
            _ => {
                "let the parent hold only what the workers read, and change it before the fork; a \
                 trim in the parent before the fork keeps free pages from being shared and filled"
            }
        }
        .to_owned(),
        gain_bytes: None,
        gain_least_bytes: None,
        bytes: rise.bytes,
    })
}

fn growth_outside(evidence: &Evidence, growth: Option<&Growth>) -> Answer {
    // What becomes a copy was there before.
    if growth.and_then(Growth::copies).is_some() {
        return Err(out(Kind::GrowthOutside, "named above"));
    }
    let (growth, rise) = watched(Kind::GrowthOutside, growth, Growth::outside)?;
    let (stacks, more) = growth.stacks_without_thread();
    let is_of_stacks = more >= STACKS_KEPT;
    let most = evidence.outside.iter().max_by_key(|one| one.own);
    let runtime = evidence
        .runtime
        .filter(|_| !is_of_stacks && most.is_some_and(|one| one.is_private));
    // Until it has collected garbage, such a heap grows however little it holds.
    let is_fault = runtime.is_none_or(|runtime| runtime.garbage != Garbage::ByRoom);
    let of_files = evidence.held_files.bytes >= rise.bytes;
    // Malloc may have a part in it.
    let undivided = evidence
        .heap
        .as_ref()
        .err()
        .filter(|_| !is_of_stacks && !of_files && evidence.undivided() >= rise.bytes);
    let asker = format!("`loam record --pid {}` names who asks for it", evidence.pid);
    let remedy = match runtime {
        Some(runtime) if is_fault => format!(
            "{asker}. As far as it is {}: {}",
            runtime.heap, runtime.next_step
        ),
        Some(runtime) => format!(
            "none yet. As far as it is {}, it grows until garbage is collected, whatever the \
             program holds; {}",
            runtime.heap, runtime.next_step
        ),
        None if is_of_stacks => format!(
            "{stacks} stacks have no thread any longer: pthread_join() what ends, or \
             pthread_detach() it"
        ),
        None if undivided.is_some() => asker,
        None if of_files => {
            "files in memory are opened and never closed: look for memfd_create() and shm_open() \
             without close()"
                .to_owned()
        }
        None => {
            "look for mmap() without munmap(), and for threads that are not joined; malloc has \
                 no part in it"
                .to_owned()
        }
    };
    let (what, whose) = match undivided {
        Some(_) => ("private memory", ""),
        None => ("memory outside of the heap", " that malloc does not hold"),
    };
    let mut figures = vec![format!(
        "memory of this process alone{whose} rose by {} in {:.0} s",
        show(rise.bytes),
        growth.duration().as_secs_f64()
    )];
    figures.extend(undivided.map(|reason| {
        format!(
            "on {} the heap and the program's own mappings can not be told apart: {reason}",
            evidence.allocator
        )
    }));
    Ok(Finding {
        kind: Kind::GrowthOutside,
        is_fault,
        verdict: format!("{what} grows by {} a second", show(rise.rate as u64)),
        evidence: figures,
        remedy,
        gain_bytes: None,
        gain_least_bytes: None,
        bytes: rise.bytes,
    })
}

// ---- What the heap shows
// --------------------------------------------------------------------------

fn fragmentation(evidence: &Evidence, heap: &HeapEvidence) -> Answer {
    // Whole pages between blocks go by a trim: that is another finding.
    let between = heap.of_own(heap.between.saturating_sub(heap.trim.between));
    if !matters(between, evidence) {
        return Err(little(Kind::Fragmentation, between, evidence));
    }
    Ok(finding(
        Kind::Fragmentation,
        between,
        format!(
            "the heap is fragmented: {} are free space between live blocks",
            part(between, evidence)
        ),
        vec![
            format!(
                "live blocks hold {}",
                show(heap.live - heap.live.min(heap.untouched))
            ),
            if heap.trim.between != 0 {
                format!(
                    "malloc_trim(0) would take about {} more, in pages between blocks that are \
                     free as a whole",
                    show(heap.trim.between.min(heap.between))
                )
            } else {
                "the free pieces hold no whole page, so neither malloc_trim() nor the system can \
                 take them"
                    .to_owned()
            },
        ],
        format!(
            "blocks that live long lie among blocks that do not. In the program: allocate what \
             lives long at one time, or in a private heap. Whether another allocator leaves fewer \
             holes{} can be measured: `loam record`, then `loam replay`",
            if is_glibc(evidence) {
                ", Loam for one,"
            } else {
                ""
            }
        ),
    )
    .without_gain())
}

/// What is free in one look and in use in the next is at work: a garbage collector frees all at
/// once what is allocated again before its next round.
fn comes_and_goes(kind: Kind, evidence: &Evidence, growth: Option<&Growth>) -> Option<RuledOut> {
    let many = |bytes| matters(bytes, evidence);
    let least = growth?
        .least_kept_after(many)
        .filter(|least| !many(*least))?;
    Some(out(
        kind,
        format!(
            "free pages came and went while it was watched, down to {} ({})",
            show(least),
            percent(least, evidence.resident)
        ),
    ))
}

fn pinned_top(evidence: &Evidence, heap: &HeapEvidence, growth: Option<&Growth>) -> Answer {
    let Some((hole, behind)) = heap.pinned else {
        return Err(out(
            Kind::PinnedTop,
            "this heap has no end that blocks could hold",
        ));
    };
    let kept = hole.min(heap.trim.own());
    let is_pinned = matters(kept, evidence) && (behind.bytes as f64) < FEW * hole as f64;
    if !is_pinned {
        return Err(out(
            Kind::PinnedTop,
            format!("the longest hole of the main arena is {}", show(hole)),
        ));
    }
    if let Some(out) = comes_and_goes(Kind::PinnedTop, evidence, growth) {
        return Err(out);
    }
    Ok(finding(
        Kind::PinnedTop,
        kept,
        format!(
            "{} at the end of the heap keep {} below them: the heap can only get shorter from its \
             end",
            words::count(behind.count as usize, "block"),
            part(kept, evidence)
        ),
        vec![format!(
            "behind a hole of {} lie {} in {}",
            show(hole),
            show(behind.bytes),
            words::count(behind.count as usize, "block")
        )],
        format!(
            "{}call malloc_trim(0) after the peak: it takes pages out of the middle, too, here in \
             about {:.1} ms; or allocate what stays before what goes",
            trim_now(evidence, heap),
            heap.trim.milliseconds
        ),
    ))
}

fn kept_for_reuse(evidence: &Evidence, heap: &HeapEvidence, growth: Option<&Growth>) -> Answer {
    // Free pages that another process has too are not given back by this one.
    let kept = heap.trim.own();
    if !matters(kept, evidence) {
        let little = little(Kind::KeptForReuse, kept, evidence);
        let why = match heap.trim.common {
            0 => little.why,
            common => format!(
                "{}; {} more are shared with other processes since a fork(), and a trim of this \
                 one frees nothing of them",
                little.why,
                show(common)
            ),
        };
        return Err(out(Kind::KeptForReuse, why));
    }
    if let Some(out) = comes_and_goes(Kind::KeptForReuse, evidence, growth) {
        return Err(out);
    }
    // More specific rules take precedence.
    if huge_page_slack(evidence, heap).is_ok() {
        return Err(out(Kind::KeptForReuse, "named above"));
    }
    if let Ok(pinned) = pinned_top(evidence, heap, growth) {
        if pinned.bytes * 2 > kept {
            return Err(out(Kind::KeptForReuse, "named above"));
        }
    }
    let mut remedy = if heap.is_peer {
        of_peer(evidence)
    } else if heap.purges {
        let background = match evidence.settings.get("LOAM_BACKGROUND_PURGE") {
            Some("on") => "",
            _ => {
                ". Loam does so in its calls, and while a thread sleeps or polls, a second or some \
                 after a peak: a program all of whose threads wait for conditions or in read() \
                 needs LOAM_BACKGROUND_PURGE=on"
            }
        };
        let spans = match heap.trim.between {
            0 => String::new(),
            between => format!(
                "; {} of them lie between live blocks, where only a trim looks",
                show(between)
            ),
        };
        format!(
            "{}malloc_trim(0) gives them back at once{spans}{background}",
            trim_now(evidence, heap)
        )
    } else {
        format!(
            "{}malloc_trim(0) would give them back and hold up the program's allocations for about \
             {:.1} ms. glibc does not do so by itself: call it when a peak is over, or run on a \
             heap that does: `loam run -- ...`",
            trim_now(evidence, heap),
            heap.trim.milliseconds
        )
    };
    if heap.trim.common != 0 {
        remedy += &format!(
            ". {} more are shared with other processes since a fork(): only a trim of all of them \
             frees these",
            show(heap.trim.common)
        );
    }
    Ok(finding(
        Kind::KeptForReuse,
        kept,
        format!("the heap keeps whole free pages: {}", part(kept, evidence)),
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

/// How another allocator is made to give its free pages back.
fn of_peer(evidence: &Evidence) -> String {
    let settings = &evidence.settings;
    let measure = "`loam record` and `loam advise` measure what that brings and costs";
    if evidence.allocator.starts_with("jemalloc") {
        return match settings.get("MALLOC_CONF") {
            Some(set) if set.contains("decay_ms:0") || set.contains("background_thread:true") => {
                format!(
                "MALLOC_CONF={set} is set already; mallctl(\"arena.4096.purge\") gives them back \
                 at once"
            )
            }
            _ => format!(
                "MALLOC_CONF=background_thread:true,dirty_decay_ms:1000 gives them back also while \
                 the program is silent; {measure}"
            ),
        };
    }
    if settings.get("TCMALLOC_RELEASE_RATE").is_some() {
        return "TCMALLOC_RELEASE_RATE is set already, and acts only while the program frees: \
                MallocExtension::ReleaseFreeMemory() gives them back at once"
            .to_owned();
    }
    format!(
        "a program that is silent must ask for it: MallocExtension::ReleaseFreeMemory() gives them \
         back at once. While the program frees, TCMALLOC_RELEASE_RATE=10 gives them back bit by \
         bit; {measure}"
    )
}

fn arenas(evidence: &Evidence, heap: &HeapEvidence) -> Answer {
    let cores = evidence.limits.usable_cores() as usize;
    let others = heap.arenas.get(1..).unwrap_or_default();
    let free = heap.of_own(others.iter().map(|arena| arena.free_bytes).sum());
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
            "glibc allows 8 arenas for each of the {} cores that it sees; the limit of its control \
             group is {cores}",
            evidence.limits.cores
        ));
    }
    let fewer = cores.max(2) as u64;
    let remedy = match evidence.settings.arena_max() {
        Some(most) if most <= fewer => format!(
            "arena_max is {most} already: a heap whose threads share free memory is `loam run -- \
             ...`"
        ),
        _ => format!(
            "start it with GLIBC_TUNABLES=glibc.malloc.arena_max={fewer}, or on a heap whose \
             threads share free memory: `loam run -- ...`. Threads that share an arena leave more \
             holes in it, so the first gains less than is free"
        ),
    };
    let found = finding(
        Kind::Arenas,
        free,
        format!(
            "too many arenas strand free memory: {}",
            part(free, evidence)
        ),
        figures,
        remedy,
    );
    Ok(Finding {
        gain_least_bytes: Some(0),
        ..found
    })
}

fn caches(evidence: &Evidence, heap: &HeapEvidence) -> Answer {
    let cached = heap.of_own(heap.cached);
    if !matters(cached, evidence) {
        return Err(little(Kind::Caches, cached, evidence));
    }
    let remedy = if is_glibc(evidence) {
        "fewer threads, or GLIBC_TUNABLES=glibc.malloc.tcache_count=1; malloc_trim(0) joins what \
         the fast bins keep. Only pages without any live block go back, so the gain may be small"
    } else {
        "fewer threads; a thread's cache goes back when the thread ends or allocates little for a \
         while"
    };
    let found = finding(
        Kind::Caches,
        cached,
        format!(
            "threads keep freed blocks for themselves: {}",
            part(cached, evidence)
        ),
        match heap.caches {
            0 => Vec::new(),
            caches => vec![format!(
                "{} keep some",
                words::count(caches as usize, "cache")
            )],
        },
        remedy.to_owned(),
    );
    // Live blocks may lie on all of their pages.
    Ok(Finding {
        gain_least_bytes: Some(0),
        ..found
    })
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

// ---- What the system shows
// ------------------------------------------------------------------------

/// Resident bytes without a block, in a heap in huge pages: those behind the last blocks. If the
/// heap is mostly in huge pages, its free pages count too, because they go and come back two MiB at
/// a time.
fn slack(evidence: &Evidence, heap: &HeapEvidence) -> u64 {
    let is_huge = evidence.huge >= heap.resident / 2;
    let free = if is_huge { heap.trim.own() } else { 0 };
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
        format!(
            "huge pages reach over memory that is not in use: {}",
            part(slack, evidence)
        ),
        vec![
            format!("{} lie in huge pages", show(evidence.huge)),
            "free pages among blocks come back with each huge page that the kernel makes of their \
             neighbourhood"
                .to_owned(),
        ],
        format!(
            "{}let it have huge pages only where it asks for them (`echo madvise > \
             /sys/kernel/mm/transparent_hugepage/enabled`), and leave glibc.malloc.hugetlb off; a \
             trim helps until the kernel fills the gaps again",
            trim_now(evidence, heap).replace(" In the program: ", " For good: ")
        ),
    ))
}

/// Stacks hold much if each of their pages is there: in huge pages, locked, or of threads that
/// nobody joined.
fn stacks(evidence: &Evidence) -> Answer {
    let kind = Kind::Stacks;
    let stacks = &evidence.stacks;
    let without = evidence.stacks_without_thread;
    let own = stacks.own();
    let is_huge = stacks.huge >= own / 2;
    let is_locked = stacks.locked >= own / 2;
    let room = stacks.size / stacks.mappings.max(1) * without;
    let (why, remedy) = if without > STACKS_KEPT && room > STACKS_ROOM {
        (
            format!("{without} of {} have no thread any longer", stacks.mappings),
            "pthread_join() threads that end, or pthread_detach() them: until then their stacks \
             stay",
        )
    } else if is_huge && matters(own, evidence) {
        (
            format!("{} of them lie in huge pages", show(stacks.huge)),
            "a huge page has 2 MiB, and a stack needs some KiB: `echo madvise > \
             /sys/kernel/mm/transparent_hugepage/enabled`, or \
             GLIBC_TUNABLES=glibc.pthread.stack_hugetlb=0 (glibc 2.39 and later), or a length of \
             stacks that is no multiple of 2 MiB",
        )
    } else if is_locked && matters(own, evidence) {
        (
            format!("{} of them are locked in memory", show(stacks.locked)),
            "mlockall(MCL_FUTURE) fills each stack at once: give threads shorter stacks \
             (pthread_attr_setstacksize), or lock with MCL_ONFAULT",
        )
    } else {
        return Err(little(kind, own, evidence));
    };
    let verdict = format!("stacks hold {}", part(own, evidence));
    let figures = vec![why, words::count(stacks.mappings as usize, "stack")];
    let found = finding(kind, own, verdict, figures, remedy.to_owned());
    Ok(Finding {
        gain_least_bytes: None,
        ..found
    })
}

fn held_files(evidence: &Evidence) -> Answer {
    let kind = Kind::HeldFiles;
    let held = evidence.held_files;
    if held.bytes < BYTES || share(held.bytes, evidence.resident + held.bytes) < SHARE {
        return Err(out(kind, show(held.bytes)));
    }
    Ok(finding(
        kind,
        held.bytes,
        format!(
            "{} in {} in memory are held by descriptors only, beside {} that are resident",
            show(held.bytes),
            words::count(held.count as usize, "file"),
            show(evidence.resident)
        ),
        vec!["no process has them mapped here, so no resident set shows them".to_owned()],
        "close() what memfd_create() and shm_open() opened; `ls -l /proc/PID/fd` names them"
            .to_owned(),
    ))
}

fn memory_limit(evidence: &Evidence) -> Answer {
    let limits = &evidence.limits;
    let (Some(limit), Some(used)) = (limits.memory, limits.memory_used) else {
        return Err(out(Kind::MemoryLimit, "its control group has none"));
    };
    let is_ours = share(evidence.resident, limit) >= SHARE;
    // The kernel takes these back before it refuses any.
    let reclaimable = limits.memory_reclaimable.min(used);
    let firm = used - reclaimable;
    if share(firm, limit) < NEAR_LIMIT || !is_ours {
        return Err(out(
            Kind::MemoryLimit,
            format!(
                "{} of {}, and {} more that are files' pages and go when memory is short",
                show(firm),
                show(limit),
                show(reclaimable)
            ),
        ));
    }
    let mut figures = vec![format!(
        "this process has {} of it resident",
        show(evidence.resident)
    )];
    if limits.memory_in_tmpfs >= BYTES {
        figures.push(format!(
            "{} are files in memory (tmpfs) and shared memory, which only their removal frees",
            show(limits.memory_in_tmpfs)
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
            show(firm),
            show(limit)
        ),
        evidence: figures,
        remedy: format!(
            "raise the limit, or lower what the other findings name; {} of the heap are free",
            show(free)
        ),
        gain_bytes: None,
        gain_least_bytes: None,
        bytes: firm,
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
        gain_least_bytes: None,
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
            "the system counts them mapping by mapping, and holds up what the program maps \
             meanwhile: for more than a millisecond with mappings this large. `grep LazyFree \
             /proc/PID/smaps_rollup` shows them",
        ));
    };
    if !matters(freed, evidence) {
        return Err(little(kind, freed, evidence));
    }
    Ok(finding(
        kind,
        freed,
        format!("{} are freed already (MADV_FREE)", part(freed, evidence)),
        vec![
            "the kernel takes such pages as soon as it needs memory; until then they count as \
              resident"
                .to_owned(),
        ],
        "none is needed; measure with LazyFree taken off, or set the allocator to MADV_DONTNEED \
         where the figure matters"
            .to_owned(),
    ))
}

fn outside_heap(evidence: &Evidence) -> Answer {
    let kind = Kind::OutsideHeap;
    // Malloc may have a part in private memory, where much was not seen.
    let is_unseen = evidence.unknown().is_some();
    let all = evidence.outside.iter();
    let parts: Vec<_> = all
        .filter(|one| !is_unseen || !one.is_private || one.is_of_runtime)
        .collect();
    let outside = parts.iter().map(|one| one.resident).sum();
    let first = parts
        .first()
        .filter(|first| matters(first.resident, evidence));
    let Some(first) = first.filter(|_| share(outside, evidence.resident) >= 0.5) else {
        return Err(match is_unseen {
            true => unseen(
                kind,
                "of the private memory it is not known what is the heap's",
            ),
            false => little(kind, outside, evidence),
        });
    };
    let has_read_pools = evidence.python.is_some();
    Ok(finding(
        kind,
        outside,
        format!(
            "most of the memory is not the heap's: {}, of which {} are {}",
            part(outside, evidence),
            show(first.resident),
            first.name
        ),
        parts
            .iter()
            .filter(|one| one.resident >= BYTES)
            .map(|one| format!("{}: {}", one.name, show(one.resident)))
            .collect(),
        match evidence.runtime {
            Some(runtime) if first.is_of_runtime => runtime.next_step.to_owned(),
            Some(runtime) if first.is_private && !has_read_pools => {
                format!("as far as it is {}: {}", runtime.heap, runtime.next_step)
            }
            _ if first.is_private => {
                "the program maps it itself, and malloc has no part in it".to_owned()
            }
            _ => {
                "no allocator changes this; unchanged pages of files go by themselves when memory \
                  is short"
                    .to_owned()
            }
        },
    )
    .without_gain())
}
