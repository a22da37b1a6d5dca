//! `loam record --pid PID` on any allocator: which blocks stay and who asked for them, by probes.
//! What a probe tells, and the estimates against the truth, are tests of `loam-process`
//! (`probes::tests`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use loam_process::mappings;
use loam_process::perf::rights::Rights;
use loam_process::process::Pid;

use crate::common::{self, skip, Ran, Talker};
use crate::growth_verb::{info, program, start, under, Recording};

/// A limit that only ends a test that hangs.
const LONG: Duration = Duration::from_secs(60);

fn may_probe() -> bool {
    let refused = Rights::over(std::process::id() as Pid).refuses_probes();
    if let Some(why) = &refused {
        skip(why);
    }
    refused.is_none()
}

fn without_rights() -> Option<Command> {
    let command = || {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all"]);
        command
    };
    let works = command().arg("true").status();
    if !works.is_ok_and(|status| status.success()) {
        skip("setpriv can not take rights away");
        return None;
    }
    Some(command())
}

fn tool(mut without: Command) -> Command {
    without.args([
        "env",
        "--default-signal=INT,QUIT",
        env!("CARGO_BIN_EXE_loam"),
    ]);
    without
}

/// The functions of the first path that grew.
fn first_path(ran: &Ran) -> Vec<String> {
    let (_, paths) = ran.err.split_once("Grew, ").expect(&ran.err);
    let lines = paths.lines().skip_while(|line| !line.starts_with("    "));
    lines
        .take_while(|line| line.starts_with("    "))
        .map(|line| line.trim().to_owned())
        .collect()
}

fn leaks_are_told(preload: Option<&Path>) {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let mut talker = start(preload);
    let recording = Recording::begin(common::loam(), &talker.pid(), &trace, &["--cost", "20%"]);
    // What comes and goes is more than the leak. How many bytes that are is a matter of a program
    // that works evenly (`probes::tests` of loam-process): a window of this one stands for a second
    // in which it does three other things.
    for order in ["leak 4", "serve 10000", "thread 2", "fork 1", "serve 4000"] {
        assert_eq!(talker.ask(order), "done");
    }
    let ran = recording.end();
    assert_eq!(talker.ask("quit"), "bye");
    assert_eq!(first_path(&ran)[0], "keep_session", "{ran:?}");
    let info = info(&trace);
    let of = |function| under(&info, function);
    assert!(of("keep_session") > of("serve"), "{info:#}");
    assert!(of("keep_session") > 0.3, "{info:#}");
    assert_eq!(of("keep_in_child"), 0.0, "a child is another process");
    let check = common::loam().args(["trace", "check"]).arg(&trace).output();
    let check = Ran::of(check.unwrap());
    assert_eq!(check.code, Some(0), "{check:?}");
}

#[test]
fn leaks_on_glibc_are_told_beside_a_churn() {
    if may_probe() {
        leaks_are_told(None);
    }
}

#[test]
fn leaks_on_loam_are_told_beside_a_churn() {
    if !may_probe() {
        return;
    }
    match common::library() {
        Some(library) => leaks_are_told(Some(&library)),
        None => skip("build/libloam.so has not been built"),
    }
}

#[test]
fn leaks_on_other_allocators_are_told_beside_a_churn() {
    if !may_probe() {
        return;
    }
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
        leaks_are_told(Some(library));
    }
}

/// The code of the C library in a process.
struct Code {
    memory: File,
    start: u64,
    original: Vec<u8>,
}

impl Code {
    fn of(pid: &str) -> Code {
        let all = mappings::read_names(pid.parse().unwrap()).unwrap();
        let is_libc = |one: &&mappings::Mapping| {
            one.executable
                && one
                    .file_name()
                    .is_some_and(|name| name.starts_with("libc.so"))
        };
        let mapping = all.iter().find(is_libc).unwrap();
        let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
        let mut original = vec![0; mapping.size() as usize];
        memory.read_exact_at(&mut original, mapping.start).unwrap();
        Code {
            memory,
            start: mapping.start,
            original,
        }
    }

    /// How many bytes differ.
    fn changes(&self) -> usize {
        let mut now = vec![0; self.original.len()];
        self.memory.read_exact_at(&mut now, self.start).unwrap();
        let both = now.iter().zip(&self.original);
        both.filter(|(now, original)| now != original).count()
    }

    fn wait_for(&self, wanted: impl Fn(usize) -> bool, what: &str) {
        let begun = Instant::now();
        while !wanted(self.changes()) {
            assert!(begun.elapsed() < LONG, "{what}: {}", self.changes());
        }
    }
}

/// A state of a recording, the options that lead there, and how many probes it has.
type State = (&'static str, &'static [&'static str], fn(usize) -> bool);

#[test]
fn a_tool_that_is_killed_in_any_state_leaves_the_code_as_it_was() {
    if !may_probe() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let mut talker = start(None);
    let code = Code::of(&talker.pid());
    talker.ask("steadily");
    // A window has probes on all functions, a watch those of free() and realloc(), and then there
    // are none. A program that hardly gets a processor is never without, unless little is allowed.
    let states: [State; 3] = [
        ("window", &[], |count| count > 2),
        ("watch", &[], |count| (1..=2).contains(&count)),
        ("off", &["--cost", "0.1%"], |count| count == 0),
    ];
    for (state, options, is_it) in states {
        let mut recording = Recording::begin(common::loam(), &talker.pid(), &trace, options);
        code.wait_for(|count| count != 0, "begun");
        code.wait_for(is_it, state);
        recording.0.kill().unwrap();
        recording.0.wait().unwrap();
        code.wait_for(|count| count == 0, "after the end");
        let before: u64 = talker.ask("count").parse().unwrap();
        let begun = Instant::now();
        while talker.ask("count").parse::<u64>().unwrap() == before {
            assert!(begun.elapsed() < LONG, "the program stands still");
        }
    }
}

#[test]
fn what_is_missing_is_said_with_what_to_do() {
    let all = (without_rights(), without_rights(), without_rights());
    let (Some(first), Some(second), Some(mut target)) = all else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let mut talker = Talker::start(target.arg(program()));
    let code = Code::of(&talker.pid());
    let ran = tool(first)
        .args(["record", "--pid", &talker.pid(), "--cost", "2%", "--output"])
        .arg(&trace)
        .output();
    let ran = Ran::of(ran.unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("CAP_BPF and CAP_PERFMON"), "{ran:?}");
    assert!(ran.err.contains("--growth"), "{ran:?}");
    assert!(!trace.exists() && code.changes() == 0);
    // Without a wish, what is allowed is done, and that is said.
    let recording = Recording::begin(tool(second), &talker.pid(), &trace, &[]);
    talker.ask("leak 1");
    let ran = recording.end();
    assert!(
        ran.err.contains("by page faults") || ran.err.contains("came to the heap"),
        "{ran:?}"
    );
    for wrong in ["0%", "60%", "much"] {
        let ran = common::loam()
            .args(["record", "--pid", &talker.pid(), "--cost", wrong])
            .output();
        assert_eq!(Ran::of(ran.unwrap()).code, Some(2), "{wrong}");
    }
}

#[test]
fn a_process_that_ends_or_becomes_another_program_ends_the_recording() {
    if !may_probe() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    for (order, said) in [
        ("quit", "the process ended"),
        ("exec", "became another program"),
    ] {
        let mut talker = start(None);
        let recording = Recording::begin(common::loam(), &talker.pid(), &trace, &[]);
        talker.ask("leak 1");
        talker.tell(order);
        let ran = Ran::of(recording.0.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.err.contains(said), "{ran:?}");
        assert!(under(&info(&trace), "keep_session") > 0.3);
    }
}

#[test]
fn a_trace_of_probes_is_read_by_the_verbs_that_need_no_whole_program() {
    if !may_probe() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let traces = ["a", "b"].map(|name| dir.path().join(name));
    let mut talker = start(None);
    for (trace, order) in traces.iter().zip(["leak 1", "leak 4"]) {
        let recording = Recording::begin(common::loam(), &talker.pid(), trace, &["--cost", "10%"]);
        talker.ask(order);
        recording.end();
    }
    for (format, content) in [
        ("collapsed", "keep_session"),
        ("flame", "sampled: each block stands for others"),
        ("pprof", ""),
        ("firefox", "keep_session"),
    ] {
        let out = dir.path().join(format);
        let ran = common::loam()
            .args(["trace", "export", "--format", format, "--output"])
            .args([&out, &traces[0]])
            .output();
        let ran = Ran::of(ran.unwrap());
        assert_eq!(ran.code, Some(0), "{format}: {ran:?}");
        let text = std::fs::read(&out).unwrap();
        assert!(!text.is_empty(), "{format}");
        assert!(String::from_utf8_lossy(&text).contains(content), "{format}");
    }
    let ran = common::loam()
        .args(["trace", "diff"])
        .args(&traces)
        .output();
    let ran = Ran::of(ran.unwrap());
    assert!(
        ran.out.contains("Grew") && ran.out.contains("keep_session"),
        "{ran:?}"
    );
    // A sample has not all blocks of a page.
    let ran = Ran::of(common::loam().arg("pins").arg(&traces[0]).output().unwrap());
    assert!(
        ran.err.contains("a sample of the program's blocks"),
        "{ran:?}"
    );
}

#[test]
fn a_recording_that_costs_more_than_allowed_ends_and_the_rest_is_sampled() {
    if common::recorder().is_none() || !may_probe() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let said = || std::fs::read_to_string(path("said")).unwrap();
    let mut tool = common::loam();
    tool.args(["record", "--cost", "0.1%", "--output"])
        .arg(path("t.trace"))
        .arg("--")
        .arg(program())
        .stderr(File::create(path("said")).unwrap());
    let mut talker = Talker::start(&mut tool);
    let begun = Instant::now();
    while !said().contains("Ctrl-C ends it") {
        assert!(begun.elapsed() < LONG, "{}", said());
        assert_eq!(talker.ask("hurry 1000000"), "done");
    }
    talker.tell("quit");
    assert_eq!(talker.line(), "bye");
    assert!(talker.wait().success(), "{}", said());
    assert!(said().contains("more than --cost 0.1%"), "{}", said());
    assert!(
        said().contains("for a replay of the whole program"),
        "{}",
        said()
    );

    // The whole part can be replayed, and says what it is.
    let verb = |words: &[&str], trace: &str| {
        let mut command = common::loam();
        Ran::of(command.args(words).arg(path(trace)).output().unwrap())
    };
    let whole = verb(&["trace", "info"], "t.trace");
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let ended = "the recording ended before the program did";
    assert!(
        whole.err.contains(ended) && !whole.out.contains("Sampled"),
        "{whole:?}"
    );
    // What a sample holds is told by the tests above. This one says what it is.
    let info = info(&path("t-sample.trace"));
    assert_ne!(info["header"]["sampled"], serde_json::Value::Null);
    assert_ne!(info["processes"][0]["process"]["allocator"], "Loam");
    let refused = verb(&["pins"], "t-sample.trace");
    assert_eq!(refused.code, Some(2), "{refused:?}");

    // A second time: the sample would be replaced.
    std::fs::remove_file(path("t.trace")).unwrap();
    let mut command = common::loam();
    command.args(["record", "--cost", "10%", "--output"]);
    command.arg(path("t.trace")).args(["--", "true"]);
    let ran = Ran::of(command.output().unwrap());
    assert!(
        ran.code == Some(2) && ran.err.contains("t-sample.trace exists"),
        "{ran:?}"
    );
}

/// The bytes of each type that grew, by `trace diff`.
fn types_that_grew(traces: &[PathBuf; 2]) -> (String, Vec<(String, f64)>) {
    let diff = |options: &[&str]| {
        let mut command = common::loam();
        command.args(["trace", "diff"]).args(traces).args(options);
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    };
    let json: serde_json::Value = serde_json::from_str(&diff(&["--json"])).unwrap();
    let types = json["types"].as_array().unwrap().iter();
    let grew = types.map(|one| {
        let bytes = |side: &str| one[side].as_f64().unwrap();
        let name = one["type"].as_str().unwrap().to_owned();
        (name, bytes("after") - bytes("before"))
    });
    (diff(&[]), grew.collect())
}

fn types_are_told(preload: Option<&Path>) {
    let dir = tempfile::tempdir().unwrap();
    let traces = ["a", "b"].map(|name| dir.path().join(name));
    let mut talker = start(preload);
    for (trace, order) in traces.iter().zip(["order 500", "order 4000"]) {
        let recording = Recording::begin(common::loam(), &talker.pid(), trace, &["--cost", "50%"]);
        assert_eq!(talker.ask(order), "done");
        let ran = recording.end();
        let line = "loam: what lives, by type: shop::Order 100 %";
        assert!(ran.err.contains(line), "{ran:?}");
    }
    assert_eq!(talker.ask("quit"), "bye");
    let info = info(&traces[1]);
    let mut sites = info["stacks"]["sites"].as_array().unwrap().iter();
    let has = |site: &&serde_json::Value| {
        let names = site["functions"].as_array().unwrap();
        names.iter().any(|name| name.as_str() == Some("keep_order"))
    };
    let orders = sites.find(has).unwrap_or_else(|| panic!("{info:#}"));
    assert_eq!(orders["types"].as_array().unwrap().len(), 1, "{orders:#}");
    assert_eq!(orders["types"][0]["name"], "shop::Order");
    let bytes = |site: &serde_json::Value| site["types"][0]["bytes"].as_f64().unwrap();
    let ratio = bytes(orders) / orders["peak"]["bytes"].as_f64().unwrap();
    assert!((ratio - 1.0).abs() < 0.01, "{orders:#}");
    let text = common::loam()
        .args(["trace", "info"])
        .arg(&traces[1])
        .output();
    let text = Ran::of(text.unwrap()).out;
    assert!(
        text.contains(" live at the end: shop::Order 100 %"),
        "{text}"
    );
    let (text, grew) = types_that_grew(&traces);
    let orders = grew.iter().find(|(name, _)| name == "shop::Order");
    assert!(orders.is_some_and(|(_, bytes)| *bytes > 0.0), "{grew:?}");
    assert!(text.contains("Types that "), "{text}");
}

#[test]
fn what_stays_has_types_on_glibc_and_a_diff_has_a_table_of_them() {
    if may_probe() {
        types_are_told(None);
    }
}

#[test]
fn what_stays_has_types_on_loam() {
    if !may_probe() {
        return;
    }
    match common::library() {
        Some(library) => types_are_told(Some(&library)),
        None => skip("build/libloam.so has not been built"),
    }
}
