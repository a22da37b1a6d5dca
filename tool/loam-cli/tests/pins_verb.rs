//! `loam pins` on a program that reports where its blocks are, from its recording and while it
//! runs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{compile, library, loam, root, skip, Ran};
use serde_json::Value;

const PAGE: u64 = 4_096;

fn recorder_is_built() -> bool {
    let is_built = root().join("build/libloam-record.so").is_file();
    if !is_built {
        skip("build/libloam-record.so has not been built");
    }
    is_built
}

fn program(folder: &Path) -> PathBuf {
    let product = folder.join("pins");
    let source = root().join("tests/recorder/pins.c");
    compile(&["-O1", "-fno-builtin", "-w"], &source, &product);
    product
}

/// Call site, address and size of each block.
type Said = Vec<(String, u64, u64)>;

fn said(lines: impl Iterator<Item = String>) -> Said {
    let lines = lines.take_while(|line| line != "ready");
    let parts = |line: String| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse().unwrap();
        (words[0].to_owned(), number(words[1]), number(words[2]))
    };
    lines.map(parts).collect()
}

/// By call site: the free bytes of sparse pages, divided among the blocks of each page. Also all
/// pages that such blocks keep.
fn truth(said: &Said) -> (BTreeMap<String, f64>, f64) {
    let mut pages: BTreeMap<u64, Vec<(&str, u64)>> = BTreeMap::new();
    for (site, address, size) in said {
        for page in address / PAGE..=(address + size - 1) / PAGE {
            let start = (*address).max(page * PAGE);
            let end = (address + size).min((page + 1) * PAGE);
            pages.entry(page).or_default().push((site, end - start));
        }
    }
    let (mut sites, mut all) = (BTreeMap::new(), 0.0);
    for parts in pages.values() {
        let free = (PAGE - parts.iter().map(|(_, bytes)| bytes).sum::<u64>()) as f64;
        if free > PAGE as f64 / 2.0 {
            all += free;
            for (site, _) in parts {
                *sites.entry((*site).to_owned()).or_default() += free / parts.len() as f64;
            }
        }
    }
    (sites, all)
}

fn record(folder: &Path, stacks: &str, arguments: &[&str]) -> Said {
    record_by(loam(), folder, stacks, arguments)
}

fn record_by(mut command: Command, folder: &Path, stacks: &str, arguments: &[&str]) -> Said {
    let product = program(folder);
    command.current_dir(folder).arg("record").arg(stacks);
    command.args(["--output", "t.trace", "--"]).arg(product);
    command.args(arguments).stdin(Stdio::null());
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    said(ran.out.lines().map(str::to_owned))
}

fn pins(folder: &Path, arguments: &[&str]) -> Value {
    let mut command = loam();
    command.current_dir(folder).args(["pins", "--json"]);
    let ran = Ran::of(command.args(arguments).output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    document["pins"].clone()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {value}"))
}

/// The rows and the figures beside them sum to the free bytes of all pages. The first walk of the
/// trace counts these in another way.
fn adds_up(pins: &Value) {
    let rows = pins["rows"].as_array().unwrap();
    let rows: u64 = rows.iter().map(|row| number(row, "shared_bytes")).sum();
    let rest = number(pins, "unknown_bytes") + number(pins, "dense_bytes");
    let counted = |sums: &Value| number(sums, "pages") * PAGE - number(sums, "live_bytes");
    assert_eq!(rows + rest, counted(&pins["sums"]));
    assert_eq!(rows + rest, number(pins, "total_bytes"));
    if !pins["moment"].is_null() {
        assert_eq!(pins["sums"], pins["moment"]["sums"]);
    }
}

#[test]
fn the_stack_whose_blocks_keep_sparse_pages_comes_first_and_within_its_error() {
    if !recorder_is_built() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = record(folder.path(), "--stacks=4K", &[]);
    let (truth, all) = truth(&said);
    for at in ["worst", "end"] {
        let pins = pins(folder.path(), &["t.trace", "--at", at]);
        adds_up(&pins);
        let rows = pins["rows"].as_array().unwrap();
        let site = |row: &Value| {
            let functions = row["functions"].as_array().unwrap();
            functions.last().unwrap().as_str().unwrap().to_owned()
        };
        assert_eq!(site(&rows[0]), "remembers_a_session", "{rows:?}");
        for (name, blame) in &truth {
            let row = rows.iter().find(|row| site(row) == *name).unwrap();
            let (shared, error) = (number(row, "shared_bytes"), number(row, "error_bytes"));
            let off = (shared as f64 - blame).abs();
            // Each recording of the program draws the same random numbers. All its other live
            // blocks are a thousandth.
            assert!(
                off < error as f64 + all / 1e3,
                "{name}: {shared} of {blame} +- {error}"
            );
            assert!((error as f64) < 0.2 * all, "{name}: {error} of {all}");
            assert!(number(row, "samples") > 15, "{row}");
        }
    }
    let text = loam()
        .current_dir(folder.path())
        .args(["pins", "t.trace"])
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("when sparse pages cost most"), "{text}");
    assert!(
        text.contains("Stack 1\n  remembers_a_session\n  serves"),
        "{text}"
    );
    assert!(text.contains("one for each 4.00 KiB requested"), "{text}");
}

/// The same command on one core: there the drainer runs only while the program waits, so rings are
/// often full.
fn on_one_core(command: &Command) -> Command {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let cores = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = cores.unwrap().trim().split([',', '-']).next().unwrap();
    let mut alone = Command::new("taskset");
    alone.args(["-c", first]).arg(command.get_program());
    alone.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => alone.env(name, value),
            None => alone.env_remove(name),
        };
    }
    alone
}

/// The table of stacks, with a line for each stack that has other frames.
fn stacks(folder: &Path) -> String {
    let mut command = loam();
    command.current_dir(folder).args(["trace", "export"]);
    command.args(["--table", "stacks", "--format", "csv"]);
    let ran = Ran::of(
        command
            .args(["--output", "s.csv", "t.trace"])
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    std::fs::read_to_string(folder.join("s.csv")).unwrap()
}

fn is_lost(line: &&str) -> bool {
    line.split(',').nth(1) == Some("[not known]")
}

#[test]
fn with_all_stacks_known_blame_is_exact_sole_blame_too() {
    if !recorder_is_built() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = record_by(on_one_core(&loam()), folder.path(), "--stacks=1", &[]);
    let (truth, _) = truth(&said);
    // A lost stack has no frame at all.
    let lost = stacks(folder.path()).lines().filter(is_lost).count();
    assert_eq!(lost, 0);
    let pins = pins(folder.path(), &["t.trace", "--at", "end"]);
    adds_up(&pins);
    let rows = pins["rows"].as_array().unwrap();
    for (row, name) in rows.iter().zip(["remembers_a_session", "writes_a_log"]) {
        assert_eq!(row["functions"].as_array().unwrap().last().unwrap(), name);
        assert_eq!(number(row, "error_bytes"), 0);
        let blocks = said.iter().filter(|(site, ..)| site == name).count();
        assert_eq!(number(row, "samples"), blocks as u64);
        // The output's buffer and similar blocks share a page or two.
        assert!((number(row, "shared_bytes") as f64 - truth[name]).abs() < 3.0 * PAGE as f64);
        let sole = number(row, "sole_bytes");
        assert!(sole > 0 && sole <= number(row, "shared_bytes"), "{row}");
    }
    assert_eq!(number(&pins, "sole_unknown_bytes"), 0);
}

#[test]
fn blocks_that_stand_together_keep_no_sparse_pages() {
    if !recorder_is_built() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let scattered = record(folder.path(), "--stacks=4K", &[]);
    let before = pins(folder.path(), &["t.trace", "--at", "end"]);
    std::fs::remove_file(folder.path().join("t.trace")).unwrap();
    let together = record(folder.path(), "--stacks=4K", &["apart"]);
    let after = pins(folder.path(), &["t.trace", "--at", "end"]);
    assert_eq!(scattered.len(), together.len());
    let sparse = |pins: &Value| number(pins, "total_bytes") - number(pins, "dense_bytes");
    assert!(sparse(&after) * 20 < sparse(&before), "{after} {before}");
}

#[test]
fn other_ways_to_tell_blocks_apart_are_exact_and_need_no_stacks() {
    if !recorder_is_built() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = record(folder.path(), "--stacks=64K", &[]);
    let (_, all) = truth(&said);
    for by in ["size", "age", "thread"] {
        for at in ["worst", "peak", "end", "0.001"] {
            let pins = pins(folder.path(), &["t.trace", "--by", by, "--at", at]);
            adds_up(&pins);
            if at == "end" {
                let rows = pins["rows"].as_array().unwrap();
                // Their ages depend on the machine. One thread allocated all of them, and they have
                // one size.
                let counted = if by == "age" { rows.len() } else { 1 };
                let blame = rows.iter().take(counted);
                let blame: u64 = blame.map(|row| number(row, "shared_bytes")).sum();
                assert!(blame as f64 > 0.9 * all, "{by}: {rows:?}");
                assert_eq!(number(&pins, "unknown_bytes"), 0);
            }
        }
    }
}

/// The case of docs/pins.md: one function has most of the blame. Its blocks are told apart by the
/// program's functions that led to them, and a pool of their own is the remedy.
#[test]
fn the_documents_case_names_the_function_to_change_and_its_cure_helps() {
    if !recorder_is_built() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = root().join("examples/pins/sessions.cpp");
    let options = ["-std=c++17", "-O2", "-g", "-Wl,--no-as-needed", "-lstdc++"];
    compile(&options, &source, &folder.path().join("sessions"));
    let worst = |arguments: &[&str]| {
        let mut command = loam();
        command.current_dir(folder.path());
        command.args([
            "record",
            "--force",
            "--stacks=16K",
            "--output",
            "t.trace",
            "--",
        ]);
        command
            .arg("./sessions")
            .args(arguments)
            .stdin(Stdio::null());
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        std::fs::rename(folder.path().join("t.trace"), folder.path().join("s.trace")).unwrap();
        pins(folder.path(), &["s.trace"])
    };
    let among = worst(&[]);
    adds_up(&among);
    let rows = among["rows"].as_array().unwrap();
    let remembers = |row: &&Value| {
        let last = row["functions"].as_array().unwrap().last().unwrap();
        last.as_str().unwrap().starts_with("Sessions::remember")
    };
    let theirs: u64 = rows
        .iter()
        .filter(remembers)
        .map(|row| number(row, "shared_bytes"))
        .sum();
    assert!(remembers(&&rows[0]), "{rows:?}");
    assert!(theirs * 10 > number(&among, "total_bytes") * 9, "{rows:?}");
    let apart = worst(&["apart"]);
    let sparse = |pins: &Value| number(pins, "total_bytes") - number(pins, "dense_bytes");
    assert!(sparse(&apart) * 5 < sparse(&among), "{apart}");
}

/// A child that ends with its test.
struct Alive(Child);

impl Drop for Alive {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(folder: &Path, preload: Option<&Path>) -> (Alive, Said) {
    let mut command = Command::new(program(folder));
    command.env_remove("LD_PRELOAD");
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = said(lines.map(Result::unwrap));
    (Alive(child), said)
}

#[test]
fn a_process_on_glibcs_malloc_is_walked_and_its_rows_sum_to_its_resident_pages() {
    let folder = tempfile::tempdir().unwrap();
    let (process, said) = start(folder.path(), None);
    let mut command = loam();
    let output = command
        .args(["pins", "--json", &process.0.id().to_string()])
        .output();
    let ran = Ran::of(output.unwrap());
    if ran.err.contains("can be read") {
        skip(&ran.err);
        return;
    }
    let document: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!(document["heap"], "glibc");
    let pins = &document["pins"];
    adds_up(pins);
    let pages = number(&pins["sums"], "pages") * PAGE;
    assert_eq!(
        pages + number(pins, "empty_bytes"),
        number(pins, "resident_bytes")
    );
    // malloc gives 120 bytes, and the program counts as many.
    let (_, all) = truth(&said);
    let first = &pins["rows"][0];
    assert_eq!(number(first, "smallest"), 120, "{first}");
    let blame = number(first, "shared_bytes") as f64;
    assert!((blame - all).abs() < 0.01 * all, "{blame} of {all}");
}

#[test]
fn a_process_on_loam_is_told_by_its_counters() {
    let Some(library) = library() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (process, said) = start(folder.path(), Some(&library));
    let pid = process.0.id().to_string();
    let ran = Ran::of(loam().args(["pins", "--json", &pid]).output().unwrap());
    let document: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!(document["heap"], "Loam");
    let pins = &document["pins"];
    let classes = pins["classes"].as_array().unwrap();
    let sum: u64 = classes
        .iter()
        .map(|class| number(class, "free_bytes"))
        .sum();
    assert_eq!(
        sum + number(pins, "mixed_bytes"),
        number(pins, "free_bytes")
    );
    let live: u64 = classes
        .iter()
        .map(|class| number(class, "live_blocks"))
        .sum();
    assert!(live as usize >= said.len(), "{pins}");

    let stats = Ran::of(loam().args(["stats", "--json", &pid]).output().unwrap());
    let text = Ran::of(loam().args(["pins", &pid]).output().unwrap());
    assert!(text.out.contains("on Loam"), "{text:?} {stats:?}");
}

#[test]
fn what_can_not_be_looked_at_is_said_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| {
        let mut command = loam();
        command
            .current_dir(folder.path())
            .arg("pins")
            .args(arguments);
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        ran.err
    };
    assert!(refused(&["missing.trace"]).contains("there is no such trace"));
    assert!(refused(&["no-such-program"]).contains("no process is called"));
    assert!(refused(&["x", "--at", "soon"]).contains("worst"));
    if !recorder_is_built() {
        return;
    }
    let mut command = loam();
    command.current_dir(folder.path());
    command.args(["record", "--output", "plain.trace", "--", "true"]);
    assert!(command.output().unwrap().status.success());
    let error = refused(&["plain.trace", "--by", "stack"]);
    assert!(
        error.contains("--stacks=16K") && error.contains("--by size"),
        "{error}"
    );
}
