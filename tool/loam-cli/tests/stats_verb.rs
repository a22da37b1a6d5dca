//! `loam stats` on programs of every kind: the account, the choice of processes, and processes that
//! can not be read.

use crate::common;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{compile, Lab, Ran};
use serde_json::Value;

/// A program that allocates and touches this many MiB, prints `ready`, and waits to be killed.
const HOLDER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
  size_t blocks = (size_t)atoi(words[1]) << 10;
  for (size_t i = 0; i < blocks; ++i) memset(malloc(1000), 1, 1000);
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
"#;

/// A child that ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn holder(lab: &Lab, name: &str) -> PathBuf {
    let source = lab.path(&format!("{name}.c"));
    std::fs::write(&source, HOLDER).unwrap();
    let product = lab.path(name);
    compile(&["-O0"], &source, &product);
    product
}

fn start(program: &PathBuf, mib: u32) -> Running {
    use std::io::{BufRead, BufReader};
    let mut child = Command::new(program)
        .arg(mib.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    Running(child)
}

fn stats(arguments: &[&str]) -> Ran {
    Ran::of(
        common::loam()
            .arg("stats")
            .args(arguments)
            .output()
            .unwrap(),
    )
}

fn json(arguments: &[&str]) -> Value {
    let ran = stats(&[arguments, &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn a_program_on_another_allocator_is_accounted_and_told_what_loam_would_add() {
    let lab = Lab::new();
    let child = start(&holder(&lab, "ls-holder-1"), 40);
    let pid = child.0.id().to_string();
    let found = &json(&[&pid])["processes"][0];
    let lines = found["account_bytes"].as_object().unwrap();
    let sum: u64 = lines.values().map(|value| value.as_u64().unwrap()).sum();
    assert_eq!(sum, found["resident_bytes"].as_u64().unwrap());
    assert!(lines["heap"].as_i64().unwrap() > 38 << 20, "{lines:?}");
    assert_eq!(found["verdict"]["finding"], "opaque_heap");
    assert!(found["counters"].is_null() && found["counters_error"].is_null());
    assert_eq!(found["system"]["threads"], 1);
    let page = stats(&[&pid]);
    assert_eq!(page.code, Some(0), "{page:?}");
    let second = page.out.lines().nth(1).unwrap();
    assert!(
        second.contains("resident (")
            && second.contains("private memory")
            && second.contains("`loam doctor "),
        "{second}"
    );
    assert!(page.out.contains("loam run -- "), "{}", page.out);
}

#[test]
fn a_name_that_means_several_lists_them_and_all_shows_them() {
    let lab = Lab::new();
    // No other process has this name, even if the test runs twice at a time.
    let name = format!("ls-{}", std::process::id());
    let program = holder(&lab, &name);
    let (one, two) = (start(&program, 1), start(&program, 1));
    let ran = stats(&[&name]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for child in [&one, &two] {
        assert!(ran.err.contains(&child.0.id().to_string()), "{}", ran.err);
    }
    assert!(
        ran.err.contains("2 processes") && ran.err.contains("--all"),
        "{}",
        ran.err
    );
    let all = json(&[&name, "--all"]);
    assert_eq!(all["processes"].as_array().unwrap().len(), 2);
    let table = stats(&[&name, "--all"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    let lines: Vec<&str> = table.out.lines().collect();
    assert!(
        lines[0].contains("NAME") && lines[0].contains("RESIDENT"),
        "{}",
        table.out
    );
    assert_eq!(lines.iter().filter(|line| line.contains(&name)).count(), 2);
    assert!(table.out.contains("2 processes; "), "{}", table.out);
    let widest = stats(&["--all"]).out;
    let widest = widest
        .lines()
        .filter(|line| line.contains("iB"))
        .map(unicode_width::UnicodeWidthStr::width);
    assert!(widest.max() <= Some(80), "{}", table.out);
    drop(two);
    let only = json(&[&name]);
    assert_eq!(only["processes"][0]["pid"], one.0.id());
}

#[test]
fn who_can_not_be_looked_at_is_said_with_the_reason() {
    for (target, said) in [
        ("4194305", "there is no process 4194305"),
        ("loam-no-such-name", "no process is called"),
        ("0", "not the number of a process"),
        ("", "names no process"),
    ] {
        let ran = stats(&[target]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(said), "{said} in {}", ran.err);
        assert_eq!(ran.out, "");
    }
    let lab = Lab::new();
    let child = start(&holder(&lab, "ls-holder-3"), 1);
    let ran = stats(&[&child.0.id().to_string(), "--heap", "default"]);
    assert!(
        ran.code == Some(2) && ran.err.contains("not on Loam"),
        "{ran:?}"
    );
}

#[test]
fn all_without_a_name_is_everybody_and_the_largest_stand_first() {
    let lab = Lab::new();
    let child = start(&holder(&lab, "ls-holder-6"), 3);
    let ran = stats(&["--all"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let pid = child.0.id().to_string();
    let is_its = |line: &&str| {
        line.contains("ls-holder-6") && line.split_whitespace().any(|word| word == pid)
    };
    assert_eq!(ran.out.lines().filter(is_its).count(), 1, "{}", ran.out);
    let everybody = json(&["--all"]);
    let everybody = everybody["processes"].as_array().unwrap();
    assert!(everybody.iter().any(|one| one["pid"] == child.0.id()));
    let ran = stats(&[]);
    assert_eq!(ran.code, Some(2), "a target or --all: {ran:?}");
}

#[test]
fn a_proc_that_counts_processes_otherwise_is_refused() {
    // A new namespace of process numbers, with the old /proc.
    let apart = ["--user", "--map-root-user", "--pid", "--fork"];
    let unshare = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(apart).arg(program).args(arguments).output()
    };
    if !unshare("true", &[]).is_ok_and(|done| done.status.success()) {
        common::skip("the system makes no namespace of processes here");
        return;
    }
    let ran = Ran::of(unshare(env!("CARGO_BIN_EXE_loam"), &["stats", "1"]).unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("namespace"), "{}", ran.err);
}

#[test]
fn a_document_says_when_and_where_and_its_names_carry_units() {
    let lab = Lab::new();
    let child = start(&holder(&lab, "ls-holder-7"), 1);
    let document = json(&[&child.0.id().to_string()]);
    assert_eq!(document["version"], 2);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(document["host"], host.trim());
    let found = &document["processes"][0];
    let looked_at = found["looked_at"].as_str().unwrap();
    let age = humantime::parse_rfc3339(looked_at)
        .unwrap()
        .elapsed()
        .unwrap();
    assert!(age < Duration::from_secs(300), "{looked_at}");
    assert!(found["user_id"].is_u64());
    for part in [
        &found["system"]["total"],
        &found["system"]["kinds"]["anonymous"],
    ] {
        for name in part.as_object().unwrap().keys() {
            assert!(name == "mappings" || name.ends_with("_bytes"), "{name}");
        }
    }
}

#[test]
fn a_process_that_has_ended_and_was_not_collected_has_no_memory() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id().to_string();
    let began = Instant::now();
    while common::state(&pid) != 'Z' {
        assert!(began.elapsed() < Duration::from_secs(300));
        std::thread::sleep(Duration::from_millis(5));
    }
    let ran = stats(&[&pid]);
    assert!(
        ran.code == Some(2) && ran.err.contains("has ended"),
        "{ran:?}"
    );
    child.wait().unwrap();
}

#[test]
fn targets_that_die_while_they_are_read_are_said_to_have_ended() {
    let lab = Lab::new();
    let program = holder(&lab, "ls-holder-4");
    let (mut shown, mut gone) = (0, 0);
    for round in 0..12u64 {
        let mut child = start(&program, 8);
        let reader = common::loam()
            .args(["stats", &child.0.id().to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(700 * round));
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        let ran = Ran::of(reader.wait_with_output().unwrap());
        match ran.code {
            Some(0) => shown += 1,
            Some(2) if ran.err.contains("ended") || ran.err.contains("no process") => gone += 1,
            _ => panic!("{ran:?}"),
        }
    }
    assert_eq!(shown + gone, 12);
}

/// The heap, if it has been built: `LOAM_LIBRARY`, or where `make` leaves it.
fn heap() -> Option<PathBuf> {
    let built = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/libloam.so");
    let named = std::env::var_os("LOAM_LIBRARY").map(PathBuf::from);
    let path = named.unwrap_or(built);
    path.canonicalize().ok().filter(|path| path.is_file())
}

#[test]
fn a_program_on_loam_is_told_apart_byte_by_byte_and_its_default_heap_is_shown() {
    use std::io::{BufRead, BufReader};
    let Some(heap) = heap() else {
        common::skip("no build/libloam.so (make build, or LOAM_LIBRARY)");
        return;
    };
    let lab = Lab::new();
    let mut child = Command::new(holder(&lab, "ls-holder-5"))
        .arg("40")
        .env("LD_PRELOAD", heap)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let child = Running(child);
    let pid = child.0.id().to_string();
    let found = &json(&[&pid])["processes"][0];
    let lines = found["account_bytes"].as_object().unwrap();
    let sum: u64 = lines.values().map(|value| value.as_u64().unwrap()).sum();
    assert_eq!(sum, found["resident_bytes"].as_u64().unwrap());
    assert!(lines["live"].as_i64().unwrap() > 38 << 20, "{lines:?}");
    assert_eq!(found["verdict"]["finding"], "live");
    let counters = &found["counters"];
    assert_eq!(
        counters["consistent"], true,
        "a program that waits is read exactly"
    );
    assert_eq!(
        counters["notes"].as_array().map(Vec::len),
        Some(0),
        "{}",
        counters["notes"]
    );
    let locks = counters["locks"].as_array().unwrap();
    let is_used = |lock: &Value| {
        ["taken", "waited", "refused"]
            .iter()
            .any(|what| lock[*what].as_u64().unwrap() > 0)
    };
    assert!(!locks.is_empty() && locks.iter().all(is_used), "{locks:?}");
    assert!(counters["locks_never_taken"].as_u64().unwrap() > 0);
    let live = counters["process"]["live_blocks"].as_u64().unwrap();
    assert!((40 << 10..(40 << 10) + 200).contains(&live), "{live}");
    let all = stats(&[&pid]).out;
    let calls = all.lines().find(|line| line.starts_with("Calls: "));
    assert!(
        calls.is_some_and(
            |line| line.starts_with("Calls: at least 41.0 k allocations up to 32 KiB, 9")
        ),
        "{all}"
    );
    let page = stats(&[&pid, "--heap", "default"]);
    assert!(
        page.code == Some(0) && page.out.contains("SIZE CLASS"),
        "{page:?}"
    );
    let wrong = stats(&[&pid, "--heap", "no-such"]);
    assert!(
        wrong.code == Some(2) && wrong.err.contains("0 (default)"),
        "{wrong:?}"
    );
}
