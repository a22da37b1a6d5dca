use std::time::Duration;

use loam_process::container::Limits;
use loam_process::glibc::Sum;
use loam_process::held_files::HeldFiles;
use loam_process::residence::Part;
use loam_process::settings::Settings;

use super::evidence::{Arena, Outside, Trim};
use super::*;

const MIB: u64 = 1 << 20;

/// A heap of 100 MiB, all live, with 10 MiB of files beside it.
fn healthy() -> Evidence {
    Evidence {
        pid: 1234,
        allocator: "glibc 2.36's malloc".to_owned(),
        resident: 110 * MIB,
        swapped: 0,
        lazily_freed: Some(0),
        huge: 0,
        common: 0,
        outside: vec![Outside {
            name: "program and other files".into(),
            resident: 10 * MIB,
            own: 0,
            is_private: false,
            is_of_runtime: false,
        }],
        stacks: Part::default(),
        stacks_without_thread: 0,
        runtime: None,
        python: None,
        held_files: HeldFiles::default(),
        settings: Settings::default(),
        limits: Limits {
            cores: 64,
            quota: Some(2.0),
            ..Limits::default()
        },
        heap: Ok(HeapEvidence {
            resident: 100 * MIB,
            common: 0,
            live: 100 * MIB,
            untouched: 0,
            cached: 0,
            between: 0,
            top: 0,
            records: 0,
            trim: Trim {
                bytes: 0,
                milliseconds: 0.0,
                between: 0,
                common: 0,
                joined: 0,
            },
            caches: 1,
            arenas: vec![Arena {
                resident_bytes: 100 * MIB,
                live_bytes: 100 * MIB,
                free_bytes: 0,
            }],
            pinned: Some((0, Sum::default())),
            lengths: Vec::new(),
            unread: 0,
            unseen: 0,
            is_peer: false,
            untold: Vec::new(),
            purges: false,
            problems: Vec::new(),
        }),
    }
}

fn with(change: impl FnOnce(&mut Evidence)) -> Vec<(Kind, Option<u64>)> {
    let mut evidence = healthy();
    change(&mut evidence);
    let found = Diagnosis::of(&evidence, None);
    assert_eq!(
        found.findings.len() + found.ruled_out.len(),
        Kind::ALL.len()
    );
    found
        .findings
        .iter()
        .map(|finding| (finding.kind, finding.gain_bytes))
        .collect()
}

fn with_heap(change: impl FnOnce(&mut HeapEvidence)) -> Vec<(Kind, Option<u64>)> {
    with(|evidence| change(evidence.heap.as_mut().unwrap()))
}

#[test]
fn a_heap_that_is_full_of_live_blocks_is_healthy() {
    assert_eq!(with(|_| {}), []);
    let all = Diagnosis::of(&healthy(), None);
    assert!(!all.is_sick());
    // One look can not show growth, and the rule does not claim to have looked.
    let unseen: Vec<Kind> = all
        .ruled_out
        .iter()
        .filter(|out| !out.was_looked_at)
        .map(|out| out.kind)
        .collect();
    assert_eq!(unseen, [Kind::Leak, Kind::GrowthOutside]);
    assert!(all.is_healthy());
}

#[test]
fn each_rule_finds_its_fault_and_says_what_it_brings() {
    assert_eq!(
        with_heap(|heap| heap.between = 40 * MIB),
        [(Kind::Fragmentation, None)]
    );
    assert_eq!(
        with_heap(|heap| heap.trim.bytes = 50 * MIB),
        [(Kind::KeptForReuse, Some(50 * MIB))]
    );
    assert_eq!(
        with_heap(|heap| heap.cached = 30 * MIB),
        [(Kind::Caches, Some(30 * MIB))]
    );
    assert_eq!(
        with_heap(|heap| heap.untouched = 60 * MIB),
        [(Kind::Untouched, Some(60 * MIB))]
    );
    let pinned = with_heap(|heap| {
        heap.trim.bytes = 80 * MIB;
        heap.pinned = Some((
            81 * MIB,
            Sum {
                count: 1,
                bytes: 4096,
            },
        ));
    });
    assert_eq!(pinned, [(Kind::PinnedTop, Some(80 * MIB))]);
    let stranded = with_heap(|heap| {
        let arena = Arena {
            resident_bytes: 4 * MIB,
            live_bytes: MIB,
            free_bytes: 3 * MIB,
        };
        heap.arenas.extend([arena; 16]);
    });
    assert_eq!(stranded, [(Kind::Arenas, Some(48 * MIB))]);
    let slack = with(|evidence| {
        evidence.huge = 60 * MIB;
        evidence.heap.as_mut().unwrap().top = 50 * MIB;
    });
    assert_eq!(slack, [(Kind::HugePageSlack, Some(50 * MIB))]);
    assert_eq!(
        with(|evidence| evidence.lazily_freed = Some(40 * MIB)),
        [(Kind::LazilyFreed, Some(40 * MIB))]
    );
    assert_eq!(
        with(|evidence| evidence.swapped = 40 * MIB),
        [(Kind::Swapped, None)]
    );
    let limited = with(|evidence| {
        evidence.limits.memory = Some(128 * MIB);
        evidence.limits.memory_used = Some(127 * MIB);
    });
    assert_eq!(limited, [(Kind::MemoryLimit, None)]);
    let files = with(|evidence| {
        evidence.outside[0].resident = 900 * MIB;
        evidence.resident = 1000 * MIB;
    });
    assert_eq!(files, [(Kind::OutsideHeap, None)]);
}

#[test]
fn a_share_of_little_and_a_little_of_much_are_no_faults() {
    // 7 MiB of 10.
    let small = with(|evidence| {
        evidence.resident = 10 * MIB;
        evidence.outside.clear();
        evidence.heap.as_mut().unwrap().between = 7 * MIB;
    });
    assert_eq!(small, []);
    // 200 MiB of 1,000.
    let large = with(|evidence| {
        evidence.resident = 1000 * MIB;
        evidence.heap.as_mut().unwrap().trim.bytes = 200 * MIB;
    });
    assert_eq!(large, []);
}

#[test]
fn faults_come_before_notes_and_the_largest_first() {
    let found = with(|evidence| {
        evidence.lazily_freed = Some(100 * MIB);
        let heap = evidence.heap.as_mut().unwrap();
        (heap.between, heap.trim.bytes) = (30 * MIB, 40 * MIB);
    });
    let kinds: Vec<Kind> = found.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(
        kinds,
        [Kind::KeptForReuse, Kind::Fragmentation, Kind::LazilyFreed]
    );
}

#[test]
fn a_heap_that_can_not_be_read_is_said_and_not_called_healthy() {
    let mut evidence = healthy();
    evidence.heap = Err("its allocator does not show what it holds".to_owned());
    let found = Diagnosis::of(&evidence, None);
    let fragmentation = found
        .ruled_out
        .iter()
        .find(|out| out.kind == Kind::Fragmentation)
        .unwrap();
    assert!(!fragmentation.was_looked_at);
    // Its files are known, and the rest is not.
    assert!(found.unknown.is_none());
    evidence.outside.push(private(100 * MIB, 100 * MIB));
    assert!(Diagnosis::of(&evidence, None).unknown.is_some());
    assert!(!Diagnosis::of(&evidence, None).is_healthy());
    // A run-time system beside malloc does not explain it.
    evidence.runtime = go();
    assert!(Diagnosis::of(&evidence, None).unknown.is_some());
    // A run-time system's own heap is known as such.
    evidence.outside.last_mut().unwrap().is_of_runtime = true;
    assert!(Diagnosis::of(&evidence, None).unknown.is_none());
}

fn note(evidence: &Evidence, kind: Kind) -> Option<Finding> {
    let found = Diagnosis::of(evidence, None).findings;
    found.into_iter().find(|one| one.kind == kind)
}

/// An interpreter on an allocator that shows nothing, whose pools were read.
#[test]
fn the_interpreter_is_credited_with_its_pools_and_with_no_more() {
    let python = |pools: u64| {
        let mut evidence = healthy();
        evidence.allocator = "mimalloc".to_owned();
        evidence.heap = Err("its allocator does not show what it holds".to_owned());
        let file = loam_process::mappings::Mapping {
            name: "/usr/bin/python3.11".to_owned(),
            executable: true,
            ..Default::default()
        };
        evidence.runtime = loam_process::runtimes::of(&[file]);
        evidence.outside.push(private(100 * MIB, 100 * MIB));
        evidence.credit(Some(PythonPools {
            bytes: pools * MIB,
            live_bytes: pools * MIB,
            ..PythonPools::default()
        }));
        evidence
    };
    let little = python(4);
    assert_eq!(little.undivided(), 96 * MIB);
    let parts = little.outside.iter().map(|one| one.resident);
    assert_eq!(parts.sum::<u64>(), 110 * MIB);
    let found = Diagnosis::of(&little, None);
    let what = &found.unknown.as_ref().unwrap().what;
    assert!(what.starts_with("96.0 MiB, 87 % of the 110 MiB"), "{what}");
    // Beside that, the page does not say that the memory is not the heap's.
    assert_eq!(note(&little, Kind::OutsideHeap), None);
    let most = python(97);
    assert!(Diagnosis::of(&most, None).is_healthy());
    let note = note(&most, Kind::OutsideHeap).unwrap();
    assert!(
        note.verdict.contains("97.0 MiB are Python's own pools"),
        "{}",
        note.verdict
    );
}

#[test]
fn memory_outside_of_the_heap_is_told_by_its_sum() {
    let mut evidence = healthy();
    evidence.resident = 140 * MIB;
    evidence.outside[0].resident = 35 * MIB;
    evidence.outside.insert(0, private(40 * MIB, 40 * MIB));
    let found = note(&evidence, Kind::OutsideHeap).unwrap();
    let sum = "75.0 MiB, 54 % of the 140 MiB that are resident, of which 40.0 MiB are private";
    assert!(found.verdict.contains(sum), "{}", found.verdict);
    assert_eq!(found.gain_bytes, None);
}

fn private(resident: u64, own: u64) -> Outside {
    Outside {
        name: evidence::PRIVATE.into(),
        resident,
        own,
        is_private: true,
        is_of_runtime: false,
    }
}

fn go() -> Option<loam_process::runtimes::Runtime> {
    let heap = loam_process::mappings::Mapping {
        start: 0xc0_0000_0000,
        end: 0xc0_0040_0000,
        ..Default::default()
    };
    loam_process::runtimes::of(&[heap])
}

#[test]
fn beside_much_that_was_not_seen_no_program_is_called_healthy() {
    let with_unseen = |unseen: u64| {
        let mut evidence = healthy();
        evidence.heap.as_mut().unwrap().unseen = unseen;
        Diagnosis::of(&evidence, None)
    };
    assert!(with_unseen(5 * MIB).is_healthy());
    let found = with_unseen(6 * MIB);
    assert!(!found.is_healthy() && !found.is_sick());
    assert!(found.unknown.unwrap().what.contains("6.00 MiB"));
    // Pages that do not count as resident are no part of those that do.
    let beside = with_unseen(healthy().resident + MIB).unknown.unwrap().what;
    assert!(
        beside.contains("beside the") && !beside.contains('%'),
        "{beside}"
    );
}

#[test]
fn what_other_processes_have_too_is_no_gain() {
    let kept = |common: u64| {
        with_heap(|heap| {
            (heap.trim.bytes, heap.trim.common, heap.common) = (50 * MIB, common, common);
        })
    };
    assert_eq!(kept(10 * MIB), [(Kind::KeptForReuse, Some(40 * MIB))]);
    assert_eq!(kept(45 * MIB), []);
    let cached = with_heap(|heap| (heap.cached, heap.common) = (30 * MIB, 95 * MIB));
    assert_eq!(cached, []);
}

#[test]
fn a_limit_counts_what_the_kernel_can_take_back_as_free() {
    let limited = |reclaimable: u64| {
        with(|evidence| {
            evidence.limits.memory = Some(200 * MIB);
            evidence.limits.memory_used = Some(198 * MIB);
            evidence.limits.memory_reclaimable = reclaimable;
        })
    };
    assert_eq!(limited(10 * MIB), [(Kind::MemoryLimit, None)]);
    assert_eq!(limited(133 * MIB), []);
}

#[test]
fn growth_comes_before_other_faults_and_the_larger_one_first() {
    let first = |live: u64, outside: u64| {
        let mut growth = Growth::default();
        let mut last = healthy();
        for look in 0..=Growth::ENOUGH as u64 {
            last = healthy();
            let heap = last.heap.as_mut().unwrap();
            heap.live += look * live;
            heap.trim.bytes = 60 * MIB;
            let own = look * outside;
            last.outside.push(private(own, own));
            growth.add(Duration::from_secs(look), &last);
        }
        let found = Diagnosis::of(&last, Some(&growth)).findings;
        let kinds = found.iter().map(|finding| finding.kind);
        kinds.collect::<Vec<_>>()
    };
    let (leak, outside, kept) = (Kind::Leak, Kind::GrowthOutside, Kind::KeptForReuse);
    assert_eq!(first(64 << 10, 512 << 10), [outside, leak, kept]);
    assert_eq!(first(512 << 10, 64 << 10), [leak, outside, kept]);
}

#[test]
fn free_pages_that_come_and_go_while_it_is_watched_are_at_work() {
    let judged = |free: &dyn Fn(u64) -> u64| {
        let mut growth = Growth::default();
        let mut last = healthy();
        for look in 0..=10 {
            last = healthy();
            last.heap.as_mut().unwrap().trim.bytes = free(look) * MIB;
            growth.add(Duration::from_secs(look), &last);
        }
        let found = Diagnosis::of(&last, Some(&growth)).findings;
        found.iter().map(|one| one.kind).collect::<Vec<_>>()
    };
    assert_eq!(judged(&|look| 40 + look % 5), [Kind::KeptForReuse]);
    assert_eq!(judged(&|look| 12 * (look % 6)), []);
    // A peak ended while it was watched, all at once or bit by bit.
    let at_once = |look: u64| 40 * u64::from(look > 5);
    assert_eq!(judged(&at_once), [Kind::KeptForReuse]);
    assert_eq!(judged(&|look| 4 * look), [Kind::KeptForReuse]);
}

#[test]
fn growth_of_files_and_shared_memory_is_no_fault_and_growth_that_slows_down_is_none() {
    let watched = |grow: &dyn Fn(&mut Evidence, u64)| {
        let mut growth = Growth::default();
        let mut last = healthy();
        for look in 0..=Growth::ENOUGH as u64 {
            last = healthy();
            grow(&mut last, look);
            growth.add(std::time::Duration::from_secs(look), &last);
        }
        let found = Diagnosis::of(&last, Some(&growth)).findings;
        let kinds = found.iter().map(|finding| (finding.kind, finding.is_fault));
        kinds.collect::<Vec<_>>()
    };
    // A mapped file that is read for the first time: half of the memory would be a note.
    let file = |evidence: &mut Evidence, look| evidence.outside[0].resident += look * MIB / 4;
    assert_eq!(watched(&file), []);
    let pool = |evidence: &mut Evidence, look: u64| {
        let own = 40 * MIB * look / (look + 4);
        evidence.outside.push(private(own, own));
    };
    assert_eq!(watched(&pool), []);
    let leak = |evidence: &mut Evidence, look: u64| {
        evidence
            .outside
            .push(private(look * MIB / 2, look * MIB / 2));
    };
    assert_eq!(watched(&leak), [(Kind::GrowthOutside, true)]);
    // A heap of objects that collects its garbage late says nothing in a minute.
    let java = |evidence: &mut Evidence, look: u64| {
        leak(evidence, look);
        let jvm = loam_process::mappings::Mapping {
            name: "/lib/server/libjvm.so".to_owned(),
            executable: true,
            ..Default::default()
        };
        evidence.runtime = loam_process::runtimes::of(&[jvm]);
    };
    assert_eq!(watched(&java), [(Kind::GrowthOutside, false)]);
}

/// A leak of malloc is private memory that grows, where the allocator shows nothing.
#[test]
fn growth_on_an_allocator_that_shows_nothing_is_not_called_growth_outside_of_the_heap() {
    let mut growth = Growth::default();
    let mut last = healthy();
    for look in 0..=Growth::ENOUGH as u64 {
        last = healthy();
        last.allocator = "jemalloc".to_owned();
        last.heap = Err("its allocator does not show what it holds".to_owned());
        let own = (50 + look) * MIB;
        last.outside.push(private(own, own));
        growth.add(Duration::from_secs(look), &last);
    }
    let found = Diagnosis::of(&last, Some(&growth)).findings;
    let grows = &found[0];
    assert_eq!((grows.kind, grows.is_fault), (Kind::GrowthOutside, true));
    let said = format!(
        "{} {} {}",
        grows.verdict,
        grows.evidence.join(" "),
        grows.remedy
    );
    assert!(
        grows.verdict.starts_with("private memory grows by"),
        "{said}"
    );
    assert!(said.contains("on jemalloc the heap and the program's own mappings can not"));
    assert!(
        said.contains("`loam record --pid 1234` names who asks for it"),
        "{said}"
    );
    for claim in [
        "outside of the heap",
        "malloc has no part",
        "malloc does not hold",
    ] {
        assert!(!said.contains(claim), "{said}");
    }
}

#[test]
fn a_remedy_that_is_set_already_is_not_told_again() {
    let mut evidence = healthy();
    let heap = evidence.heap.as_mut().unwrap();
    let arena = Arena {
        resident_bytes: 4 * MIB,
        live_bytes: MIB,
        free_bytes: 3 * MIB,
    };
    heap.arenas.extend([arena; 16]);
    let told = |evidence: &Evidence| Diagnosis::of(evidence, None).findings[0].clone();
    let found = told(&evidence);
    assert!(found.remedy.contains("arena_max=2"), "{}", found.remedy);
    assert_eq!(found.gain_least_bytes, Some(0));
    evidence.settings = Settings::from("MALLOC_ARENA_MAX=2");
    assert!(told(&evidence).remedy.contains("is 2 already"));
}

#[test]
fn what_a_peer_does_not_tell_is_not_looked_at() {
    let mut evidence = healthy();
    let heap = evidence.heap.as_mut().unwrap();
    (heap.cached, heap.untold) = (60 * MIB, vec![Kind::Caches]);
    let found = Diagnosis::of(&evidence, None);
    assert!(!found.is_sick());
    let caches = found.ruled_out.iter().find(|out| out.kind == Kind::Caches);
    assert!(!caches.unwrap().was_looked_at);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_command_that_trims_is_named_with_what_it_gives_back() {
    let mut evidence = healthy();
    let heap = evidence.heap.as_mut().unwrap();
    (heap.trim.bytes, heap.trim.common, heap.top) = (60 * MIB, 10 * MIB, 50 * MIB);
    // What only the program itself can join does not count.
    heap.trim.joined = 10 * MIB;
    let command = format!("`loam trim {}`", evidence.pid);
    let told = |evidence: &Evidence, text: &str| {
        let found = Diagnosis::of(evidence, None).findings;
        let kept = found.iter().find(|one| one.kind == Kind::KeptForReuse);
        kept.unwrap().remedy.contains(&format!("{command}{text}"))
    };
    assert!(told(&evidence, " gives 40.0 MiB back now"));
    evidence.heap.as_mut().unwrap().purges = true;
    // A heap that is never called does not answer.
    let asked = " asks its own heap for these 40.0 MiB, which trims at the process's next";
    assert!(told(&evidence, asked), "on Loam");
    evidence.heap.as_mut().unwrap().is_peer = true;
    assert!(
        !told(&evidence, ""),
        "an allocator whose free pages are not known"
    );
}

#[test]
fn what_loams_trim_takes_out_of_spans_is_told_and_remedied_by_a_trim() {
    let found = |in_spans: u64| {
        let mut evidence = healthy();
        let heap = evidence.heap.as_mut().unwrap();
        (heap.between, heap.trim.between, heap.trim.bytes) = (40 * MIB, in_spans, in_spans);
        Diagnosis::of(&evidence, None).findings
    };
    let said = |in_spans: u64| found(in_spans)[0].evidence.join(" ");
    assert!(said(0).contains("neither malloc_trim()"));
    assert!(said(10 * MIB).contains("malloc_trim(0) would take about 10.0 MiB more"));
    // Where a trim brings most of it, the trim is the remedy.
    let kinds = found(30 * MIB);
    assert_eq!(kinds.len(), 1);
    assert_eq!(
        (kinds[0].kind, kinds[0].gain_bytes),
        (Kind::KeptForReuse, Some(30 * MIB))
    );
}

#[test]
fn what_the_system_was_not_asked_for_is_ruled_out_only_where_it_can_not_matter() {
    let seen = |private: u64| {
        let mut evidence = healthy();
        evidence.lazily_freed = None;
        evidence
            .outside
            .push(super::tests::private(private, private));
        let found = Diagnosis::of(&evidence, None).ruled_out;
        let lazily = found.iter().find(|out| out.kind == Kind::LazilyFreed);
        lazily.unwrap().was_looked_at
    };
    assert!(seen(5 * MIB), "only so much can be freed lazily");
    assert!(!seen(50 * MIB), "half of the memory may be");
}

/// A program with one fault, and the looks of a watch. The match makes a new kind without such a
/// program a compile error.
fn sick_of(kind: Kind) -> (Evidence, Option<Growth>) {
    let mut evidence = healthy();
    let heap = evidence.heap.as_mut().unwrap();
    let watched = |grow: fn(&mut Evidence, u64)| {
        let mut growth = Growth::default();
        for look in 0..=Growth::ENOUGH as u64 {
            let mut evidence = healthy();
            grow(&mut evidence, look * MIB);
            growth.add(std::time::Duration::from_secs(look), &evidence);
        }
        Some(growth)
    };
    let growth = match kind {
        Kind::Leak => watched(|evidence, by| evidence.heap.as_mut().unwrap().live += by),
        Kind::GrowthOutside => watched(|evidence, by| evidence.outside[0].own += by),
        Kind::Copies => watched(|evidence, by| {
            evidence.outside[0].own += by;
            evidence.common = (100 * MIB).saturating_sub(by);
        }),
        _ => None,
    };
    match kind {
        Kind::Leak | Kind::GrowthOutside | Kind::Copies => {}
        Kind::Stacks => {
            evidence.stacks = Part {
                mappings: 20,
                resident: 40 * MIB,
                huge: 38 * MIB,
                ..Part::default()
            };
        }
        Kind::PythonArenas => {
            evidence.python = Some(PythonPools {
                arenas: 61,
                bytes: 61 << 20,
                blocks: 40_000,
                live_bytes: 4 << 20,
                sparse_arenas: 60,
                sparse_bytes: 60 << 20,
                free_page_bytes: 40 << 20,
            });
        }
        Kind::HeldFiles => {
            evidence.held_files = HeldFiles {
                count: 3,
                bytes: 60 * MIB,
            };
        }
        Kind::Fragmentation => heap.between = 40 * MIB,
        Kind::PinnedTop => {
            heap.trim.bytes = 80 * MIB;
            let last = Sum {
                count: 1,
                bytes: 4096,
            };
            heap.pinned = Some((81 * MIB, last));
        }
        Kind::KeptForReuse => heap.trim.bytes = 50 * MIB,
        Kind::Arenas => {
            let arena = Arena {
                resident_bytes: 4 * MIB,
                live_bytes: MIB,
                free_bytes: 3 * MIB,
            };
            heap.arenas.extend([arena; 16]);
        }
        Kind::Caches => heap.cached = 30 * MIB,
        Kind::HugePageSlack => (evidence.huge, heap.top) = (60 * MIB, 50 * MIB),
        Kind::MemoryLimit => {
            evidence.limits.memory = Some(128 * MIB);
            evidence.limits.memory_used = Some(127 * MIB);
        }
        Kind::Swapped => evidence.swapped = 40 * MIB,
        Kind::LazilyFreed => evidence.lazily_freed = Some(40 * MIB),
        Kind::Untouched => heap.untouched = 60 * MIB,
        Kind::OutsideHeap => {
            evidence.outside[0].resident = 900 * MIB;
            evidence.resident = 1000 * MIB;
        }
    }
    (evidence, growth)
}

#[test]
fn each_rule_has_a_control_that_fails_without_it() {
    for kind in Kind::ALL {
        let (evidence, growth) = sick_of(kind);
        let found = Diagnosis::of(&evidence, growth.as_ref());
        let kinds: Vec<Kind> = found.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [kind]);
    }
}

#[test]
fn beside_a_watch_that_was_too_short_no_program_is_called_healthy() {
    let evidence = healthy();
    let mut growth = Growth::default();
    for second in 0..Growth::ENOUGH as u64 {
        growth.add(Duration::from_secs(second), &evidence);
        let found = Diagnosis::of(&evidence, Some(&growth));
        let is_enough = second + 1 == Growth::ENOUGH as u64;
        assert_eq!(found.is_healthy(), is_enough, "{second}");
        assert_eq!(found.unknown.is_some(), !is_enough);
    }
}
