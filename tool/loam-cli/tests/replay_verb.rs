//! `loam replay` with traces of simulated programs: the replayer does what the trace says, in
//! bounded memory. If a trace does not reproduce its program, it is refused as a source of advice.

use crate::common;
use crate::common::recorded;
use std::path::Path;
use std::process::Command;

use crate::common::recorded::{Program, PAGE};
use crate::common::{replayer, Ran};
use loam_format::trace::{AllocFamily, Event, Header, Process, Record, Sample, Writer};
use loam_lab::replay::{self, Prepared, Wishes};
use loam_lab::traces::Never;
use serde_json::Value;

fn prepared(trace: &Path, folder: &Path, pauses: bool) -> Prepared {
    let survey = replay::survey(trace).unwrap();
    let stream = survey.choose(None).unwrap();
    let wishes = Wishes {
        pauses,
        ..Wishes::default()
    };
    replay::prepare(&survey, stream, wishes, folder, &Never).unwrap()
}

/// Runs the replayer alone. Returns its lines.
fn replayed(program: &Path, arguments: &[&str]) -> Vec<Value> {
    replayed_on(program, arguments, None)
}

/// The same with a preloaded library.
fn replayed_on(program: &Path, arguments: &[&str], library: Option<&Path>) -> Vec<Value> {
    let replayer = replayer().expect("looked for before");
    let output = Command::new(replayer)
        .envs(library.map(|path| ("LD_PRELOAD", path)))
        .arg("--program")
        .arg(program)
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_replay_lasts_until_the_recording_ended() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.trace");
    let mut program = Program::record(&trace);
    program.allocate(0, 5_000);
    program.time += 3_000_000_000;
    program.sample(Some(8_192));
    program.time += 1_000_000_000;
    program.end();
    let prepared = prepared(&trace, folder.path(), false);
    assert!(prepared.nanoseconds >= 4_000_000_000, "{prepared:?}");
    assert_eq!(prepared.compared, 1);
}

/// A server: a main thread and workers that pass blocks to each other. The blocks are of every
/// family; some are resized, some are large and touched in part. All choices are random, with a
/// seed.
fn server(trace: &Path, workers: u32, steps: u64) -> recorded::Ran {
    let mut program = Program::record(trace);
    program.event(0, Event::ThreadBegins);
    for worker in 1..=workers {
        program.event(worker, Event::ThreadBegins);
    }
    let mut blocks = Vec::new();
    for step in 0..steps {
        let thread = program.random(u64::from(workers) + 1) as u32;
        if blocks.len() < 2_000 || (blocks.len() < 20_000 && program.random(2) == 0) {
            let size = match program.random(100) {
                0..90 => 16 + program.random(600),
                90..98 => 1_000 + program.random(7_000),
                _ => 8_192 + program.random(400_000),
            };
            let family = AllocFamily::ALL[program.random(8) as usize];
            let alignment = if family.is_aligned() {
                16 << program.random(9)
            } else {
                0
            };
            blocks.push(program.allocate_by(thread, size, family, alignment));
        } else {
            let at = program.random(blocks.len() as u64) as usize;
            let block = blocks.swap_remove(at);
            if program.random(10) == 0 {
                let size = 1 + program.random(3 * block.size + 100);
                blocks.push(program.resize(thread, block, size));
            } else {
                let touched = (block.size >= 2 * PAGE).then_some(block.size / PAGE / 3);
                program.free_touched(thread, block, touched);
            }
        }
        if step % 5_000 == 0 {
            program.sample(Some(program.live));
        }
    }
    for worker in 1..=workers {
        program.event(worker, Event::ThreadEnds);
    }
    program.end()
}

#[test]
fn what_an_allocator_has_before_its_first_block_counts_as_its_memory() {
    if replayer().is_none() {
        return;
    }
    const FIXED: u64 = 8 << 20;
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("server.trace");
    server(&trace, 1, 20_000);
    let prepared = prepared(&trace, dir.path(), false);
    let source = dir.path().join("fixed.c");
    std::fs::write(
        &source,
        format!(
            "#include <string.h>\n\
             #include <sys/mman.h>\n\
             __attribute__((constructor)) static void start(void) {{ memset(mmap(0, {FIXED}, 3, \
             0x22, -1, 0), 1, {FIXED}); }}\n"
        ),
    )
    .unwrap();
    let library = dir.path().join("fixed.so");
    common::compile(&["-shared", "-fPIC"], &source, &library);
    let figures = |library: Option<&Path>| {
        let lines = replayed_on(&prepared.path, &[], library);
        let bytes = |line: &Value, key: &str| line[key].as_u64().unwrap();
        let last = lines.iter().rfind(|line| line["type"] == "checkpoint");
        (
            bytes(&lines[0], "fixed_bytes"),
            bytes(last.unwrap(), "anonymous_bytes"),
            bytes(lines.last().unwrap(), "heap_peak_bytes"),
        )
    };
    let (plain, fixed) = (figures(None), figures(Some(&library)));
    assert_eq!(plain.0, 0);
    // The loader's own data of one more library, and where the kernel lays the stack.
    assert!(
        (FIXED..FIXED + (1 << 20)).contains(&fixed.0),
        "{plain:?} {fixed:?}"
    );
    // Which thread comes first changes what the system's heap takes by some hundred KiB.
    let near = |more: u64| more.abs_diff(FIXED) < FIXED / 8;
    assert!(near(fixed.1 - plain.1), "{plain:?} {fixed:?}");
    assert!(near(fixed.2 - plain.2), "{plain:?} {fixed:?}");
}

#[test]
fn the_process_that_requested_most_bytes_is_replayed_not_the_one_with_most_events() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = Writer::new(file, &Header::default()).unwrap();
    for (count, size) in [(1_000, 20), (3, 1 << 20)] {
        let stream = writer.process(&Process::default()).unwrap();
        for at in 0..count {
            let event = Event::Allocate {
                family: AllocFamily::Malloc,
                address: 0x1000_0000 + at * 0x20_0000,
                size,
                alignment: 0,
            };
            let record = Record {
                time: at,
                thread: 0,
                event,
            };
            writer.push(stream, &record).unwrap();
        }
    }
    writer.finish().unwrap();
    let survey = replay::survey(&path).unwrap();
    assert_eq!(survey.choose(None).unwrap(), 1);
}

#[test]
fn a_prepared_replay_has_no_name_that_could_stay_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, folder) = (dir.path().join("server.trace"), dir.path().join("folder"));
    std::fs::create_dir(&folder).unwrap();
    server(&trace, 1, 20_000);
    let prepared = prepared(&trace, &folder, false);
    assert!(prepared.path.exists());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn the_replayer_does_what_the_trace_says() {
    if replayer().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("server.trace");
    let ran = server(&trace, 7, 60_000);
    let prepared = prepared(&trace, dir.path(), false);
    assert_eq!(
        (prepared.events, prepared.allocations),
        (ran.events, ran.allocations)
    );
    assert_eq!((prepared.threads, prepared.most_threads), (8, 8));
    assert_eq!(prepared.peak_live, ran.peak);
    let lines = replayed(&prepared.path, &[]);
    let end = lines.last().unwrap();
    assert_eq!(end["allocations"], ran.allocations, "{end}");
    assert_eq!(end["frees"], ran.frees);
    assert_eq!(end["live_bytes"], ran.live);
    assert_eq!(end["failed_allocations"], 0);
    let points: Vec<&Value> = lines
        .iter()
        .filter(|line| line["type"] == "checkpoint")
        .collect();
    assert_eq!(points.len(), prepared.points);
    let most = points
        .iter()
        .map(|point| point["live_bytes"].as_u64().unwrap())
        .max();
    assert_eq!(most, Some(ran.peak), "the peak has a point of its own");
    // The samples have the live bytes of the simulation, and the replayer counts them itself.
    let compared: Vec<_> = points
        .iter()
        .filter(|point| !point["recorded_heap_bytes"].is_null())
        .collect();
    assert_eq!(compared.len(), prepared.compared);
    assert!(compared.len() >= 11, "{}", compared.len());
    for point in &compared {
        assert_eq!(point["recorded_heap_bytes"], point["live_bytes"], "{point}");
        assert!(point["heap_bytes"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_free_waits_for_the_block_that_another_thread_allocates() {
    if replayer().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("handoff.trace");
    let mut program = Program::record(&trace);
    program.event(0, Event::ThreadBegins);
    for thread in 1..=64 {
        program.event(thread, Event::ThreadBegins);
    }
    // The next thread frees each block, and its place is used again at once.
    for turn in 0..10_000u32 {
        let block = program.allocate(turn % 65, 64);
        program.free((turn + 1) % 65, block);
    }
    let ran = program.end();
    let prepared = prepared(&trace, dir.path(), false);
    let lines = replayed(&prepared.path, &[]);
    let end = lines.last().unwrap();
    assert_eq!(
        (&end["allocations"], &end["frees"]),
        (&ran.allocations.into(), &ran.frees.into())
    );
    assert_eq!(end["live_bytes"], 0);
}

#[test]
fn ten_thousand_threads_one_after_the_other_take_a_few_seats() {
    if replayer().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("waves.trace");
    let mut program = Program::record(&trace);
    program.event(0, Event::ThreadBegins);
    let mut kept = Vec::new();
    for thread in 1..=10_000 {
        program.event(thread, Event::ThreadBegins);
        let blocks = [24, 100, 3_000].map(|size| program.allocate(thread, size));
        program.free(thread, blocks[0]);
        kept.push(blocks[1]);
        program.free(0, blocks[2]);
        program.event(thread, Event::ThreadEnds);
    }
    for block in kept {
        program.free(0, block);
    }
    let ran = program.end();
    let prepared = prepared(&trace, dir.path(), false);
    assert_eq!((prepared.threads, prepared.most_threads), (10_001, 2));
    let lines = replayed(&prepared.path, &[]);
    let end = lines.last().unwrap();
    assert_eq!(
        (&end["threads"], &end["allocations"]),
        (&10_001.into(), &ran.allocations.into())
    );
    let baseline = lines[0]["baseline_resident_bytes"].as_u64().unwrap();
    assert!(
        baseline < 32 << 20,
        "the replayer itself takes {baseline} bytes"
    );
}

#[test]
fn pauses_are_kept_when_they_are_asked_for() {
    if replayer().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("pauses.trace");
    let mut program = Program::record(&trace);
    program.step = 10_000_000;
    for _ in 0..50 {
        let block = program.allocate(0, 100);
        program.free(0, block);
    }
    program.end();
    let prepared = prepared(&trace, dir.path(), true);
    let seconds = |speed: &str| {
        let lines = replayed(&prepared.path, &["--speed-percent", speed]);
        let points = lines.iter().filter(|line| line["type"] == "checkpoint");
        points
            .map(|point| point["seconds"].as_f64().unwrap())
            .sum::<f64>()
    };
    // The recording took 0.99 s. There are no upper limits, because the machine may be busy.
    assert!(seconds("100") >= 0.95);
    assert!((0.22..0.9).contains(&seconds("400")));
    assert!(seconds("0") < 0.5);
}

/// The size of the replay's heap at each point where the recorder looked.
fn heaps(lines: &[Value]) -> Vec<u64> {
    let compared = lines
        .iter()
        .filter(|line| !line["recorded_heap_bytes"].is_null());
    compared
        .map(|line| line["heap_bytes"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_large_block_grows_as_it_was_seen_to() {
    if replayer().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("growing.trace");
    let mut program = Program::record(&trace);
    program.event(0, Event::ThreadBegins);
    program.event(1, Event::ThreadBegins);
    let pages = (64 << 20) / PAGE;
    let large = program.allocate(1, 64 << 20);
    let mut seen = Vec::new();
    for part in [0, 1, 1, 5, 8] {
        // Only their times distinguish looks without events between them.
        program.time += 1_000_000;
        program.saw(large, pages * part / 8);
        program.sample(Some(1));
        seen.push((64 << 20) * part / 8);
    }
    // Between the last look and its end, another block was touched completely.
    let small = program.allocate(0, 16 << 20);
    program.saw(small, 16);
    program.time += 1_000_000;
    program.sample(Some(1));
    program.free_touched(1, small, Some((16 << 20) / PAGE));
    program.free(0, large);
    program.end();
    let prepared = prepared(&trace, dir.path(), false);
    let lines = replayed(&prepared.path, &[]);
    let heaps = heaps(&lines);
    println!("{seen:?} {heaps:?}");
    for (heap, seen) in heaps.iter().zip(&seen) {
        assert!(
            (*seen..seen + (1 << 20)).contains(heap),
            "{heaps:?} instead of {seen:?}"
        );
    }
    let end = lines.last().unwrap();
    let peak = end["heap_peak_bytes"].as_u64().unwrap();
    assert!(peak >= 80 << 20, "{end}");
}

#[test]
fn memory_is_asked_back_where_the_program_asked_for_it() {
    if replayer().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trim.trace");
    let mut program = Program::record(&trace);
    let blocks: Vec<_> = (0..20_000).map(|_| program.allocate(0, 2_000)).collect();
    // One in twenty blocks stays and keeps the heap from shrinking.
    for (number, block) in blocks.into_iter().enumerate() {
        if number % 20 != 19 {
            program.free(0, block);
        }
    }
    program.sample(Some(1));
    program.event(0, Event::Trim { keep: 0 });
    program.time += 1_000_000;
    program.sample(Some(1));
    let kept = program.allocate(0, 100);
    program.free(0, kept);
    program.sample(Some(1));
    program.end();
    let prepared = prepared(&trace, dir.path(), false);
    let heaps = heaps(&replayed(&prepared.path, &[]));
    assert!(
        heaps[0] > 36 << 20 && heaps[1] < 12 << 20,
        "before and after the trim: {heaps:?}"
    );
}

#[test]
fn a_child_of_fork_frees_what_its_parent_allocated() {
    if replayer().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = common::root().join("tests/recorder/inherits.c");
    let product = dir.path().join("inherits");
    common::compile(&["-O1", "-fno-builtin", "-w"], &source, &product);
    let mut command = common::loam();
    command.current_dir(dir.path());
    command.args(["record", "-o", "t.trace", "--", "./inherits", "400"]);
    let ran = Ran::of(command.output().unwrap());
    if ran.err.contains("no libloam-record.so") {
        return common::skip("build/libloam-record.so has not been built");
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let survey = replay::survey(&dir.path().join("t.trace")).unwrap();
    assert_eq!(survey.forked_from(1), Some(0));
    let folder = dir.path().join("child");
    std::fs::create_dir(&folder).unwrap();
    let child = replay::prepare(&survey, 1, Wishes::default(), &folder, &Never).unwrap();
    assert_eq!(child.repairs.unknown_frees, 0, "{child:?}");
    let lines = replayed(&child.path, &[]);
    let end = lines.last().unwrap();
    let live = end["live_bytes"].as_u64().unwrap();
    // A quarter of the parent's two thousand blocks, and five hundred of the child's own.
    let expected = 500 * 30_000 + 500 * 20_000;
    assert!((expected..expected + 100_000).contains(&live), "{end}");
    // The child's looks are compared, and include the blocks that it inherited.
    let points = lines
        .iter()
        .filter(|line| !line["recorded_heap_bytes"].is_null());
    let pairs: Vec<(u64, u64)> = points
        .map(|point| {
            let bytes = |name: &str| point[name].as_u64().unwrap();
            (bytes("heap_bytes"), bytes("recorded_heap_bytes"))
        })
        .collect();
    assert!(pairs.iter().any(|pair| pair.1 > 55 << 20), "{pairs:?}");
    let last = pairs[pairs.len() - 1];
    assert!(last.0.abs_diff(last.1) < 3 << 20, "{pairs:?}");
    // Meanwhile the parent waits with all its blocks. Its looks are not the child's.
    let late = &pairs[pairs.len() * 3 / 4..];
    assert!(late.iter().all(|pair| pair.1 < 40 << 20), "{pairs:?}");
    // The parent's own replay ends without live blocks.
    let folder = dir.path().join("parent");
    std::fs::create_dir(&folder).unwrap();
    let parent = replay::prepare(&survey, 0, Wishes::default(), &folder, &Never).unwrap();
    let end = replayed(&parent.path, &[]).pop().unwrap();
    assert!(end["live_bytes"].as_u64().unwrap() < 100_000, "{end}");
}

/// The largest resident bytes of this process.
fn high_water() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kb: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kb << 10
}

/// This test runs alone in its process, because the high-water mark is the process's.
#[test]
fn three_million_events_are_prepared_and_replayed_in_bounded_memory() {
    if replayer().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("long.trace");
    if std::env::var_os("LOAM_TEST_ALONE").is_none() {
        // Runs this test binary again with this test only.
        let name = "replay_verb::three_million_events_are_prepared_and_replayed_in_bounded_memory";
        let me = std::env::current_exe().unwrap();
        let output = Command::new(me)
            .args([name, "--exact", "--nocapture"])
            .env("LOAM_TEST_ALONE", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
        println!("{said}");
        return;
    }
    let ran = server(&trace, 3, 3_000_000);
    let before = high_water();
    let prepared = prepared(&trace, dir.path(), false);
    let grown = high_water() - before;
    println!(
        "{} events, {} bytes of trace, {} bytes prepared, memory grew by {grown}",
        ran.events,
        std::fs::metadata(&trace).unwrap().len(),
        prepared.bytes
    );
    // 25 MiB, however many events there are. Four bytes for each would be 12 MiB more.
    assert!(grown < 36 << 20, "preparing took {grown} bytes more");
    let lines = replayed(&prepared.path, &[]);
    let end = lines.last().unwrap();
    assert_eq!(end["allocations"], ran.allocations);
    let baseline = lines[0]["baseline_resident_bytes"].as_u64().unwrap();
    assert!(
        baseline < 32 << 20,
        "the replayer itself takes {baseline} bytes"
    );
}

// ---- The check of the replay
// ----------------------------------------------------------------------------------

/// Threads that grow one after the other, each leaving an arena behind that other threads can not
/// use, while large blocks are touched in part: the memory depends on both.
fn stranding_threads(trace: &Path) {
    let mut program = Program::record(trace);
    program.event(0, Event::ThreadBegins);
    let workers = 12;
    for worker in 1..=workers {
        program.event(worker, Event::ThreadBegins);
    }
    let mut large = Vec::new();
    for worker in 1..=workers {
        // Each thread grows in its turn and keeps its last block, so that its arena stays as it is.
        let mut mine: Vec<_> = (0..8_000).map(|_| program.allocate(worker, 400)).collect();
        large.extend((0..4).map(|_| program.allocate(0, 1 << 20)));
        program.sample(Some(1));
        mine.pop();
        for block in mine {
            program.free(worker, block);
        }
        program.sample(Some(1));
    }
    for block in large {
        program.free_touched(0, block, Some(26));
    }
    program.sample(Some(1));
    program.end();
}

/// `loam replay` in a folder.
fn replay_verb(dir: &Path, arguments: &[&str]) -> Ran {
    let mut command = common::loam();
    Ran::of(
        command
            .current_dir(dir)
            .arg("replay")
            .args(arguments)
            .output()
            .unwrap(),
    )
}

fn error_of(dir: &Path, results: &str) -> Value {
    let text = std::fs::read_to_string(dir.join(results)).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    results["experiments"][0]["trace"]["error"].clone()
}

/// The same trace with a recorded curve: that of its own replay on the system's malloc. The first
/// replay thus takes the place of the program, and the check must find the second one equal to it.
fn with_curve(dir: &Path, from: &str, to: &str) {
    let prepared = prepared(&dir.join(from), dir, false);
    let lines = replayed(&prepared.path, &[]);
    let curve: Vec<u64> = lines
        .iter()
        .filter(|line| !line["recorded_heap_bytes"].is_null())
        .map(|line| line["heap_bytes"].as_u64().unwrap())
        .collect();
    let at = std::cell::Cell::new(0);
    let sample = |sample: Sample| {
        let resident_heap = curve.get(at.get()).copied();
        at.set(at.get() + 1);
        Some(Sample {
            resident_heap,
            ..sample
        })
    };
    recorded::copy(&dir.join(from), &dir.join(to), Some, sample);
    assert_eq!(at.get(), curve.len());
}

#[test]
fn a_good_trace_passes_the_check_and_one_without_touches_or_threads_fails_it() {
    if replayer().is_none() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    stranding_threads(&dir.join("bare.trace"));
    with_curve(dir, "bare.trace", "good.trace");
    let run = |trace: &str| {
        let json = format!("{trace}.json");
        let arguments = [
            trace,
            "--allocators",
            "system",
            "--trials",
            "1",
            "--json",
            &json,
        ];
        (replay_verb(dir, &arguments), error_of(dir, &json))
    };

    let (ran, error) = run("good.trace");
    println!("good: {error}");
    assert_eq!(error["reproduces"], true, "{error} {ran:?}");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("replay error"), "{}", ran.out);
    let page = std::fs::read_to_string(dir.join("good.trace.html")).unwrap();
    assert!(page.contains("replay error") && page.contains("reproduces the program"));

    // No look counted pages, so large blocks seem to be touched completely.
    let untouched = |record: Record| {
        let event = match record.event {
            Event::Free {
                family,
                address,
                size,
                ..
            } => Event::Free {
                family,
                address,
                size,
                touched: None,
            },
            other => other,
        };
        Some(Record { event, ..record })
    };
    recorded::copy(
        &dir.join("good.trace"),
        &dir.join("untouched.trace"),
        untouched,
        Some,
    );
    let (ran, error) = run("untouched.trace");
    println!("untouched: {error}");
    assert_eq!(error["reproduces"], false, "{error}");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("does NOT reproduce"), "{}", ran.out);
    assert!(!ran.out.contains("Least memory"), "{}", ran.out);
    let page = std::fs::read_to_string(dir.join("untouched.trace.html")).unwrap();
    assert!(page.contains("does NOT reproduce") && !page.contains("Least memory"));

    // With a single thread the heap has one arena, and memory that a thread left free can serve the
    // other threads.
    let merged = |record: Record| match record.event {
        Event::ThreadBegins | Event::ThreadEnds => None,
        _ => Some(Record {
            thread: 0,
            ..record
        }),
    };
    recorded::copy(
        &dir.join("good.trace"),
        &dir.join("merged.trace"),
        merged,
        Some,
    );
    let (ran, error) = run("merged.trace");
    println!("merged: {error}");
    assert_eq!(error["reproduces"], false, "{error}");
    assert_eq!(ran.code, Some(1), "{ran:?}");
}

#[test]
fn a_trace_that_can_not_be_replayed_says_why() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    if replayer().is_none() {
        return;
    }
    let said = |trace: &str, more: &[&str]| {
        let ran = replay_verb(dir, &[&[trace], more].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        ran.err
    };
    assert!(said("absent.trace", &[]).contains("absent.trace"));
    std::fs::write(dir.join("text.trace"), "hello").unwrap();
    assert!(said("text.trace", &[]).contains("no trace of `loam record`"));
    Program::record(&dir.join("nothing.trace")).end();
    assert!(said("nothing.trace", &[]).contains("has no events"));
    let mut program = Program::record(&dir.join("one.trace"));
    program.allocate(0, 1);
    program.end();
    let err = said("one.trace", &["--process", "3"]);
    assert!(err.contains("no process 3"), "{err}");
    let err = said("one.trace", &["--speed", "fast"]);
    assert!(err.contains("`max` or a number"), "{err}");
}
