//! `loam record --growth` and `loam doctor --watch --stacks`: under which stacks a heap grows, of a
//! process that nobody prepared, on several allocators.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use loam_format::trace::{AllocFamily, End, Event, Frame, Header, Process, Record, Stack, Writer};
use serde_json::Value;

use crate::common::{self, root, signal, skip, Ran, Talker};

const MIB: f64 = 1024.0 * 1024.0;

/// The program, compiled once.
pub fn program() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, product) = MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let product = dir.path().join("grows");
        let done = Command::new("c++")
            .args(["-O1", "-g", "-std=c++20", "-pthread"])
            .arg(root().join("tests/recorder/grows.cpp"))
            .arg("-o")
            .arg(&product)
            .status();
        assert!(done.unwrap().success());
        (dir, product)
    });
    product
}

pub fn start(preload: Option<&Path>) -> Talker {
    let mut command = Command::new(program());
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    Talker::start(&mut command)
}

/// A recording that has begun.
pub struct Recording(pub Child);

impl Recording {
    pub fn begin(mut tool: Command, pid: &str, trace: &Path, options: &[&str]) -> Recording {
        tool.args(["record", "--pid", pid, "--overwrite", "--output"])
            .arg(trace)
            .args(options);
        let mut child = tool
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Byte for byte: what comes later belongs to the end.
        let error = child.stderr.as_mut().unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"Ctrl-C ends it\n") {
            let mut byte = [0];
            assert_eq!(
                error.read(&mut byte).unwrap(),
                1,
                "{}",
                String::from_utf8_lossy(&said)
            );
            said.push(byte[0]);
        }
        Recording(child)
    }

    pub fn end(self) -> Ran {
        assert!(signal("INT", self.0.id()));
        let ran = Ran::of(self.0.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    }
}

/// Records a program of tests/recorder that leaks while it is asked to.
pub fn record_leaks(talker: &mut Talker, trace: &Path, options: &[&str]) {
    let recording = Recording::begin(common::loam(), &talker.pid(), trace, options);
    // In parts: samples of a burst are lost.
    for _ in 0..20 {
        talker.ask("50");
    }
    recording.end();
}

pub fn info(trace: &Path) -> Value {
    let ran = common::loam()
        .args(["trace", "info", "--json"])
        .arg(trace)
        .output();
    let ran = Ran::of(ran.unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

/// Bytes at the peak under stacks with that function, in MiB.
pub fn under(info: &Value, function: &str) -> f64 {
    let sites = info["stacks"]["sites"].as_array().unwrap().iter();
    let has = |site: &&Value| {
        let names = site["functions"].as_array().unwrap();
        names.iter().any(|name| name.as_str() == Some(function))
    };
    let bytes = sites
        .filter(has)
        .map(|site| site["peak"]["bytes"].as_f64().unwrap());
    bytes.sum::<f64>() / MIB
}

/// Allocators round sizes up and have records, and of a burst on a busy machine not every page has
/// a sample of its own.
fn is_about(found: f64, wanted: f64) -> bool {
    found > 0.75 * wanted && found < 1.3 * wanted + 1.0
}

/// Records three leaks of a program on this allocator.
fn leaks_are_told(preload: Option<&Path>, large_blocks_fault: bool) {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let mut talker = start(preload);
    talker.ask("leak 1");
    let recording = Recording::begin(common::loam(), &talker.pid(), &trace, &["--growth"]);
    for order in ["leak 16", "large 8", "thread 4", "churn 64"] {
        assert_eq!(talker.ask(order), "done");
    }
    let ran = recording.end();
    assert_eq!(talker.ask("quit"), "bye");
    let info = info(&trace);
    let found = |function| under(&info, function);
    // A block of a memory that came is not always a block that stays: the block of `churn` goes.
    assert!(is_about(found("keep_session"), 16.0), "{info:#} {ran:?}");
    if large_blocks_fault {
        assert!(is_about(found("keep_image"), 8.0), "{info:#}");
    }
    assert!(is_about(found("keep_in_thread"), 4.0), "{info:#}");
    let at_end = info["summary"]["end_bytes"].as_f64().unwrap() / MIB;
    assert!(at_end < 64.0, "{at_end}");
    let check = common::loam().args(["trace", "check"]).arg(&trace).output();
    let check = Ran::of(check.unwrap());
    assert_eq!(check.code, Some(0), "{check:?}");
}

#[test]
fn leaks_on_glibc_are_told_by_their_stacks() {
    leaks_are_told(None, true);
}

#[test]
fn leaks_on_loam_are_told_by_their_stacks() {
    match common::library() {
        // Loam asks the system for the pages of a large block at once, and then they come without a
        // fault.
        Some(library) => leaks_are_told(Some(&library), false),
        None => skip("build/libloam.so has not been built"),
    }
}

#[test]
fn leaks_on_other_allocators_are_told_by_their_stacks() {
    let folder = Path::new("/usr/lib/x86_64-linux-gnu");
    let names = [
        "libjemalloc.so.2",
        "libmimalloc.so.2",
        "libtcmalloc_minimal.so.4",
    ];
    let there: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    let there: Vec<_> = there.iter().filter(|path| path.is_file()).collect();
    if there.is_empty() {
        skip("no other allocator is installed");
    }
    for library in there {
        eprintln!("{}", library.display());
        leaks_are_told(Some(library), true);
    }
}

#[test]
fn a_process_without_rights_sees_its_own() {
    let without_rights = || {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all"]);
        command
    };
    let works = without_rights().arg("true").status();
    if !works.is_ok_and(|status| status.success()) {
        return skip("setpriv can not take rights away");
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let mut talker = Talker::start(without_rights().arg(program()));
    let mut tool = without_rights();
    tool.args([
        "env",
        "--default-signal=INT,QUIT",
        env!("CARGO_BIN_EXE_loam"),
    ]);
    let recording = Recording::begin(tool, &talker.pid(), &trace, &["--growth"]);
    talker.ask("leak 8");
    talker.ask("large 8");
    let ran = recording.end();
    let info = info(&trace);
    assert!(is_about(under(&info, "keep_session"), 8.0), "{info:#}");
    // What the kernel touches first is not seen, and that is told.
    let is_seen = is_about(under(&info, "keep_image"), 8.0);
    assert!(is_seen || ran.err.contains("CAP_PERFMON"), "{ran:?}");
}

#[test]
fn a_tool_that_is_killed_leaves_the_process_and_can_be_followed_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let mut talker = start(None);
    let mut recording = Recording::begin(common::loam(), &talker.pid(), &trace, &["--growth"]);
    assert_eq!(talker.ask("leak 4"), "done");
    recording.0.kill().unwrap();
    recording.0.wait().unwrap();
    assert_eq!(talker.ask("leak 4"), "done");
    let again = Recording::begin(common::loam(), &talker.pid(), &trace, &["--growth"]);
    assert_eq!(talker.ask("leak 4"), "done");
    again.end();
    assert!(is_about(under(&info(&trace), "keep_session"), 4.0));
}

#[test]
fn a_trace_of_growth_is_refused_where_all_blocks_are_needed() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let mut talker = start(None);
    // Not on Loam: its growth is recorded in any case.
    let recording = Recording::begin(common::loam(), &talker.pid(), &trace, &[]);
    talker.ask("leak 1");
    recording.end();
    for verb in ["pins", "replay", "advise"] {
        let ran = Ran::of(common::loam().arg(verb).arg(&trace).output().unwrap());
        assert!(
            ran.err.contains("a sample of the program's blocks"),
            "{verb}: {ran:?}"
        );
        assert_ne!(ran.code, Some(0), "{verb}");
    }
    for format in ["collapsed", "flame", "pprof", "firefox"] {
        let out = dir.path().join(format);
        let ran = common::loam()
            .args(["trace", "export", "--format", format, "--output"])
            .args([&out, &trace])
            .output();
        let ran = Ran::of(ran.unwrap());
        assert_eq!(ran.code, Some(0), "{format}: {ran:?}");
        assert!(out.metadata().unwrap().len() > 0);
    }
}

#[test]
fn the_doctor_names_the_path_under_which_the_heap_grows() {
    let mut talker = start(None);
    talker.ask("steadily");
    let ran = common::loam()
        .args(["doctor", &talker.pid(), "--watch", "1", "--stacks"])
        .output();
    let ran = Ran::of(ran.unwrap());
    let (_, paths) = ran
        .out
        .split_once("Under these call paths")
        .expect(&ran.out);
    let first = paths.lines().find(|line| line.starts_with("    ")).unwrap();
    assert_eq!(first.trim(), "keep_steadily", "{}", ran.out);
}

#[test]
fn what_can_not_be_watched_is_said() {
    let ran = common::loam()
        .args(["record", "--growth", "--pid", "999999999"])
        .output();
    let ran = Ran::of(ran.unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("there is no process"), "{ran:?}");
}

#[test]
fn a_program_that_was_deleted_is_named() {
    if !rustix::process::geteuid().is_root() {
        return skip("to read a file that was deleted needs CAP_SYS_ADMIN");
    }
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("grows");
    std::fs::copy(program(), &copy).unwrap();
    let trace = dir.path().join("t.trace");
    let mut talker = Talker::start(&mut Command::new(&copy));
    // Another program takes its name.
    std::fs::remove_file(&copy).unwrap();
    std::fs::copy("/bin/true", &copy).unwrap();
    let recording = Recording::begin(common::loam(), &talker.pid(), &trace, &["--growth"]);
    talker.ask("leak 4");
    recording.end();
    assert!(is_about(under(&info(&trace), "keep_session"), 4.0));
}

fn diff(before: &Path, after: &Path, options: &[&str]) -> Ran {
    let mut tool = common::loam();
    tool.args(["trace", "diff"])
        .args([before, after])
        .args(options);
    Ran::of(tool.output().unwrap())
}

#[test]
fn a_diff_says_which_path_grew() {
    let dir = tempfile::tempdir().unwrap();
    let traces = ["a", "b"].map(|name| dir.path().join(name));
    let mut talker = start(None);
    for (trace, orders) in traces
        .iter()
        .zip([["leak 4", "thread 8"], ["leak 12", "thread 2"]])
    {
        let recording = Recording::begin(common::loam(), &talker.pid(), trace, &["--growth"]);
        for order in orders {
            talker.ask(order);
        }
        recording.end();
    }
    let ran = diff(&traces[0], &traces[1], &["--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    let paths = found["paths"].as_array().unwrap();
    let grown =
        |path: &Value| (path["after"].as_f64().unwrap() - path["before"].as_f64().unwrap()) / MIB;
    let (first, last) = (&paths[0], &paths[paths.len() - 1]);
    assert_eq!(first["functions"][0], "keep_session", "{found:#}");
    assert!(is_about(grown(first), 8.0), "{found:#}");
    assert_eq!(last["functions"][0], "keep_in_thread", "{found:#}");
    assert!(is_about(-grown(last), 6.0), "{found:#}");
    let ran = diff(&traces[0], &traces[1], &[]);
    let (grew, shrank) = ran.out.split_once("Shrank").expect(&ran.out);
    assert!(
        grew.contains("keep_session") && shrank.contains("keep_in_thread"),
        "{}",
        ran.out
    );
    let same = diff(&traces[0], &traces[0], &[]);
    assert!(same.out.contains("No path changed"), "{same:?}");
    // A trace of all blocks is another thing.
    let other = root().join("formats/golden/trace-1-stacks.trace");
    let ran = diff(&other, &traces[0], &[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("can not be compared"), "{ran:?}");
}

#[test]
fn a_sampled_block_counts_for_those_that_it_stands_for() {
    const BLOCKS: u64 = 100;
    const WEIGHT: f64 = 12.5;
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let header = Header {
        stack_bytes: 1,
        weighted: true,
        sampled: "by a test".to_owned(),
        ..Header::default()
    };
    let mut writer = Writer::new(std::fs::File::create(&trace).unwrap(), &header).unwrap();
    let stream = writer.process(&Process::default()).unwrap();
    let frame = Frame {
        number: Some(0),
        address: Some(0x1234),
        ..Frame::default()
    };
    writer.frame(stream, frame).unwrap();
    for number in 0..BLOCKS {
        let event = Event::Allocate {
            family: AllocFamily::Malloc,
            address: 0x10_0000 + number * 0x1000,
            size: 0x1000,
            alignment: 0,
        };
        let record = Record {
            time: number,
            thread: 0,
            event,
        };
        writer.push(stream, &record).unwrap();
        let stack = Stack {
            event: Some(number),
            frame: Some(0),
            cut: Some(0),
            weight: Some((1000.0 * WEIGHT) as u64),
        };
        writer.stack(stream, stack).unwrap();
    }
    writer.end(stream, End::default()).unwrap();
    writer.finish().unwrap();
    let info = info(&trace);
    let site = &info["stacks"]["sites"][0];
    let number = |value: &Value| value.as_f64().unwrap();
    let each = 4096.0 * WEIGHT;
    for figure in ["peak", "allocated"] {
        assert_eq!(number(&site[figure]["bytes"]), BLOCKS as f64 * each);
        assert_eq!(number(&site[figure]["blocks"]), BLOCKS as f64 * WEIGHT);
    }
    let error = 2.0 * (BLOCKS as f64 * each * each * (1.0 - 1.0 / WEIGHT)).sqrt();
    assert!(
        (number(&site["peak_error"]) - error).abs() < 1.0,
        "{site:#}"
    );
}

#[test]
#[ignore = "long: ten seconds of page faults as fast as they come"]
fn estimates_hold_the_truth_when_only_slices_of_time_are_sampled() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let mut talker = start(None);
    talker.ask("storm");
    // The share of the time needs some seconds to settle; what counts is what comes later too.
    let options = ["--growth", "--for", "12"];
    let recording = Recording::begin(common::loam(), &talker.pid(), &trace, &options);
    talker.ask("steadily");
    let ran = Ran::of(recording.0.wait_with_output().unwrap());
    let truth: f64 = talker.ask("count").parse().unwrap();
    assert!(
        ran.err.contains("only a part of the time was sampled"),
        "{ran:?}"
    );
    let info = info(&trace);
    let found = under(&info, "keep_steadily");
    let sites = info["stacks"]["sites"].as_array().unwrap().iter();
    let error: f64 = sites
        .map(|site| site["peak_error"].as_f64().unwrap().powi(2))
        .sum();
    let error = 2.0 * error.sqrt() / MIB;
    eprintln!(
        "found {found:.1} MiB, truth {:.1}, error {error:.1}",
        truth / MIB
    );
    assert!(
        (found - truth / MIB).abs() < error + 0.15 * truth / MIB,
        "{found} {truth} {error}"
    );
}
