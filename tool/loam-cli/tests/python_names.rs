//! Functions of a running Python that nobody prepared, by name, in what `loam record --pid` writes.
//! The program allocates buffers whose sizes say under which functions: a name that is wrong is
//! seen.

use std::path::{Path, PathBuf};
use std::process::Command;

use loam_process::mappings;
use loam_process::perf::rights::Rights;
use loam_process::process::Pid;
use loam_process::python::Interpreter;
use loam_process::remote::ProcessMemory;

use crate::common::{self, root, skip, Talker};
use crate::growth_verb::{info, record_leaks, under, Recording};

const LEAVES: [&str; 3] = ["leaf_0", "leaf_1", "Shop.leaf_2"];
/// Bytes of a buffer beside those that were asked for.
const MORE: f64 = 1.0;

/// Each Python here from 3.11 on, of versions that differ: those of `PATH`, and those that pyenv
/// has.
fn pythons() -> Vec<PathBuf> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let all = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&all).collect();
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let versions = std::fs::read_dir(home.join(".pyenv/versions"));
    let versions = versions.into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    for minor in 11..=14 {
        for folder in &folders {
            let program = folder.join(format!("python3.{minor}"));
            let asks = "import sys; print(sys.version, sys.prefix == sys.base_prefix)";
            let Ok(ran) = Command::new(&program).args(["-c", asks]).output() else {
                continue;
            };
            let version = String::from_utf8_lossy(&ran.stdout).into_owned();
            let is_new = found.iter().all(|(known, _)| *known != version);
            if ran.status.success() && !version.is_empty() && is_new {
                found.push((version, program));
            }
        }
    }
    found.into_iter().map(|(_, program)| program).collect()
}

/// What came of a recording: blocks under the leaves that have the right names, and all of them.
fn records(python: &Path, options: &[&str]) -> (f64, f64) {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let mut command = Command::new(python);
    command.arg(root().join("tests/recorder/named.py"));
    let mut talker = Talker::start(&mut command);
    let pid: Pid = talker.pid().parse().unwrap();
    let mapped = mappings::read_names(pid).unwrap();
    let found = Interpreter::find(pid, &mapped, &ProcessMemory::of(pid));
    assert!(found.is_some(), "{python:?}");
    let recording = Recording::begin(common::loam(), &talker.pid(), &trace, options);
    for _ in 0..10 {
        talker.ask("serve 50");
        talker.ask("thread 50");
    }
    recording.end();
    talker.tell("quit 0");
    talker.wait();
    let info = info(&trace);
    let (mut right, mut all) = (0.0, 0.0);
    for site in info["stacks"]["sites"].as_array().unwrap() {
        let number = |name: &str| site["allocated"][name].as_f64().unwrap();
        let names = site["functions"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|name| name.as_str().unwrap()).collect();
        // Weights are rounded.
        let size = (number("bytes") / number("blocks")).round() - MORE;
        let (via, leaf) = (
            (size / 1000.0) as i64 - 20,
            (size % 1000.0 / 100.0) as i64 - 1,
        );
        if !(0..4).contains(&via) || !(0..3).contains(&leaf) || size % 100.0 != 0.0 {
            continue;
        }
        all += number("blocks");
        let wanted = [
            "serve (named.py:".to_owned(),
            format!("via_{via} (named.py:"),
            format!("{} (named.py:", LEAVES[leaf as usize]),
            "keep (named.py:14)".to_owned(),
        ];
        // The outermost first; nothing of the program but these.
        let own = names.iter().filter(|name| name.contains("(named.py:"));
        let own = own.filter(|name| !name.starts_with("<module>") && !name.contains(".gives "));
        let own: Vec<&str> = own.copied().collect();
        let fits = own.len() == wanted.len()
            && own
                .iter()
                .zip(&wanted)
                .all(|(name, wanted)| name.starts_with(wanted.as_str()));
        assert!(fits || own.is_empty(), "{size} is not of {names:#?}");
        if fits {
            right += number("blocks");
        }
        // A function of C stays between the two that it connects.
        if fits && via == 2 {
            let at = |begin: &str| {
                names
                    .iter()
                    .position(|name| name.starts_with(begin))
                    .unwrap()
            };
            let between = &names[at(&wanted[1])..at(&wanted[2])];
            assert!(
                between.iter().any(|name| !name.contains(".py:")),
                "{names:#?}"
            );
        }
    }
    println!("{python:?} {options:?}: {right:.0} of {all:.0} blocks");
    (right, all)
}

#[test]
fn probes_tell_functions_of_python_by_name_and_none_wrongly() {
    if let Some(why) = Rights::over(std::process::id() as Pid).refuses_probes() {
        skip(&why);
        return;
    }
    let all = pythons();
    if all.is_empty() {
        skip("no Python from 3.11 on is installed");
    }
    for python in all {
        let (right, all) = records(&python, &["--cost", "50%"]);
        assert!(
            all > 0.0 && right >= 0.9 * all,
            "{python:?}: {right} of {all}"
        );
    }
}

#[test]
fn growth_tells_functions_of_python_by_name() {
    // A program in the kernel copies Python's frames.
    if let Some(why) = Rights::over(std::process::id() as Pid).refuses_probes() {
        skip(&why);
        return;
    }
    for python in pythons() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("t.trace");
        let mut command = Command::new(&python);
        command.arg(root().join("tests/recorder/leaks.py"));
        let mut talker = Talker::start(&mut command);
        record_leaks(&mut talker, &trace, &["--growth"]);
        talker.tell("quit");
        talker.wait();
        let info = info(&trace);
        let found = under(&info, "lose_session (leaks.py:9)");
        assert!(found > 8.0, "{found} {info:#}");
        assert!(under(&info, "serve (leaks.py:14)") >= found, "{info:#}");
    }
}
