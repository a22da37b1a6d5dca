//! `loam doctor`: programs that know their live bytes, faulty programs and healthy ones, on glibc's
//! malloc and on Loam.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{compile, library, loam, root, skip, Ran, Talker};
use serde_json::Value;

/// A program of tests/doctor, compiled once for all tests.
fn program(name: &'static str) -> PathBuf {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        for name in ["truth", "patients"] {
            let source = root().join("tests/doctor").join(format!("{name}.c"));
            compile(&["-O1", "-pthread"], &source, &folder.path().join(name));
        }
        folder
    });
    folder.path().join(name)
}

struct Patient(Talker);

impl Patient {
    fn start(program: &Path, arguments: &[&str], preload: Option<&Path>) -> Patient {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_remove("LD_PRELOAD")
            .env_remove("GLIBC_TUNABLES");
        if let Some(library) = preload {
            command.env("LD_PRELOAD", library);
        }
        Patient::of(&mut command)
    }

    fn of(command: &mut Command) -> Patient {
        Patient(Talker::start(command))
    }

    fn ask(&mut self, command: &str) -> u64 {
        self.0.ask(command).parse().unwrap()
    }

    fn pid(&self) -> String {
        self.0.pid()
    }

    /// Counted page by page: `status` has sums that each processor may be behind with.
    fn anonymous(&self) -> u64 {
        let pages = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap();
        let line = pages
            .lines()
            .find_map(|line| line.strip_prefix("Anonymous:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    fn diagnosis(&self, options: &[&str]) -> (Option<i32>, Value) {
        let pid = self.pid();
        let output = loam()
            .args(["doctor", &pid, "--json"])
            .args(options)
            .output()
            .unwrap();
        let ran = Ran::of(output);
        let document = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
        (ran.code, document)
    }
}

/// The kinds of the findings, in their order.
fn kinds(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().unwrap();
    findings
        .iter()
        .map(|finding| finding["kind"].as_str().unwrap())
        .collect()
}

/// Whether the heap of this machine's C library can be read. Reports a skipped test if not.
fn can_read_glibc() -> bool {
    let patient = Patient::start(&program("truth"), &["0", "1", "50", "1"], None);
    let (_, document) = patient.diagnosis(&[]);
    if let Some(reason) = document["evidence"]["heap_error"].as_str() {
        skip(&format!("doctor: {reason}"));
        return false;
    }
    true
}

/// How far the live bytes of a report are from those that the program holds, as a share of these.
fn live_error(heap: &Value, held: f64) -> f64 {
    heap["live_bytes"].as_f64().unwrap() / held - 1.0
}

/// Beside its blocks, a program holds some KiB that the C library allocated for itself.
fn assert_live(heap: &Value, held: f64) {
    let error = live_error(heap, held);
    assert!(error.abs() < 0.02, "live {error:+.4} of {held}: {heap}");
}

/// Shape, threads, percent kept, MiB a thread.
const SHAPES: [[&str; 4]; 10] = [
    ["0", "1", "20", "64"],
    ["0", "4", "20", "24"],
    ["1", "1", "50", "64"],
    ["1", "3", "10", "32"],
    ["2", "2", "10", "64"],
    ["2", "1", "80", "96"],
    ["3", "8", "5", "16"],
    ["3", "2", "90", "64"],
    ["4", "1", "3", "32"],
    ["4", "2", "60", "16"],
];

#[test]
fn what_a_glibc_heap_holds_and_what_a_trim_frees_is_read_from_outside() {
    if !can_read_glibc() {
        return;
    }
    for shape in SHAPES {
        println!("{shape:?}");
        let mut patient = Patient::start(&program("truth"), &shape, None);
        let held = patient.ask("live") as f64;
        let (_, document) = patient.diagnosis(&[]);
        let heap = &document["evidence"]["heap"];
        assert_live(heap, held);
        assert_eq!(heap["problems"], serde_json::json!([]), "{shape:?}");
        check_trim(&mut patient, heap, &shape, 64 << 10);
    }
}

/// Trims, and compares the bytes that went with the prediction. `slack`: at least the bytes of a
/// trim's own records, and of the page from which the answer is printed.
fn check_trim(patient: &mut Patient, heap: &Value, shape: &[&str], slack: u32) {
    let predicted = heap["trim"]["bytes"].as_f64().unwrap();
    let before = patient.anonymous() as f64;
    patient.ask("trim");
    let freed = before - patient.anonymous() as f64;
    assert!(
        (predicted - freed).abs() <= (0.1 * freed).max(slack.into()),
        "{shape:?}: predicted {predicted}, went {freed}"
    );
}

#[test]
fn what_a_trim_frees_on_loam_is_read_from_how_full_its_spans_are() {
    let Some(library) = library() else {
        skip("no heap is built here");
        return;
    };
    for shape in SHAPES {
        let mut patient = Patient::start(&program("truth"), &shape, Some(&library));
        let (_, document) = patient.diagnosis(&[]);
        // How the blocks of several threads lie differs in each run, and some were taken from spans
        // and never touched.
        let slack = if shape[1] == "1" { 64 << 10 } else { 1 << 20 };
        check_trim(&mut patient, &document["evidence"]["heap"], &shape, slack);
    }
}

/// 1.8 million freed blocks of 64 bytes are in a fast bin, and the doctor follows a part of them.
#[test]
fn freed_blocks_beyond_those_that_are_followed_do_not_count_as_live() {
    if !can_read_glibc() {
        return;
    }
    let shape = ["4", "1", "30", "160"];
    let mut patient = Patient::start(&program("truth"), &shape, None);
    let held = patient.ask("live") as f64;
    let (_, document) = patient.diagnosis(&[]);
    let heap = &document["evidence"]["heap"];
    let problems = heap["problems"].as_array().unwrap();
    if problems.iter().any(|one| one.to_string().contains("links")) {
        return skip("doctor: this C library does not mangle the links of its lists");
    }
    assert!(problems.is_empty(), "{problems:?}");
    assert_live(heap, held);
}

/// Half a million freed blocks wait in threads' caches, and more than a million in fast bins, whose
/// lists are cut. Both have links.
#[test]
fn freed_blocks_in_threads_caches_count_once_where_lists_are_cut() {
    if !can_read_glibc() {
        return;
    }
    let mut command = Command::new(program("truth"));
    command
        .args(["4", "8", "30", "20"])
        .env_remove("LD_PRELOAD");
    command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=60000");
    let mut patient = Patient::of(&mut command);
    let held = patient.ask("live") as f64;
    let (_, document) = patient.diagnosis(&[]);
    let heap = &document["evidence"]["heap"];
    if heap["problems"].to_string().contains("links") {
        return skip("doctor: this C library does not mangle the links of its lists");
    }
    assert_eq!(heap["problems"], serde_json::json!([]));
    assert_live(heap, held);
}

/// The system calls of a look, with their arguments.
fn traced(pid: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-s", "64", "-o"]).arg(&log);
    strace.args([env!("CARGO_BIN_EXE_loam"), "doctor", pid, "--json"]);
    let code = strace.output().ok()?.status.code();
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    Some(std::fs::read_to_string(log).unwrap())
}

/// What takes the right to stop a process, or the lock of its address space for as long as a
/// mapping is large, is never called: no signal, no `ptrace`, no `smaps`. Each call that is made
/// takes the lock for a bounded part of the memory.
#[test]
fn a_look_at_a_large_program_neither_stops_it_nor_holds_its_address_space() {
    let patient = Patient::start(&program("truth"), &["0", "1", "50", "160"], None);
    let Some(calls) = traced(&patient.pid()) else {
        return skip("doctor: strace is not installed");
    };
    let of = |name: &str| -> Vec<&str> {
        let start = format!("{name}(");
        let lines = calls.lines().filter(|line| line.contains(&start));
        lines.collect()
    };
    for call in [
        "ptrace",
        "kill",
        "tkill",
        "tgkill",
        "pidfd_send_signal",
        "process_vm_readv",
        "process_vm_writev",
        "pwrite64",
        "process_madvise",
    ] {
        assert_eq!(of(call), Vec::<&str>::new());
    }
    if can_read_glibc() {
        assert!(of("pread64").len() > 100, "{calls}");
    }
    // Other calls of ioctl() fail too: standard output is no terminal here.
    let scans = of("ioctl")
        .into_iter()
        .filter(|line| line.contains("PAGEMAP_SCAN") || line.contains("0x66, 0x10,"));
    let scans: Vec<&str> = scans.collect();
    if !scans.is_empty() && !scans.iter().any(|line| line.contains("= -1 ")) {
        let opened: Vec<&str> = of("openat")
            .into_iter()
            .filter(|line| line.contains("smaps"))
            .collect();
        assert_eq!(opened, Vec::<&str>::new());
    }
    // A window has a MiB. What the system copies at a time is a part of it.
    for line in of("pread64") {
        let copied = line.rsplit("= ").next().unwrap().trim();
        let copied: u64 = copied.parse().unwrap_or(0);
        assert!(copied <= (1 << 20) + 8, "{line}");
    }
}

/// An account of its own looks at its own processes, in a group of processes with a limit or
/// without.
#[test]
fn an_ordinary_user_examines_his_own_program() {
    use std::os::unix::process::CommandExt;
    const USER: u32 = 65_533;
    let folder = tempfile::Builder::new()
        .prefix("loam-user")
        .tempdir_in("/tmp")
        .unwrap();
    let open = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(folder.path());
    let copied = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        std::fs::copy(from, &to).unwrap();
        open(&to);
        to
    };
    let truth = copied(&program("truth"), "truth");
    let tool = copied(Path::new(env!("CARGO_BIN_EXE_loam")), "loam");
    let shape = ["0", "2", "50", "48"];
    let mut command = Command::new(truth);
    command
        .args(shape)
        .env_remove("LD_PRELOAD")
        .env_remove("GLIBC_TUNABLES")
        .uid(USER)
        .gid(USER);
    // Only root may become somebody else. Without that right this user is an ordinary one already.
    let is_root = std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        return skip("doctor: this user is an ordinary one, and all other tests are this one");
    }
    let mut patient = Patient::of(&mut command);
    let held = patient.ask("live") as f64;
    let mut doctor = Command::new(tool);
    doctor
        .args(["doctor", &patient.pid(), "--json"])
        .uid(USER)
        .gid(USER)
        .env("HOME", "/");
    let ran = Ran::of(doctor.output().unwrap());
    let document: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    let heap = &document["evidence"]["heap"];
    if can_read_glibc() {
        assert_live(heap, held);
    }
    // The pages are those that root sees.
    let (_, by_root) = patient.diagnosis(&[]);
    let near = |key: &str| {
        let of = |document: &Value| document["evidence"]["heap"][key].as_f64().unwrap();
        (of(&document) / of(&by_root) - 1.0).abs() < 0.02
    };
    assert!(near("resident_bytes"), "{document}\n{by_root}");
}

/// Processes, mounts and users of its own, and one core of the machine's.
#[test]
fn a_program_in_a_container_is_examined_from_its_host() {
    let apart = [
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let apart = |program: &Path| {
        let mut command = Command::new("unshare");
        command
            .args(apart)
            .args(["taskset", "-c", "0"])
            .arg(program);
        command
    };
    let is_there = apart(Path::new("true")).output();
    if !is_there.is_ok_and(|done| done.status.success()) {
        return skip("doctor: the system makes no namespaces here");
    }
    let mut command = apart(&program("truth"));
    command
        .args(["0", "2", "50", "48"])
        .env_remove("LD_PRELOAD")
        .env_remove("GLIBC_TUNABLES");
    let mut patient = Patient::of(&mut command);
    let held = patient.ask("live") as f64;
    let outer = patient.pid();
    let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
    let pid = children.trim();
    let ran = Ran::of(loam().args(["doctor", pid, "--json"]).output().unwrap());
    let document: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!(document["evidence"]["usable_cores"], 1, "{document}");
    if can_read_glibc() {
        assert_live(&document["evidence"]["heap"], held);
    }
}

#[test]
fn a_static_program_without_symbols_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let product = folder.path().join("truth");
    let source = root().join("tests/doctor/truth.c");
    let archive = Command::new("cc")
        .arg("-print-file-name=libc.a")
        .output()
        .unwrap();
    if !can_read_glibc() || !archive.stdout.starts_with(b"/") {
        return skip("doctor: no static C library is here");
    }
    compile(&["-O1", "-pthread", "-static", "-s"], &source, &product);
    let mut patient = Patient::start(&product, &["0", "2", "50", "32"], None);
    let held = patient.ask("live") as f64;
    let (_, document) = patient.diagnosis(&[]);
    let heap = &document["evidence"]["heap"];
    assert_live(heap, held);
    // Its thread-local variables lie before the first block.
    assert_eq!(heap["problems"], serde_json::json!([]));
}

#[test]
fn a_look_does_not_make_pages_look_resident_to_the_next_one() {
    if !can_read_glibc() {
        return;
    }
    let shape = ["0", "1", "2", "64"];
    let mut patient = Patient::start(&program("truth"), &shape, None);
    patient.ask("trim");
    let resident = || {
        let (_, document) = patient.diagnosis(&[]);
        let heap = &document["evidence"]["heap"];
        assert_eq!(heap["problems"], serde_json::json!([]));
        heap["resident_bytes"].as_u64().unwrap()
    };
    // If the doctor read a purged page, the page would become one of zeros, which counts as
    // resident there.
    let (first, second) = (resident(), resident());
    assert!(second <= first + (64 << 10), "{first}, then {second}");
    let really = patient.anonymous();
    assert!(first <= really + (64 << 10), "{first} of {really}");
}

#[test]
fn a_heap_that_changes_while_it_is_read_is_told_within_five_percent() {
    if !can_read_glibc() {
        return;
    }
    for shape in [
        ["0", "2", "20", "32"],
        ["1", "2", "50", "64"],
        ["3", "2", "50", "48"],
    ] {
        let arguments = [&shape[..], &["churn"]].concat();
        let mut patient = Patient::start(&program("truth"), &arguments, None);
        // The live bytes vary between two looks, so the test compares the median of several.
        let mut errors: Vec<f64> = (0..5)
            .map(|_| {
                let before = patient.ask("live") as f64;
                let (_, document) = patient.diagnosis(&[]);
                let after = patient.ask("live") as f64;
                live_error(&document["evidence"]["heap"], (before + after) / 2.0)
            })
            .collect();
        errors.sort_by(f64::total_cmp);
        assert!(errors[2].abs() < 0.05, "{shape:?}: {errors:?}");
    }
}

/// A program's fault, whether it shows only over time, and the findings that must appear on glibc
/// and on Loam. A finding is empty if that heap does not have the fault.
const ILL: [(&str, bool, &str, &str); 18] = [
    ("leak", true, "leak", "leak"),
    ("bursts", true, "leak", "leak"),
    ("outside", true, "growth_outside", "growth_outside"),
    ("fragment", false, "fragmentation", "fragmentation"),
    ("scattered", false, "fragmentation", "fragmentation"),
    ("second", false, "fragmentation", ""),
    ("keep", false, "kept_for_reuse", ""),
    ("pin", false, "pinned_top", ""),
    ("arenas", false, "arenas", ""),
    ("cache", false, "caches", ""),
    ("lazy", false, "lazily_freed", "lazily_freed"),
    ("untouched", false, "untouched", "untouched"),
    ("files", false, "outside_heap", "outside_heap"),
    ("copies", true, "copies", "copies"),
    ("mixed", true, "leak", "leak"),
    ("stacks", false, "stacks", "stacks"),
    ("memfd", false, "held_files", "held_files"),
    ("mapping", false, "", "kept_for_reuse"),
];

/// Programs without a fault. The first ones are watched.
const WELL: [(&str, bool); 11] = [
    ("churn", true),
    ("breathe", true),
    ("bounded", true),
    ("buffers", true),
    ("threads", true),
    ("fills", true),
    ("reads", true),
    ("shares", true),
    ("wait", false),
    ("small", false),
    ("forked", false),
];

/// Examines a patient and returns the findings, in words for the message of a failed test.
fn examined(name: &str, is_watched: bool, preload: Option<&Path>) -> (Option<i32>, Vec<String>) {
    let patient = Patient::start(&program("patients"), &[name, "3"], preload);
    let options: &[&str] = if is_watched { &["--watch", "12"] } else { &[] };
    let (code, document) = patient.diagnosis(options);
    (
        code,
        kinds(&document).into_iter().map(str::to_owned).collect(),
    )
}

/// Examines all patients on one heap. Those that are watched run side by side, since they mostly
/// wait.
fn ward(
    preload: Option<&Path>,
    expected: impl Fn(&(&'static str, bool, &'static str, &'static str)) -> &'static str,
) {
    program("patients");
    let mut wanted: Vec<(&str, bool, &str)> = ILL
        .iter()
        .map(|patient| (patient.0, patient.1, expected(patient)))
        .filter(|(_, _, kind)| !kind.is_empty())
        .collect();
    wanted.extend(
        WELL.iter()
            .map(|(name, is_watched)| (*name, *is_watched, "")),
    );
    let judge = |name: &str, kind: &str, (code, found): (Option<i32>, Vec<String>)| {
        let notes = ["lazily_freed", "untouched", "outside_heap"];
        let is_fault = !kind.is_empty() && !notes.contains(&kind);
        let is_named = kind.is_empty() || found.iter().any(|found| found == kind);
        // A fault comes first; a note appears only without faults.
        let is_first = !is_fault || found.first().is_some_and(|first| first == kind);
        let is_right = is_named && is_first && code == Some(i32::from(is_fault));
        (!is_right).then(|| format!("{name}: wanted `{kind}`, exit {code:?}, found {found:?}"))
    };
    let mut in_doubt = Vec::new();
    std::thread::scope(|scope| {
        let watched: Vec<_> = wanted
            .iter()
            .filter(|(_, is_watched, _)| *is_watched)
            .map(|one| (one, scope.spawn(move || examined(one.0, true, preload))))
            .collect();
        for (one, thread) in watched {
            in_doubt.extend(judge(one.0, one.2, thread.join().unwrap()).map(|_| one));
        }
    });
    for one in wanted.iter().filter(|(_, is_watched, _)| !is_watched) {
        in_doubt.extend(judge(one.0, one.2, examined(one.0, false, preload)).map(|_| one));
    }
    // Which threads share an arena, and whether a heap changes faster than it is read, depends on
    // who gets a processor. A second patient of the kind decides.
    let failures: Vec<_> = in_doubt
        .iter()
        .filter_map(|(name, is_watched, kind)| {
            judge(name, kind, examined(name, *is_watched, preload))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn each_trouble_is_named_on_glibc_and_no_healthy_program_is_called_ill() {
    if can_read_glibc() {
        ward(None, |patient| patient.2);
    }
}

#[test]
fn each_trouble_is_named_on_loam_and_no_healthy_program_is_called_ill() {
    match library() {
        Some(library) => ward(Some(&library), |patient| patient.3),
        None => skip("doctor: build/libloam.so is not built"),
    }
}

#[test]
fn huge_pages_over_holes_are_named_where_the_kernel_makes_them() {
    let patient = Patient::start(&program("patients"), &["huge", "3"], None);
    let (_, document) = patient.diagnosis(&[]);
    let huge = document["evidence"]["huge_page_bytes"].as_u64().unwrap();
    if huge < 50 << 20 {
        return skip("doctor: the kernel makes no huge pages here");
    }
    assert_eq!(kinds(&document)[0], "huge_page_slack", "{document}");
}

/// Malloc's large blocks lie in mappings that the kernel joined with the program's own.
#[test]
fn large_blocks_among_a_programs_own_mappings_are_malloc_s_and_their_sizes_are_named() {
    if !can_read_glibc() {
        return;
    }
    let patient = Patient::start(&program("patients"), &["mixed", "3"], None);
    let (code, document) = patient.diagnosis(&["--watch", "12"]);
    let leak = &document["findings"][0];
    assert_eq!((code, kinds(&document)[0]), (Some(1), "leak"), "{document}");
    let evidence = leak["evidence"].to_string();
    assert!(evidence.contains("blocks of up to 2"), "{evidence}");
    assert!(leak["remedy"].to_string().contains("large"), "{leak}");
}

/// What two processes have since a fork is told as such, and is no gain of one of them.
#[test]
fn free_pages_that_another_process_has_too_are_no_gain() {
    if !can_read_glibc() {
        return;
    }
    let patient = Patient::start(&program("patients"), &["forked", "3"], None);
    let (code, document) = patient.diagnosis(&[]);
    let trim = &document["evidence"]["heap"]["trim"];
    let (bytes, common) = (&trim["bytes"], &trim["common_bytes"]);
    assert_eq!(code, Some(0), "{document}");
    assert!(bytes.as_u64().unwrap() > 50 << 20, "{trim}");
    let own = bytes.as_u64().unwrap() - common.as_u64().unwrap();
    assert!(own < 1 << 20, "{trim}");
}

/// With glibc.malloc.hugetlb=2 the main arena lies in mappings.
fn with_heap_in_mappings(pattern: &str) -> Patient {
    let mut command = Command::new(program("patients"));
    command
        .args([pattern, "3"])
        .env_remove("LD_PRELOAD")
        .env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2");
    Patient::of(&mut command)
}

#[test]
fn beside_a_heap_that_was_not_seen_no_program_is_called_healthy() {
    if !can_read_glibc() {
        return;
    }
    let patient = with_heap_in_mappings("wait");
    let (code, document) = patient.diagnosis(&[]);
    let heap = &document["evidence"]["heap"];
    let resident = document["evidence"]["resident_bytes"].as_f64().unwrap();
    let unseen = heap["unseen_bytes"].as_f64().unwrap();
    let live = heap["live_bytes"].as_f64().unwrap();
    let is_seen = live > 0.8 * resident;
    assert!(is_seen || code == Some(2), "{unseen} {code:?} {document}");
    assert_eq!(document["healthy"].as_bool(), Some(code == Some(0)));
}

/// The parts of such an arena end at fences, and so may a hole.
#[test]
fn holes_at_the_ends_of_an_arenas_parts_count() {
    if !can_read_glibc() {
        return;
    }
    let patient = with_heap_in_mappings("keep");
    let (_, document) = patient.diagnosis(&[]);
    let heap = &document["evidence"]["heap"];
    let whole = heap["trim"]["bytes"].as_f64().unwrap();
    let ran = Ran::of(
        loam()
            .args(["trim", &patient.pid(), "--dry-run", "--json"])
            .output()
            .unwrap(),
    );
    let trim: Value = serde_json::from_str(&ran.out).unwrap();
    let could = trim["processes"][0]["could_give_back_bytes"]
        .as_f64()
        .unwrap();
    assert!((whole / could - 1.0).abs() < 0.05, "{heap} {trim}");
}

#[test]
fn the_page_says_verdict_evidence_remedy_gain_and_what_was_ruled_out() {
    if !can_read_glibc() {
        return;
    }
    let patient = Patient::start(&program("patients"), &["keep", "3"], None);
    let ran = Ran::of(loam().args(["doctor", &patient.pid()]).output().unwrap());
    assert_eq!(ran.code, Some(1));
    let places: Vec<Option<usize>> = [
        "patients (",
        "keeps whole free pages",
        "evidence",
        "remedy",
        "malloc_trim(0)",
        "gain",
        "Its heap:",
        "A trim now would give back",
        "Ruled out:",
        "fragmentation:",
        "Not looked at:",
        "--watch",
    ]
    .iter()
    .map(|text| ran.out.find(text))
    .collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{places:?}\n{}",
        ran.out
    );
    assert!(
        ran.out.lines().all(|line| line.chars().count() <= 100),
        "{}",
        ran.out
    );
}

#[test]
fn who_can_not_be_examined_is_said() {
    let doctor =
        |arguments: &[&str]| Ran::of(loam().arg("doctor").args(arguments).output().unwrap());
    let absent = doctor(&["4194304"]);
    assert_eq!(absent.code, Some(2));
    assert!(absent.err.contains("no process 4194304"), "{}", absent.err);
    let wrong = doctor(&["1", "--watch", "0"]);
    assert!(
        wrong.code == Some(2) && wrong.err.contains("from 1 to"),
        "{}",
        wrong.err
    );
    let name = doctor(&["no-such-program-anywhere"]);
    assert_eq!(name.code, Some(2), "{}", name.err);
}
