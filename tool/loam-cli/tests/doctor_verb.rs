//! `loam doctor`: programs that know their live bytes, faulty programs and healthy ones, on glibc's malloc and on
//! Loam.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{compile, library, loam, root, skip, Ran, Talker};
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
        Patient(Talker::start(&mut command))
    }

    fn ask(&mut self, command: &str) -> u64 {
        self.0.ask(command).parse().unwrap()
    }

    fn pid(&self) -> String {
        self.0.pid()
    }

    fn anonymous(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))
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
        let mut patient = Patient::start(&program("truth"), &shape, None);
        let held = patient.ask("live") as f64;
        let (_, document) = patient.diagnosis(&[]);
        let heap = &document["evidence"]["heap"];
        let error = heap["live_bytes"].as_f64().unwrap() / held - 1.0;
        // Beside its blocks, the program holds some KiB that the C library allocated for itself.
        assert!(error.abs() < 0.02, "{shape:?}: live {error:+.4}: {heap}");
        assert_eq!(heap["problems"], serde_json::json!([]), "{shape:?}");
        let predicted = heap["trim"]["bytes"].as_f64().unwrap();
        let before = patient.anonymous() as f64;
        patient.ask("trim");
        let freed = before - patient.anonymous() as f64;
        let off = (predicted - freed).abs();
        // The bytes of a trim's own records, and of the page from which the answer is printed.
        assert!(
            off <= (0.1 * freed).max(65536.0),
            "{shape:?}: predicted {predicted}, went {freed}"
        );
    }
}

/// 1.8 million freed blocks of 64 bytes are in a fast bin, and the doctor follows a million of them.
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
    let error = heap["live_bytes"].as_f64().unwrap() / held - 1.0;
    assert!(error.abs() < 0.02, "live {error:+.4}: {heap}");
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
    let live = document["evidence"]["heap"]["live_bytes"].as_f64().unwrap();
    assert!((live / held - 1.0).abs() < 0.02, "{live} of {held}");
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
    // If the doctor read a purged page, the page would become one of zeros, which counts as resident there.
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
                let live = document["evidence"]["heap"]["live_bytes"].as_f64().unwrap();
                live / ((before + after) / 2.0) - 1.0
            })
            .collect();
        errors.sort_by(f64::total_cmp);
        assert!(errors[2].abs() < 0.05, "{shape:?}: {errors:?}");
    }
}

/// A program's fault, whether it shows only over time, and the findings that must appear on glibc and on Loam. A
/// finding is empty if that heap does not have the fault.
const ILL: [(&str, bool, &str, &str); 11] = [
    ("leak", true, "leak", "leak"),
    ("bursts", true, "leak", "leak"),
    ("outside", true, "growth_outside", "growth_outside"),
    ("fragment", false, "fragmentation", "fragmentation"),
    ("keep", false, "kept_for_reuse", ""),
    ("pin", false, "pinned_top", ""),
    ("arenas", false, "arenas", ""),
    ("cache", false, "caches", ""),
    ("lazy", false, "lazily_freed", "lazily_freed"),
    ("untouched", false, "untouched", "untouched"),
    ("files", false, "outside_heap", "outside_heap"),
];

/// Programs without a fault. The first ones are watched.
const WELL: [(&str, bool); 7] = [
    ("churn", true),
    ("breathe", true),
    ("bounded", true),
    ("buffers", true),
    ("threads", true),
    ("wait", false),
    ("small", false),
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

/// Examines all patients on one heap. Those that are watched run side by side, since they mostly wait.
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
    let mut failures = Vec::new();
    let mut judge = |name: &str, kind: &str, (code, found): (Option<i32>, Vec<String>)| {
        let notes = ["lazily_freed", "untouched", "outside_heap"];
        let is_fault = !kind.is_empty() && !notes.contains(&kind);
        let is_named = kind.is_empty() || found.iter().any(|found| found == kind);
        // A fault comes first; a note appears only without faults.
        let is_first = !is_fault || found.first().is_some_and(|first| first == kind);
        if !is_named || !is_first || code != Some(i32::from(is_fault)) {
            failures.push(format!(
                "{name}: wanted `{kind}`, exit {code:?}, found {found:?}"
            ));
        }
    };
    std::thread::scope(|scope| {
        let watched: Vec<_> = wanted
            .iter()
            .filter(|(_, is_watched, _)| *is_watched)
            .map(|(name, _, kind)| {
                (
                    *name,
                    *kind,
                    scope.spawn(move || examined(name, true, preload)),
                )
            })
            .collect();
        for (name, kind, thread) in watched {
            judge(name, kind, thread.join().unwrap());
        }
    });
    for (name, _, kind) in wanted.iter().filter(|(_, is_watched, _)| !is_watched) {
        judge(name, kind, examined(name, false, preload));
    }
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
