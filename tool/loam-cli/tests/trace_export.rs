//! `loam trace export` in formats that other programs read: Parquet for DuckDB, a profile for the
//! Firefox Profiler.

use crate::common;
use crate::common::clients;
use crate::common::recorded;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::recorded::Program;
use crate::common::{loam_in, Ran};
use loam_format::trace::{Event, Header};
use serde_json::Value;

/// Average bytes between two stacks. Every block of the program is much larger, so each counts as
/// itself.
const STACK_BYTES: u64 = 100;

/// Two threads. 40 blocks of 10,000 bytes come from one place and 20 of 30,000 from another, and
/// half of the latter are freed.
fn program(path: &Path) -> recorded::Ran {
    let header = Header {
        stack_bytes: STACK_BYTES,
        started: "2026-11-27T08:00:00Z".into(),
        ..recorded::header()
    };
    let mut program = Program::record_as(path, &header, &recorded::process());
    program.event(0, Event::ThreadBegins);
    program.event(1, Event::ThreadBegins);
    program.frames(&[0x1000, 0x2000, 0x3000]);
    program.mark("fill");
    for _ in 0..40 {
        program.allocate(0, 10_000);
        program.stack(1);
    }
    program.sample(Some(450_000));
    let mut blocks = Vec::new();
    for _ in 0..20 {
        blocks.push(program.allocate(0, 30_000));
        program.stack(2);
    }
    program.sample(Some(1_100_000));
    program.mark("drain, \"all\"");
    for block in &blocks[..10] {
        program.free(1, *block);
    }
    let first = program.allocate(0, 7);
    program.resize(0, first, 9);
    program.sample(Some(800_000));
    program.end()
}

fn export(dir: &Path, options: &[&str]) -> Ran {
    let ran = loam_in(dir, &[&["trace", "export", "t.trace"], options].concat());
    assert_eq!(ran.code, Some(0), "{options:?}: {ran:?}");
    ran
}

const TABLES: [&str; 8] = [
    "events",
    "samples",
    "blocks",
    "processes",
    "sizes",
    "threads",
    "marks",
    "stacks",
];

#[test]
fn parquet_has_what_json_lines_have_and_duckdb_reads_it() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    program(&dir.join("t.trace"));
    let mut rows = Vec::new();
    for table in TABLES {
        let parquet = format!("{table}.parquet");
        export(
            dir,
            &[
                "--table", table, "--format", "parquet", "--output", &parquet,
            ],
        );
        export(
            dir,
            &[
                "--table",
                table,
                "--format",
                "jsonl",
                "--output",
                &format!("{table}.jsonl"),
            ],
        );
        let json = fs::read_to_string(dir.join(format!("{table}.jsonl"))).unwrap();
        rows.push(json.lines().count());
        let bytes = fs::read(dir.join(&parquet)).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    }
    assert_eq!(rows, [2 + 40 + 20 + 10 + 1 + 2, 3, 62, 1, 3, 2, 2, 2]);
    let Some(python) = clients::python("duckdb") else {
        return;
    };
    // DuckDB returns each row as JSON with its keys in the columns' order.
    let script = "
import duckdb, json, sys
for table in sys.argv[1:]:
    cursor = duckdb.execute(f\"SELECT * FROM '{table}.parquet'\")
    names = [column[0] for column in cursor.description]
    read = [dict(zip(names, row)) for row in cursor.fetchall()]
    wanted = [json.loads(line) for line in open(f'{table}.jsonl')]
    assert read == wanted, (table, read[:2], wanted[:2])
    assert list(read[0]) == list(wanted[0]), table
    kinds = {kind for _, kind in duckdb.execute(f\"SELECT name, type FROM \
parquet_schema('{table}.parquet') WHERE num_children IS NULL\").fetchall()}
    assert kinds <= {'INT64', 'DOUBLE', 'BYTE_ARRAY', 'BOOLEAN'}, kinds
    header = duckdb.execute(f\"SELECT value FROM parquet_kv_metadata('{table}.parquet') \
WHERE key = 'loam.trace.header'\").fetchone()[0]
    assert json.loads(header.decode())['page_size'] == 4096
    packed = duckdb.execute(f\"SELECT DISTINCT compression FROM \
parquet_metadata('{table}.parquet')\").fetchall()
    assert packed == [('ZSTD',)], packed
print(duckdb.execute(\"SELECT count(*), sum(size) FROM 'blocks.parquet' \
WHERE \\\"end\\\" IS NULL\").fetchone())
";
    let out = Command::new(python)
        .args(["-c", script])
        .args(TABLES)
        .current_dir(dir)
        .output()
        .unwrap();
    let ran = Ran::of(out);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out.trim(), "(51, 700009)");
}

#[test]
fn a_large_table_has_several_groups_of_rows() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let mut program = Program::record(&dir.join("t.trace"));
    for _ in 0..100_000 {
        let block = program.allocate(0, 64);
        program.free(0, block);
    }
    program.end();
    export(dir, &["--format", "parquet", "--output", "e.parquet"]);
    let bytes = fs::metadata(dir.join("e.parquet")).unwrap().len();
    assert!(bytes < 200_000 * 8, "{bytes}");
    let Some(python) = clients::python("duckdb") else {
        return;
    };
    let script = "import duckdb
print(duckdb.execute(\"SELECT count(*), count(DISTINCT row_group_id) FROM \
parquet_metadata('e.parquet') WHERE path_in_schema = 'time'\").fetchone())
print(duckdb.execute(\"SELECT count(*), max(number), count(DISTINCT time) FROM \
'e.parquet'\").fetchone())";
    let out = Command::new(python)
        .args(["-c", script])
        .current_dir(dir)
        .output()
        .unwrap();
    assert_eq!(Ran::of(out).out, "(2, 2)\n(200000, 199999, 200000)\n");
}

#[test]
fn a_table_of_stacks_needs_a_trace_with_stacks() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    Program::record(&dir.join("t.trace")).end();
    let ran = loam_in(
        dir,
        &[
            "trace", "export", "t.trace", "--table", "stacks", "--output", "s.csv",
        ],
    );
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("has no stacks"), "{ran:?}");
    assert!(!dir.join("s.csv").exists());
}

#[test]
fn the_firefox_profiler_shows_tracks_marks_and_allocations() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    program(&dir.join("t.trace"));
    export(dir, &["--format", "firefox", "--output", "profile.json"]);
    let text = fs::read_to_string(dir.join("profile.json")).unwrap();
    let profile: Value = serde_json::from_str(&text).unwrap();
    let allocations = &profile["threads"][0]["nativeAllocations"];
    let weights = allocations["weight"].as_array().unwrap();
    assert_eq!(weights.len(), 40 + 20 + 10);
    let sum: i64 = weights.iter().map(|weight| weight.as_i64().unwrap()).sum();
    assert_eq!(sum, 40 * 10_000 + 10 * 30_000);
    let counters = profile["counters"].as_array().unwrap();
    let last = |at: usize| -> f64 {
        let points = counters[at]["samples"]["count"].as_array().unwrap();
        points.iter().map(|point| point.as_f64().unwrap()).sum()
    };
    assert_eq!((last(0), last(1)), (700_009.0, 800_000.0));
    let names = [&counters[0]["name"], &counters[1]["name"]];
    assert_eq!(names, ["live", "resident"]);

    let Some(script) = clients::firefox_profiler() else {
        return;
    };
    let ask = |arguments: &[&str]| {
        let out = Command::new("node")
            .arg(&script)
            .args(arguments)
            .args(["--session", "loam-test"])
            // Its sessions are stored below this folder.
            .env("HOME", dir)
            .current_dir(dir)
            .output()
            .unwrap();
        Ran::of(out)
    };
    // On a busy machine this command gives up before its session has begun, but the session still
    // begins.
    ask(&["load", "profile.json"]);
    common::until("the profiler has the profile", || {
        ask(&["profile", "info"]).code == Some(0)
    });
    let counters = ask(&["counter", "list"]);
    let marks = ask(&["profile", "markers", "--limit", "9"]);
    ask(&["strategy", "native-retained-allocations"]);
    let retained = ask(&["thread", "samples-top-down", "--thread", "t-0"]);
    let stopped = ask(&["stop", "loam-test"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    // The profiler calls all counters of memory "Memory", and shows their samples.
    let has = |text: &str| counters.out.contains(text);
    assert!(
        has("Counters (2)") && has("[72 samples]") && has("[3 samples]"),
        "{counters:?}"
    );
    assert!(
        marks.out.contains("drain, \"all\"") && marks.out.contains("fill"),
        "{marks:?}"
    );
    // 400,000 bytes come from one place, 300,000 from the other.
    assert!(
        retained.out.contains("0x2000") && retained.out.contains("0x3000"),
        "{retained:?}"
    );
}
