//! What `loam lab` does with a results file that another run has filled or is filling
//! (hyperfine#529), and with its trial when the lab is killed.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::{signal, trials, until, Lab, Ran, GOOD};

const ONE_TRIAL: [&str; 7] = [
    "fake",
    "--json",
    "r.json",
    "--trials",
    "1",
    "--allocators",
    "system",
];

/// Starts a run with a trial that never ends by itself, and waits until the trial runs.
fn endless(lab: &Lab) -> (Child, i32) {
    lab.workload(
        "fake",
        "echo $$ > \"$0.new\"; mv \"$0.new\" \"$0.pid\"; sleep 1000 & wait",
    );
    let child = lab
        .command(&ONE_TRIAL)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid_file = lab.path("workloads/fake.pid");
    until("the trial begins", || pid_file.exists());
    let pid = fs::read_to_string(&pid_file).unwrap();
    (child, pid.trim().parse().unwrap())
}

/// Processes of that group that have not ended.
fn members(group: i32) -> usize {
    let stats = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        let fields: Vec<String> = stat
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        Some((fields[0].clone(), fields[2].parse::<i32>().ok()?))
    });
    stats
        .filter(|(state, of)| *of == group && state != "Z" && state != "X")
        .count()
}

#[test]
fn the_same_command_again_is_refused_and_keeps_the_finished_trials() {
    let lab = Lab::new();
    lab.workload("fake", GOOD);
    assert_eq!(lab.run(&ONE_TRIAL).code, Some(0));
    let before = fs::read(lab.path("r.json")).unwrap();
    let ran = lab.run(&ONE_TRIAL);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for said in ["r.json has 1 finished trial", "--resume", "--overwrite"] {
        assert!(ran.err.contains(said), "{said}: {}", ran.err);
    }
    assert_eq!(fs::read(lab.path("r.json")).unwrap(), before);

    let ran = lab.run(&[&ONE_TRIAL[..], &["--overwrite", "--seed", "2"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(lab.results("r.json")["options"]["seed"], 2);
}

#[test]
fn a_file_that_can_not_be_read_as_results_is_not_replaced() {
    let lab = Lab::new();
    lab.workload("fake", GOOD);
    assert_eq!(lab.run(&ONE_TRIAL).code, Some(0));
    let text = fs::read_to_string(lab.path("r.json")).unwrap();
    fs::write(lab.path("r.json"), &text[..text.len() / 2]).unwrap();
    let ran = lab.run(&ONE_TRIAL);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("is no results file"), "{}", ran.err);
    assert_eq!(
        fs::read_to_string(lab.path("r.json")).unwrap(),
        text[..text.len() / 2]
    );
}

#[test]
fn a_file_that_another_lab_writes_is_refused_whatever_the_options() {
    let lab = Lab::new();
    let (mut first, trial) = endless(&lab);
    for option in [&[][..], &["--resume"], &["--overwrite"]] {
        let ran = lab.run(&[&ONE_TRIAL[..], option].concat());
        assert_eq!(ran.code, Some(2), "{option:?}: {ran:?}");
        assert!(ran.err.contains("another `loam lab`"), "{}", ran.err);
    }
    // A link to the file is the same file.
    std::os::unix::fs::symlink("r.json", lab.path("link.json")).unwrap();
    let mut by_link = ONE_TRIAL;
    by_link[2] = "link.json";
    let ran = lab.run(&by_link);
    assert!(ran.err.contains("another `loam lab`"), "{ran:?}");

    assert!(signal("INT", first.id()));
    assert_eq!(first.wait().unwrap().code(), Some(130));
    assert_eq!(members(trial), 0);
    lab.workload("fake", GOOD);
    let ran = lab.run(&[&ONE_TRIAL[..], &["--overwrite"]].concat());
    assert_eq!(ran.code, Some(0), "the lock went with its run: {ran:?}");
}

#[test]
fn a_run_that_measured_nothing_leaves_no_results_file() {
    let lab = Lab::new();
    lab.workload("fake", GOOD);
    let (mut first, _) = endless(&lab);
    first.kill().unwrap();
    first.wait().unwrap();
    lab.workload("fake", GOOD);
    let ran = lab.run(&ONE_TRIAL);
    assert_eq!(
        ran.code,
        Some(0),
        "what a killed run left is in nobody's way: {ran:?}"
    );
    assert_eq!(trials(&lab.results("r.json")).count(), 1);
    assert!(Path::new(&lab.path("r.html")).exists());
}

#[test]
fn a_lab_that_is_killed_ends_its_trial_with_all_its_processes() {
    let lab = Lab::new();
    let (mut child, trial) = endless(&lab);
    assert!(members(trial) > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    until("the trial ends with its lab", || members(trial) == 0);
}

#[test]
fn a_second_run_beside_another_name_is_free() {
    let lab = Lab::new();
    let (mut first, _) = endless(&lab);
    lab.workload("other", GOOD);
    let ran: Ran = lab.run(&[
        "other",
        "--json",
        "s.json",
        "--trials",
        "1",
        "--allocators",
        "system",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    first.kill().unwrap();
    first.wait().unwrap();
}
