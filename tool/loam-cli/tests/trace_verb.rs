//! `loam trace`: figures that the simulated program also knows, messages about damage, and tables
//! that other programs read.

use crate::common;
use crate::common::recorded;
use std::path::Path;

use crate::common::recorded::Program;
use crate::common::Ran;
use loam_format::trace::{ChunkKind, Event, Record};
use serde_json::Value;

fn trace(dir: &Path, arguments: &[&str]) -> Ran {
    let mut command = common::loam();
    Ran::of(
        command
            .current_dir(dir)
            .arg("trace")
            .args(arguments)
            .output()
            .unwrap(),
    )
}

/// Two threads, 300 blocks of 100 bytes, 100 of 5,000 bytes that thread 1 frees, and a peak in
/// between.
fn two_threads(path: &Path) -> recorded::Ran {
    let mut program = Program::record(path);
    program.event(0, Event::ThreadBegins);
    program.event(1, Event::ThreadBegins);
    let small: Vec<_> = (0..300).map(|_| program.allocate(0, 100)).collect();
    let large: Vec<_> = (0..100).map(|_| program.allocate(0, 5_000)).collect();
    program.sample(Some(700_000));
    for block in large {
        program.free(1, block);
    }
    for block in &small[..200] {
        program.free(0, *block);
    }
    let grown = program.resize(0, small[200], 1_000);
    program.resize(0, grown, 2_000);
    program.end()
}

#[test]
fn the_size_of_an_event_is_its_part_of_the_file_as_in_the_recording() {
    if common::recorder().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let record = ["record", "--output", "t.trace", "--", "ls", "/"];
    let recorded = common::loam_in(dir.path(), &record).err;
    let (_, rest) = recorded.split_once("loam: ").expect(&recorded);
    let (events, _) = rest.split_once(" events in ").expect(&recorded);
    let bytes = std::fs::metadata(dir.path().join("t.trace")).unwrap().len();
    let each = bytes as f64 / events.parse::<f64>().unwrap();
    let each = format!("{each:.2} bytes an event");
    let ran = trace(dir.path(), &["info", "t.trace"]);
    assert!(
        recorded.contains(&each) && ran.out.contains(&each),
        "{each}: {recorded} {ran:?}"
    );
}

#[test]
fn info_says_what_the_program_did() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let ran = two_threads(&dir.join("t.trace"));
    let out = trace(dir, &["info", "t.trace", "--json"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    let all: Value = serde_json::from_str(&out.out).unwrap();
    let summary = &all["summary"];
    assert_eq!(summary["events"], ran.events);
    assert_eq!(summary["allocations"], 400);
    assert_eq!(
        (&summary["resizes"], &summary["frees"]),
        (&2.into(), &300.into())
    );
    assert_eq!(summary["frees_of_others"], 100);
    assert_eq!(
        (&summary["peak_bytes"], &summary["peak_blocks"]),
        (&530_000.into(), &400.into())
    );
    assert_eq!(
        (&summary["end_bytes"], &summary["end_blocks"]),
        (&(99 * 100 + 2_000).into(), &100.into())
    );
    let at_peak = |up_to: u64| {
        let sizes = summary["sizes"].as_array().unwrap();
        let class = sizes
            .iter()
            .find(|class| class["up_to"].as_u64() >= Some(up_to));
        class.map(|class| (class["peak_blocks"].clone(), class["peak_bytes"].clone()))
    };
    assert_eq!(at_peak(100), Some((300.into(), 30_000.into())));
    assert_eq!(at_peak(5_000), Some((100.into(), 500_000.into())));
    assert_eq!(summary["thread_count"], 2);
    assert_eq!(all["processes"][0]["end"]["ended"]["code"], 0);
    let text = trace(dir, &["info", "t.trace"]).out;
    for part in [
        "simulated --server",
        "of which 100 by another thread",
        "518 KiB in 400 blocks",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn head_prints_so_many_events() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    two_threads(&dir.join("t.trace"));
    let out = trace(dir, &["head", "-n", "3", "t.trace"]).out;
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(
        lines[1].contains("thread begins") && lines[3].contains("malloc 100 -> 0x7f0000000000"),
        "{out}"
    );
}

#[test]
fn check_names_each_thing_that_is_wrong() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let good = dir.join("t.trace");
    two_threads(&good);
    let out = trace(dir, &["check", "t.trace"]);
    assert_eq!(
        (out.code, out.out.contains("nothing is wrong")),
        (Some(0), true),
        "{out:?}"
    );

    let wrong = |name: &str, parts: &[&str]| {
        let out = trace(dir, &["check", name]);
        assert_eq!(out.code, Some(1), "{out:?}");
        parts
            .iter()
            .for_each(|part| assert!(out.out.contains(part), "{part}: {}", out.out));
        let json = trace(dir, &["check", name, "--json"]);
        assert_eq!(json.code, Some(1));
        let findings: Value = serde_json::from_str(&json.out).unwrap();
        assert!(!findings["wrong"].as_array().unwrap().is_empty());
    };
    let bytes = std::fs::read(&good).unwrap();
    std::fs::write(dir.join("cut.trace"), &bytes[..bytes.len() * 2 / 3]).unwrap();
    wrong(
        "cut.trace",
        &["the file ends within a chunk", "it has no end"],
    );
    let mut flipped = bytes.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 4;
    std::fs::write(dir.join("flipped.trace"), &flipped).unwrap();
    wrong("flipped.trace", &["at byte"]);

    // The recorder missed a free, and it missed the beginning of a block.
    let lost = |record: Record| match record.event {
        Event::Free {
            address: 0x7f00_0000_0000,
            ..
        } => None,
        Event::Allocate {
            address, size: 100, ..
        } if address == 0x7f00_0000_0000 + 112 => None,
        _ => Some(record),
    };
    recorded::copy(&good, &dir.join("lost.trace"), lost, Some);
    wrong(
        "lost.trace",
        &["1 frees are of blocks that nobody saw begin"],
    );
    // Readers of what is whole say so.
    recorded::copy_until(ChunkKind::End, &good, &dir.join("late.trace"));
    for export in ["--table=sizes", "--table=samples", "--format=firefox"] {
        let out = trace(
            dir,
            &[
                "export",
                "late.trace",
                export,
                "--output=t.out",
                "--overwrite",
            ],
        );
        assert_eq!(out.code, Some(0), "{out:?}");
        assert!(out.err.contains("has no end"), "{export}: {out:?}");
    }
    let mut program = Program::record(&dir.join("dropped.trace"));
    program.allocate(0, 5);
    program.event(0, Event::Dropped { count: 12 });
    program.end();
    wrong("dropped.trace", &["12 events were not recorded"]);
    Program::record(&dir.join("empty.trace")).end();
    wrong("empty.trace", &["it has no events"]);
}

#[test]
fn the_time_after_the_last_event_belongs_to_the_recording() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let mut program = Program::record(&dir.join("t.trace"));
    program.allocate(0, 5_000);
    program.allocate(0, 5_000);
    program.time += 3_000_000_000;
    program.sample(Some(10_000));
    program.time += 2_000_000_000;
    program.end();
    let out = trace(dir, &["info", "t.trace", "--json"]);
    let all: Value = serde_json::from_str(&out.out).unwrap();
    let nanoseconds = all["summary"]["nanoseconds"].as_u64().unwrap();
    assert!(nanoseconds >= 5_000_000_000, "{nanoseconds}");
}

#[test]
fn a_name_that_is_no_text_is_a_name_too() {
    use std::os::unix::ffi::OsStrExt;
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let name = std::ffi::OsStr::from_bytes(b"t\xff.trace");
    two_threads(&dir.join(name));
    let mut command = common::loam();
    let command = command.current_dir(dir).args(["trace", "info", "--json"]);
    let out = Ran::of(command.arg(name).output().unwrap());
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(serde_json::from_str::<Value>(&out.out).is_ok(), "{out:?}");
}

#[test]
fn exported_tables_have_every_event_and_every_block() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let ran = two_threads(&dir.join("t.trace"));
    let events = trace(dir, &["export", "t.trace"]).out;
    let mut reader = csv::Reader::from_reader(events.as_bytes());
    assert_eq!(reader.headers().unwrap().get(4), Some("event"));
    assert_eq!(
        reader.records().map(Result::unwrap).count() as u64,
        ran.events
    );

    let blocks = trace(
        dir,
        &[
            "export", "t.trace", "--table", "blocks", "--format", "jsonl",
        ],
    )
    .out;
    let rows: Vec<Value> = blocks
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Each block has one row, but a block that was resized twice has three.
    assert_eq!(rows.len(), 402);
    let live: u64 = rows
        .iter()
        .filter(|row| row["end"].is_null())
        .map(|row| row["size"].as_u64().unwrap())
        .sum();
    assert_eq!(live, ran.live);
    assert_eq!(
        rows.iter().filter(|row| row["end_thread"] == 1).count(),
        100
    );
    let resized: Vec<_> = rows
        .iter()
        .filter(|row| row["block"] == 200)
        .map(|row| row["size"].clone())
        .collect();
    assert_eq!(resized, [100, 1_000, 2_000]);

    let out = trace(
        dir,
        &[
            "export",
            "t.trace",
            "--table",
            "samples",
            "--output",
            "samples.csv",
        ],
    );
    assert_eq!((out.code, out.out.as_str()), (Some(0), ""), "{out:?}");
    let samples = std::fs::read_to_string(dir.join("samples.csv")).unwrap();
    assert!(
        samples.lines().nth(1).unwrap().contains(",700000,"),
        "{samples}"
    );
    // Nothing is replaced unasked.
    let again = ["export", "t.trace", "--output", "samples.csv"];
    let out = trace(dir, &again);
    assert_eq!(out.code, Some(2), "{out:?}");
    assert!(out.err.contains("--overwrite"), "{out:?}");
    let kept = std::fs::read_to_string(dir.join("samples.csv")).unwrap();
    assert_eq!(kept, samples);
    let out = trace(dir, &[&again[..], &["--overwrite"]].concat());
    assert_eq!(out.code, Some(0), "{out:?}");
    let replaced = std::fs::read_to_string(dir.join("samples.csv")).unwrap();
    assert_eq!(replaced, events);
    let out = trace(dir, &["export", "t.trace", "--output", "no/such/folder"]);
    assert_eq!(out.code, Some(2));
    assert!(out.err.contains("no/such/folder"), "{}", out.err);
}
