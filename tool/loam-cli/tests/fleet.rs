//! A dataset of traces, the five questions to it, and the sweep that replays many traces.

use crate::common;
use crate::common::clients;
use crate::common::recorded;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::recorded::Program;
use crate::common::{loam_in, replayer, root, skip, Ran};
use loam_format::trace::{Event, Header, Process};
use serde_json::Value;

/// A recorded process of the fleet.
struct Recorded<'a> {
    host: &'a str,
    program: &'a str,
    day: &'a str,
    release: &'a str,
    /// Number of live blocks of 1,000 bytes. Another thread frees as many again.
    blocks: u64,
    /// Resident bytes for each live byte, in percent.
    percent: u64,
}

const FLEET: [Recorded; 5] = [
    Recorded {
        host: "a1",
        program: "shop",
        day: "2026-11-02",
        release: "1.0",
        blocks: 100,
        percent: 200,
    },
    Recorded {
        host: "b/2",
        program: "shop",
        day: "2026-11-03",
        release: "1.0",
        blocks: 100,
        percent: 200,
    },
    Recorded {
        host: "a1",
        program: "shop",
        day: "2026-11-09",
        release: "1.1",
        blocks: 150,
        percent: 200,
    },
    Recorded {
        host: "a1",
        program: "search engine",
        day: "2026-11-02",
        release: "7",
        blocks: 500,
        percent: 110,
    },
    Recorded {
        host: "b/2",
        program: "search engine",
        day: "2026-11-09",
        release: "8",
        blocks: 500,
        percent: 105,
    },
];

fn record(path: &Path, of: &Recorded) {
    let header = Header {
        started: format!("{}T10:00:00Z", of.day),
        host: of.host.into(),
        ..recorded::header()
    };
    let process = Process {
        program: format!("/usr/bin/{}", of.program),
        ..recorded::process()
    };
    let mut program = Program::record_as(path, &header, &process);
    program.event(0, Event::ThreadBegins);
    program.event(1, Event::ThreadBegins);
    let look = |program: &mut Program| {
        let resident = program.live * of.percent / 100;
        program.sample(Some(resident));
    };
    program.mark(of.release);
    for _ in 0..of.blocks {
        program.allocate(0, 1_000);
    }
    look(&mut program);
    for _ in 0..of.blocks {
        let block = program.allocate(0, 1_000);
        program.free(1, block);
    }
    look(&mut program);
    program.allocate(0, 8);
    look(&mut program);
    program.end();
}

/// Exports a trace into `fleet`, with further options.
fn export(dir: &Path, trace: &str, release: &str, more: &[&str]) {
    let begin = ["trace", "export", trace, "--dataset", "fleet"];
    let ran = loam_in(dir, &[&begin[..], &["--release", release], more].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// Records the fleet and exports it into `fleet`, without replays.
fn dataset(dir: &Path) {
    for (number, of) in FLEET.iter().enumerate() {
        let trace = format!("{number}.trace");
        record(&dir.join(&trace), of);
        export(dir, &trace, of.release, &[]);
    }
}

/// Adds replays: real trials of simulated traces. The verdict on each replay is set here, since a
/// simulated program can not be reproduced.
fn add_replays(dir: &Path) {
    for (number, of) in FLEET.iter().enumerate().take(2) {
        let (trace, json) = (format!("{number}.trace"), format!("{number}.json"));
        let ran = loam_in(
            dir,
            &[
                "replay",
                &trace,
                "--allocators",
                "system,again=system:MALLOC_ARENA_MAX=1",
                "--trials",
                "2",
                "--json",
                &json,
            ],
        );
        assert!(matches!(ran.code, Some(0 | 1)), "{ran:?}");
        let text = fs::read_to_string(dir.join(&json)).unwrap();
        let mut results: Value = serde_json::from_str(&text).unwrap();
        results["experiments"][0]["trace"]["error"] = serde_json::json!({
            "at_peak": 0.01, "on_average": 0.02, "points": 3, "trials": 2, "reproduces": true
        });
        fs::write(dir.join(&json), results.to_string()).unwrap();
        export(dir, &trace, of.release, &["--replays", &json]);
    }
}

fn ask(python: &Path, dir: &Path, options: &[&str]) -> Ran {
    let out = Command::new(python)
        .arg(root().join("examples/fleet/ask"))
        .arg("fleet")
        .args(options)
        .current_dir(dir)
        .output()
        .unwrap();
    Ran::of(out)
}

fn answers(python: &Path, dir: &Path, options: &[&str]) -> Value {
    let ran = ask(python, dir, &[options, &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn a_dataset_lies_by_host_program_and_day() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    dataset(dir);
    let files = |table: &str| {
        let found = Command::new("find")
            .args([
                &format!("fleet/{table}"),
                "-name",
                "*.parquet",
                "-printf",
                "%h\n",
            ])
            .current_dir(dir)
            .output()
            .unwrap();
        let mut lines: Vec<String> = Ran::of(found).out.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        files("processes"),
        [
            "fleet/processes/host=a1/program=search%20engine/day=2026-11-02",
            "fleet/processes/host=a1/program=shop/day=2026-11-02",
            "fleet/processes/host=a1/program=shop/day=2026-11-09",
            "fleet/processes/host=b%2F2/program=search%20engine/day=2026-11-09",
            "fleet/processes/host=b%2F2/program=shop/day=2026-11-03",
        ]
    );
    // If a trace is added again, its own files are replaced. A table without rows has no file.
    dataset(dir);
    assert_eq!(files("processes").len(), 5);
    assert_eq!(files("marks").len(), 5);
    assert_eq!(files("stacks").len(), 0);
}

#[test]
fn what_a_dataset_needs_and_a_trace_does_not_say_is_asked_for() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let mut program = Program::record(&dir.join("bare.trace"));
    program.allocate(0, 8);
    program.end();
    let add = |options: &[&str]| {
        let all = [
            &["trace", "export", "bare.trace", "--dataset", "fleet"],
            options,
        ]
        .concat();
        loam_in(dir, &all)
    };
    for (options, part) in [
        (&[][..], "name it with --host"),
        (&["--host", "h"], "--day YYYY-MM-DD"),
        (&["--host", ""], "--host needs a name"),
        (&["--host", "h", "--day", "today"], "`today` is none"),
        (
            &["--host", "h", "--day", "2026-13-45"],
            "`2026-13-45` is none",
        ),
    ] {
        let ran = add(options);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(part), "{ran:?}");
    }
    assert!(!dir.join("fleet").exists());
    let ran = add(&["--host", "h", "--day", "2026-11-27"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    fs::write(dir.join("r.json"), "{}").unwrap();
    let ran = add(&["--host", "h", "--day", "2026-11-27", "--replays", "r.json"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("r.json"), "{ran:?}");
}

#[test]
fn duckdb_answers_the_five_questions() {
    let Some(python) = clients::python("duckdb") else {
        return;
    };
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    dataset(dir);
    let all = answers(&python, dir, &["1", "2", "3", "4"]);
    let close = |value: &Value, wanted: f64| {
        let value = value.as_f64().unwrap();
        assert!((value / wanted - 1.0).abs() < 0.02, "{value} {wanted}");
    };
    let programs = &all["1-programs"];
    // Two shops have 100,000 live bytes and one has 150,000, each with twice as much resident.
    // Searches have a little more.
    assert_eq!(programs[0]["program"], "shop");
    assert_eq!(programs[0]["processes"], 3);
    close(&programs[0]["wasted_bytes"], 350_000.0);
    close(&programs[0]["resident_per_live_byte"], 2.0);
    close(&programs[1]["wasted_bytes"], 75_000.0);

    let sizes = &all["2-sizes"];
    assert_eq!(sizes[0]["program"], "search engine");
    assert_eq!(sizes[0]["blocks"], 2 * 501);
    close(&sizes[0]["share"], 1_002_000.0 / 1_355_000.0);

    let threads = all["3-threads"].as_array().unwrap();
    let of = |program: &str, thread: u64| {
        let found = threads
            .iter()
            .find(|row| row["program"] == program && row["thread"] == thread);
        found.unwrap_or_else(|| panic!("{threads:?}"))
    };
    assert_eq!(of("shop", 1)["frees_of_others"], 350);
    assert_eq!(of("shop", 1)["allocations"], 0);
    assert_eq!(of("search engine", 0)["allocations"], 2 * 1_001);

    let releases = all["4-releases"].as_array().unwrap();
    let newer = releases.iter().find(|row| row["release"] == "1.1").unwrap();
    close(&newer["peak_live_ratio"], 1.5);
    close(&newer["peak_resident_ratio"], 1.5);
    let newer = releases.iter().find(|row| row["release"] == "8").unwrap();
    close(&newer["peak_live_ratio"], 1.0);
    close(&newer["peak_resident_ratio"], 105.0 / 110.0);
    assert!(releases[0]["peak_live_ratio"].is_null());

    let text = ask(&python, dir, &["1"]);
    assert!(
        text.out.starts_with("Which program wastes most?") && text.out.contains("shop"),
        "{text:?}"
    );
    // No trace has been replayed yet.
    let none = ask(&python, dir, &["5"]);
    assert_eq!(none.code, Some(2));
    assert!(none.err.contains("replays"), "{none:?}");
    if replayer().is_none() {
        return;
    }
    add_replays(dir);
    let settings = &answers(&python, dir, &["5-settings"])["5-settings"];
    assert_eq!(settings.as_array().unwrap().len(), 1);
    assert_eq!(settings[0]["settings"], "MALLOC_ARENA_MAX=1");
    assert_eq!(settings[0]["processes"], 2);
    assert!(
        settings[0]["peak_ratio"].as_f64().unwrap() > 0.2,
        "{settings}"
    );
}

#[test]
#[ignore = "needs Spark: `make fleet`"]
fn spark_answers_as_duckdb_does() {
    let (Some(duckdb), Some(spark)) = (clients::python("duckdb"), clients::python("pyspark"))
    else {
        return;
    };
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    dataset(dir);
    if replayer().is_some() {
        add_replays(dir);
    }
    let asked: &[&str] = match replayer().is_some() {
        true => &[],
        false => &["1", "2", "3", "4"],
    };
    let one = answers(&duckdb, dir, asked);
    let other = answers(&spark, dir, &[asked, &["--engine", "spark"]].concat());
    let (one, other) = (one.as_object().unwrap(), other.as_object().unwrap());
    assert!(one.len() >= 4);
    assert_eq!(
        one.keys().collect::<Vec<_>>(),
        other.keys().collect::<Vec<_>>()
    );
    for (question, rows) in one {
        let (rows, others) = (
            rows.as_array().unwrap(),
            other[question].as_array().unwrap(),
        );
        assert_eq!(rows.len(), others.len(), "{question}");
        for (row, other) in rows.iter().zip(others) {
            let (row, other) = (row.as_object().unwrap(), other.as_object().unwrap());
            assert_eq!(
                row.keys().collect::<Vec<_>>(),
                other.keys().collect::<Vec<_>>()
            );
            for (column, value) in row {
                let same = match (value.as_f64(), other[column].as_f64()) {
                    // A sum of fractions depends on their order.
                    (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
                    _ => *value == other[column],
                };
                assert!(same, "{question} {column}: {row:?} {other:?}");
            }
        }
    }
}

#[test]
fn a_sweep_under_gnu_parallel_is_merged() {
    if replayer().is_none() {
        return;
    }
    let parallel = Command::new("parallel").arg("--version").output();
    if !parallel.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("GNU")) {
        return skip("GNU parallel is not installed");
    }
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    record(&dir.join("shop.trace"), &FLEET[0]);
    record(&dir.join("search.trace"), &FLEET[3]);
    let sweep = || {
        let out = Command::new(root().join("examples/fleet/sweep"))
            .args(["results", "shop.trace", "search.trace"])
            .env("LOAM", env!("CARGO_BIN_EXE_loam"))
            .env("ALLOCATORS", "again=system tight=system:MALLOC_ARENA_MAX=1")
            .env("TRIALS", "1")
            .env("JOBS", "2")
            .env("HOME", dir)
            .current_dir(dir)
            .output()
            .unwrap();
        Ran::of(out)
    };
    let ran = sweep();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = fs::read_to_string(dir.join("results/all.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    // There are two traces. For each, the two jobs become one table with three allocators.
    assert_eq!(all["experiments"].as_array().unwrap().len(), 2);
    let of = |name: &str, allocator: &str| {
        common::trials(&all)
            .filter(|one| one["experiment"] == name && one["allocator"] == allocator)
            .count()
    };
    for name in ["replay", "replay-2"] {
        let counts = ["system", "again", "tight"].map(|label| of(name, label));
        assert_eq!(counts, [2, 1, 1], "{name}");
    }
    for part in ["(shop)", "(search engine)", "tight"] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    let page = fs::read_to_string(dir.join("results/all.html")).unwrap();
    assert!(page.contains("replay-2-memory") && page.contains("(search engine)"));

    // A finished trial is not run again.
    let before = fs::metadata(dir.join("results/1.json"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(sweep().code, Some(0));
    let after = fs::metadata(dir.join("results/1.json"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(before, after);
}
