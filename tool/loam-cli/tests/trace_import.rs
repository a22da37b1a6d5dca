//! `loam trace import`: recordings of other programs, real ones and broken ones.

use crate::common;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{loam_in, Ran};
use serde_json::Value;

const LOG: &str =
    "5 5 malloc(32)=0x7f90495120e0\n5 6 calloc(2,74)=0x7f9049537480\n5 6 free(0x7f90495120e0)\n";

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/recordings")
        .join(name)
}

fn import(dir: &Path, recording: &Path, trace: &str) -> Ran {
    let recording = recording.to_str().unwrap();
    loam_in(dir, &["trace", "import", recording, "--output", trace])
}

fn info(dir: &Path, trace: &str) -> Value {
    let ran = loam_in(dir, &["trace", "info", trace, "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn a_recording_of_heaptrack_has_the_programs_blocks() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    for (name, trace) in [
        ("heaptrack-1.4.zst", "interpreted.trace"),
        ("heaptrack-1.4-raw.zst", "raw.trace"),
    ] {
        let ran = import(dir, &recording(name), trace);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.err.contains("lost: touched pages, threads"), "{ran:?}");
        let all = info(dir, trace);
        let summary = &all["summary"];
        // The figures of heaptrack_print: 254 calls to allocation functions, 127.02K at the peak,
        // 15.83K leaked.
        let figures = ["allocations", "peak_bytes", "end_bytes"].map(|key| &summary[key]);
        assert_eq!(figures, [254, 127_024, 15_832], "{name}");
        assert_eq!(all["header"]["command"][0], "./server");
        let check = loam_in(dir, &["trace", "check", trace]);
        assert_eq!(check.code, Some(0), "{check:?}");
    }
    let text = loam_in(dir, &["trace", "info", "raw.trace"]).out;
    assert!(
        text.contains("imported from") && text.contains("heaptrack 1.4, raw"),
        "{text}"
    );
}

/// The bytes of a stack in a table of collapsed stacks. The stack is given by a part of its text.
fn bytes_of(collapsed: &str, part: &str) -> u64 {
    let lines = collapsed.lines().filter(|line| line.contains(part));
    let bytes = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    bytes.sum()
}

#[test]
fn a_recording_of_heaptrack_has_the_stacks_of_its_blocks() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let ran = import(dir, &recording("heaptrack-1.4.zst"), "t.trace");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.err.contains("stacks (") && ran.err.contains("loam pins t.trace"));
    let ran = loam_in(
        dir,
        &[
            "trace",
            "export",
            "t.trace",
            "--format",
            "collapsed",
            "--of",
            "allocated",
        ],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // server.c allocates 200 blocks of 100 to 299 bytes in one function, 50 of 1,000 bytes in the
    // other one, and two more.
    let work = (0..200).map(|at| 100 + at).sum::<u64>();
    assert_eq!(bytes_of(&ran.out, ";start_thread;work "), work, "{ran:?}");
    let main = bytes_of(&ran.out, ";main ");
    assert_eq!(main, 50 * 1000 + 5000 + 512, "{ran:?}");
    assert!(ran
        .out
        .contains("main;__pthread_create_2_1;allocate_stack;"));
    let ran = loam_in(dir, &["pins", "t.trace", "--at", "end"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("main"), "{ran:?}");

    // The option sets how many bytes apart the stacks are, on average. Much smaller blocks have
    // none.
    let few = recording("heaptrack-1.4.zst");
    let few = few.to_str().unwrap();
    let ran = loam_in(
        dir,
        &[
            "trace",
            "import",
            few,
            "--output",
            "few.trace",
            "--stacks",
            "8K",
        ],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let rows = |trace: &str| {
        let arguments = ["trace", "export", trace, "--table", "stacks"];
        let samples = loam_in(dir, &arguments).out;
        samples.lines().count()
    };
    assert!(rows("few.trace") < rows("t.trace"));
}

#[test]
fn what_heaptrack_records_here_is_imported_whole() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    common::compile(
        &["-pthread", "-O0"],
        &recording("server.c"),
        &dir.join("server"),
    );
    let recorded = Command::new("heaptrack")
        .args(["-o", "h", "./server"])
        .current_dir(dir)
        .output();
    let packed = ["h.zst", "h.gz"].map(|name| dir.join(name));
    let Some(file) = packed
        .iter()
        .find(|path| recorded.is_ok() && path.is_file())
    else {
        return common::skip("heaptrack is not installed");
    };
    let printed = Command::new("heaptrack_print").arg(file).output().unwrap();
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let calls = printed
        .lines()
        .find_map(|line| line.strip_prefix("calls to allocation functions: "))
        .and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    let ran = import(dir, file, "t.trace");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        info(dir, "t.trace")["summary"]["allocations"].as_u64(),
        calls
    );
    // A raw file names no functions, but the program is on this machine.
    let recorded = Command::new("heaptrack")
        .args(["--raw", "-o", "r", "./server"])
        .current_dir(dir)
        .output();
    let raw = dir.join("r.raw.zst");
    if recorded.is_err() || !raw.is_file() {
        return common::skip("heaptrack has no --raw");
    }
    import(dir, &raw, "r.trace");
    for trace in ["t.trace", "r.trace"] {
        let arguments = ["trace", "export", trace, "--format", "collapsed"];
        let ran = loam_in(dir, &[&arguments[..], &["--of", "allocated"]].concat());
        let work = (0..200).map(|at| 100 + at).sum::<u64>();
        assert_eq!(bytes_of(&ran.out, ";work "), work, "{trace}: {ran:?}");
    }
}

#[test]
fn packed_recordings_are_unpacked() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    fs::write(dir.join("log"), LOG).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(LOG.as_bytes()).unwrap();
    fs::write(dir.join("log.gz"), gz.finish().unwrap()).unwrap();
    let packed = zstd::encode_all(LOG.as_bytes(), 1).unwrap();
    fs::write(dir.join("log.zst"), &packed).unwrap();
    let zipped = |name: &str, files: &[&str]| {
        let mut zip = zip::ZipWriter::new(fs::File::create(dir.join(name)).unwrap());
        for file in files {
            let options = zip::write::SimpleFileOptions::default();
            zip.start_file(*file, options).unwrap();
            zip.write_all(LOG.as_bytes()).unwrap();
        }
        zip.finish().unwrap();
    };
    zipped("log.zip", &["log.txt"]);
    for name in ["log", "log.gz", "log.zst", "log.zip"] {
        let ran = import(dir, &dir.join(name), &format!("{name}.trace"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let summary = &info(dir, &format!("{name}.trace"))["summary"];
        assert_eq!(summary["allocations"], 2);
        assert_eq!(summary["end_bytes"], 148);
        assert_eq!(summary["frees_of_others"], 1);
    }
    zipped("two.zip", &["a", "b"]);
    let ran = import(dir, &dir.join("two.zip"), "two.trace");
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("has 2 files") && ran.err.contains("unpack it"),
        "{ran:?}"
    );
}

#[test]
fn what_is_wrong_with_a_recording_is_said_and_what_came_before_is_kept() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    fs::write(
        dir.join("mixed"),
        LOG.replace("5 6 free", "[Child 7] WARNING: 5 6 free"),
    )
    .unwrap();
    let ran = import(dir, &dir.join("mixed"), "mixed.trace");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for part in [
        "line 3",
        "[Child 7]",
        "a file of its own",
        "has the 4 events that come before",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    let check = loam_in(dir, &["trace", "check", "mixed.trace"]);
    assert_eq!(check.code, Some(1));
    assert!(
        check.out.contains("the import ended early: line 3"),
        "{check:?}"
    );

    let packed = fs::read(recording("heaptrack-1.4.zst")).unwrap();
    fs::write(dir.join("cut.zst"), &packed[..packed.len() / 2]).unwrap();
    let ran = import(dir, &dir.join("cut.zst"), "cut.trace");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("cut"), "{ran:?}");

    for (name, text, part) in [
        ("script", "#!/bin/sh\n", "begins like none of the formats"),
        ("nothing", "", "is empty"),
        ("question", "5 5 jemalloc_stats()\n", "has no allocation"),
        ("already", "LOAMTRC\n....", "is a trace already"),
    ] {
        fs::write(dir.join(name), text).unwrap();
        let ran = import(dir, &dir.join(name), "never.trace");
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(part) && ran.err.contains(name), "{ran:?}");
    }
    let ran = import(dir, dir, "never.trace");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("is a folder; name a recording in it"));
    assert!(!dir.join("never.trace").exists());
    fs::write(dir.join("log"), LOG).unwrap();
    let ran = import(dir, &dir.join("log"), "mixed.trace");
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("--overwrite"), "{ran:?}");
    let ran = loam_in(
        dir,
        &[
            "trace", "import", "log", "--output", "o.trace", "--from", "mtrace",
        ],
    );
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("byte 0: "), "{ran:?}");
}

#[test]
fn the_replay_of_an_imported_trace_fails_the_check() {
    if common::replayer().is_none() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    import(dir, &recording("heaptrack-1.4.zst"), "t.trace");
    let ran = loam_in(
        dir,
        &[
            "replay",
            "t.trace",
            "--allocators",
            "system",
            "--trials",
            "1",
            "--json",
            "r.json",
        ],
    );
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("can NOT be checked"), "{ran:?}");
    let results: Value =
        serde_json::from_str(&fs::read_to_string(dir.join("r.json")).unwrap()).unwrap();
    assert_eq!(
        results["experiments"][0]["trace"]["imported"],
        "heaptrack 1.4"
    );
    assert_eq!(results["trials"][0]["status"], "ok", "{results}");
}
