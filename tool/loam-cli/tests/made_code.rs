//! Functions whose code a runtime makes while the program runs, by the names that it tells in
//! `/tmp/perf-PID.map`: with node and Python. What such a file may contain is tested in
//! `loam-process` (`jit`).

use std::path::Path;
use std::process::Command;

use loam_process::perf::rights::Rights;
use loam_process::process::Pid;

use crate::common::{self, root, skip, Ran, Talker};
use crate::growth_verb::{info, record_leaks, under};

/// A program in node that tells names, and writes a log to that folder; none if node is not here.
fn command(folder: &Path) -> Option<Command> {
    let is_here = Command::new("node").arg("--version").output();
    if !is_here.is_ok_and(|out| out.status.success()) {
        skip("node is not installed (Debian package nodejs)");
        return None;
    }
    let mut command = Command::new("node");
    command.current_dir(folder);
    // Code is made for each function at its first call, and not when it has been called often.
    command.args(["--perf-basic-prof", "--always-sparkplug"]);
    command.arg(root().join("tests/recorder/leaks.js"));
    Some(command)
}

/// Removes the file in which a process told names.
struct Told(String);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", self.0));
    }
}

/// The name under which the trace has a function.
fn name_of(trace: &Path, function: &str) -> String {
    let info = info(trace);
    let sites = info["stacks"]["sites"].as_array().unwrap().iter();
    let names = sites.flat_map(|site| site["functions"].as_array().unwrap());
    let found = names
        .filter_map(|name| name.as_str())
        .find(|name| name.contains(function));
    found.unwrap_or_else(|| panic!("{info:#}")).to_owned()
}

fn records(options: &[&str], least: f64) {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut command) = command(dir.path()) else {
        return;
    };
    let trace = dir.path().join("t.trace");
    let mut talker = Talker::start(&mut command);
    let _told = Told(talker.pid());
    talker.ask("10");
    record_leaks(&mut talker, &trace, options);
    let name = name_of(&trace, "lose_session");
    assert!(name.ends_with("leaks.js:5:22"), "{name}");
    let found = under(&info(&trace), &name);
    assert!(found > least, "{found}");
    talker.tell("quit");
    talker.wait();
}

#[test]
fn probes_tell_functions_of_node_by_name() {
    match Rights::over(std::process::id() as Pid).refuses_probes() {
        Some(why) => skip(&why),
        // All of it is a thousand blocks of 16 KiB. Windows may leave out most of them.
        None => records(&["--cost", "50%"], 1.0),
    }
}

#[test]
fn growth_tells_functions_of_node_by_name() {
    records(&["--growth"], 2.0);
}

/// The first Python here that tells names: `-X perf` exists from 3.12 on.
fn python() -> Option<Command> {
    let names = ["python3", "python3.12", "python3.13", "python3.14"];
    let asks = "import sys; sys.exit(not sys.is_stack_trampoline_active())";
    let found = names.into_iter().find(|name| {
        let ran = Command::new(name).args(["-X", "perf", "-c", asks]).output();
        ran.is_ok_and(|out| out.status.success())
    });
    if found.is_none() {
        skip("no Python from 3.12 on, which tells names with -X perf, is installed");
    }
    let mut command = Command::new(found?);
    command.args(["-X", "perf"]);
    command.arg(root().join("tests/recorder/leaks.py"));
    Some(command)
}

#[test]
fn growth_tells_functions_of_python_by_name_up_to_the_program_s_begin() {
    let Some(mut command) = python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.trace");
    let mut talker = Talker::start(&mut command);
    let _told = Told(talker.pid());
    record_leaks(&mut talker, &trace, &["--growth"]);
    talker.tell("quit");
    talker.wait();
    let info = info(&trace);
    let sites = info["stacks"]["sites"].as_array().unwrap().iter();
    let whole = sites.filter(|site| {
        let names = site["functions"].as_array().unwrap().iter();
        let names: Vec<&str> = names.filter_map(|name| name.as_str()).collect();
        // The outermost first.
        let mut wanted = ["main", "py::serve:", "py::lose_session:"]
            .iter()
            .peekable();
        for name in names {
            wanted.next_if(|wanted| name.contains(**wanted));
        }
        wanted.peek().is_none()
    });
    let bytes = whole.map(|site| site["peak"]["bytes"].as_f64().unwrap());
    assert!(bytes.sum::<f64>() > 1e6, "{info:#}");
}

#[test]
fn a_program_that_was_started_has_them_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (Some(node), Some(_)) = (command(dir.path()), common::recorder()) else {
        return;
    };
    let trace = dir.path().join("t.trace");
    let orders = dir.path().join("orders");
    std::fs::write(&orders, "1000\nquit\n").unwrap();
    let mut command = common::loam();
    command
        .args(["record", "--stacks=64K", "--output"])
        .arg(&trace)
        .arg("--")
        .arg(node.get_program())
        .args(node.get_args())
        .current_dir(dir.path())
        .stdin(std::fs::File::open(&orders).unwrap());
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let processes = &info(&trace)["processes"];
    let _told = Told(processes[0]["process"]["pid"].to_string());
    let name = name_of(&trace, "lose_session");
    assert!(under(&info(&trace), &name) > 8.0, "{name}");
}
