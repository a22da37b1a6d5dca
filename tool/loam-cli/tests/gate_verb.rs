//! `loam gate`: the worked example fails with its planted fault and passes without it, against a
//! trace and against a file. Time is judged if it is reliable. A comparison that is not possible is
//! refused with a message.

use crate::common;
use crate::common::recorded;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{loam_in, record_orders};
use loam_format::trace::ChunkKind;
use serde_json::Value;

fn baseline(dir: &Path, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join(name)).unwrap()).unwrap()
}

#[test]
fn the_example_fails_with_its_fault_and_passes_without_it() {
    if !common::can_replay_on_loam() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    record_orders(dir, "before", &["-O1"]);
    record_orders(dir, "same", &["-O1"]);
    record_orders(dir, "faulty", &["-O1", "-DFORGETS_NOTES"]);
    // Other tests run at the same time, so time is not judged here.
    let limit = ["--limit", "processor=off", "--trials", "2"];
    let gate = |trace: &str, more: &[&str]| {
        let arguments = [&["gate", trace], more, &limit[..]].concat();
        loam_in(dir, &arguments)
    };

    let ran = gate("same.trace", &["--baseline", "before.trace"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("PASSED."), "{ran:?}");
    let ran = gate(
        "faulty.trace",
        &["--baseline", "before.trace", "--markdown", "summary.md"],
    );
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("FAILED: peak, average"), "{ran:?}");
    assert!(ran.out.contains("The program itself holds more"), "{ran:?}");
    assert!(ran.out.contains("Blocks of up to"), "{ran:?}");

    let ran = gate(
        "before.trace",
        &["--baseline", "kept.json", "--write-baseline"],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(baseline(dir, "kept.json")["format"], "loam-gate-baseline");
    let ran = gate("same.trace", &["--baseline", "kept.json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = gate(
        "faulty.trace",
        &["--baseline", "kept.json", "--markdown", "summary.md"],
    );
    assert_eq!(ran.code, Some(1), "{ran:?}");

    // The summary has both answers, one after the other, as a job's summary needs it.
    let summary = fs::read_to_string(dir.join("summary.md")).unwrap();
    assert_eq!(
        summary.matches("### loam gate: FAILED: peak").count(),
        2,
        "{summary}"
    );
    assert!(summary.contains("| peak |"), "{summary}");

    // With higher limits the same trace passes.
    let off = ["peak=400%", "average=400%", "end=400%", "faults=400%"];
    let off: Vec<&str> = off.iter().flat_map(|limit| ["--limit", limit]).collect();
    let ran = gate(
        "faulty.trace",
        &[&["--baseline", "kept.json"], &off[..]].concat(),
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// A program of one thread with a heap of some MiB.
fn small(path: &Path, samples: u32) {
    let mut program = recorded::Program::record(path);
    for _ in 0..samples {
        for _ in 0..5_000 {
            program.allocate(0, 400);
        }
        program.sample(Some(77 << 30));
    }
    program.end();
}

#[test]
fn time_is_compared_with_a_file_on_the_same_machine_only() {
    if common::replayer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    small(&dir.join("t.trace"), 2);
    let gate =
        |more: &[&str]| loam_in(dir, &[&["gate", "t.trace", "--trials", "2"], more].concat());
    let ran = gate(&["--baseline", "b.json", "--write-baseline"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut other = baseline(dir, "b.json");
    other["machine"]["cpu"] = "abacus".into();
    // The baseline claims a speed ten times as high, on this machine.
    for key in ["median", "low", "high"] {
        let value = other["figures"]["processor"][key].as_f64().unwrap() / 10.0;
        other["figures"]["processor"][key] = value.into();
    }
    fs::write(dir.join("other.json"), other.to_string()).unwrap();
    let ran = gate(&["--baseline", "other.json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out
            .contains("not judged: the baseline's file is from another machine"),
        "{ran:?}"
    );
    // Two samples are too few to know the error, and the message says so.
    assert!(
        ran.out.contains("error of this replay is not known"),
        "{ran:?}"
    );
}

#[test]
fn what_can_not_be_compared_is_refused() {
    if common::replayer().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    small(&dir.join("t.trace"), 4);
    fs::write(dir.join("list.json"), "[1, 2]").unwrap();
    fs::write(
        dir.join("new.json"),
        r#"{"format":"loam-gate-baseline","version":99}"#,
    )
    .unwrap();
    let refused = |arguments: &[&str], words: &str| {
        let ran = loam_in(
            dir,
            &[&["gate", "t.trace", "--trials", "1"], arguments].concat(),
        );
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(words), "{words}: {ran:?}");
    };
    refused(&["--baseline", "list.json"], "neither a trace");
    refused(&["--baseline", "new.json"], "use a newer loam");
    refused(&["--baseline", "none.json"], "none.json");
    refused(
        &["--baseline", "list.json", "--write-baseline"],
        "choose another name",
    );
    refused(
        &["--baseline", "t.trace", "--limit", "pek=5%"],
        "peak, average",
    );
    let all_off = ["peak", "average", "end", "faults", "processor"].map(|one| format!("{one}=off"));
    let mut nothing = vec!["--baseline", "t.trace"];
    all_off
        .iter()
        .for_each(|limit| nothing.extend(["--limit", limit]));
    refused(&nothing, "would judge nothing");
    // Its samples claim 77 GiB, so the replay does not reproduce the program.
    refused(&["--baseline", "t.trace"], "off from what was recorded");
    // A trace that lacks a part says less than the program did, on either side.
    let whole = dir.join("t.trace");
    recorded::copy_until(ChunkKind::End, &whole, &dir.join("cut.trace"));
    let mut damaged = fs::read(&whole).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 4;
    fs::write(dir.join("damaged.trace"), &damaged).unwrap();
    let believes = ["--limit", "error=off", "--trials", "1"];
    for (name, fault) in [("cut", "has no end"), ("damaged", "can be read")] {
        let name = format!("{name}.trace");
        for sides in [["t.trace", &name], [&name, "t.trace"]] {
            let names = ["gate", sides[0], "--baseline", sides[1]];
            let ran = loam_in(dir, &[&names[..], &believes].concat());
            assert_eq!(ran.code, Some(2), "{ran:?}");
            assert!(
                ran.err.contains(&name) && ran.err.contains(fault),
                "{ran:?}"
            );
        }
    }
    // A place that can not be written is found before anything is measured.
    let nowhere = ["--baseline", "t.trace", "--markdown", "no/such/summary.md"];
    refused(&nowhere, "no/such/summary.md");
    let limit = ["--limit", "error=off", "--limit", "processor=off"];
    let believed = [
        &["gate", "t.trace", "--trials", "1", "--baseline", "t.trace"],
        &limit[..],
    ]
    .concat();
    assert_eq!(loam_in(dir, &believed).code, Some(0));
}

/// Readers of the example copy the document's commands.
#[test]
fn the_example_compiles_without_warnings() {
    let source = common::root().join("examples/gate/orders.c");
    let status = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsyntax-only",
        ])
        .arg(source)
        .status();
    assert!(status.unwrap().success());
}

/// Runs the steps of the example's job in a folder with the repository's files. Returns the answer
/// of the last step that ran.
fn job(folder: &Path, flags: &str) -> (Option<i32>, String) {
    let example = common::root().join("examples/gate");
    for name in ["orders.c", "orders.json"] {
        fs::copy(example.join(name), folder.join(name)).unwrap();
    }
    let workflow = fs::read_to_string(example.join("memory.yml")).unwrap();
    // A step's second line is indented further.
    let workflow = workflow.replace("\n          ", " ");
    let steps = workflow
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- run: "));
    // The tool is installed already.
    let steps: Vec<&str> = steps.filter(|step| !step.starts_with("pip ")).collect();
    assert_eq!(steps.len(), 3, "{workflow}");
    let tool = Path::new(env!("CARGO_BIN_EXE_loam")).parent().unwrap();
    let path = format!("{}:{}", tool.display(), std::env::var("PATH").unwrap());
    let summary = folder.join("summary.md");
    let mut code = None;
    for step in steps {
        let status = Command::new("bash")
            .args(["-e", "-c", step])
            .current_dir(folder)
            .env("PATH", &path)
            .env("CFLAGS", flags)
            .env("GITHUB_STEP_SUMMARY", &summary)
            .status();
        code = status.unwrap().code();
        if code != Some(0) {
            break;
        }
    }
    (code, fs::read_to_string(summary).unwrap_or_default())
}

#[test]
fn the_example_job_is_green_and_turns_red_with_the_fault() {
    if !common::can_replay_on_loam() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, summary) = job(folder.path(), "");
    assert_eq!(code, Some(0), "{summary}");
    assert!(summary.contains("### loam gate: PASSED."), "{summary}");
    assert!(summary.contains("| peak |"), "{summary}");
    let folder = tempfile::tempdir().unwrap();
    let (code, summary) = job(folder.path(), "-DFORGETS_NOTES");
    assert_eq!(code, Some(1), "{summary}");
    assert!(
        summary.contains("### loam gate: FAILED: peak, average"),
        "{summary}"
    );
    assert!(
        summary.contains("The program itself holds more"),
        "{summary}"
    );
}
