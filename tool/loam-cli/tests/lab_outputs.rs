//! Where results go: places that can not be written, disks that fill up, files that are not ours,
//! and continuing a run.

use crate::common;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::common::{signal, trials, until, Lab, Ran, GOOD};

/// A workload that leaves a mark each time it runs.
fn counted() -> String {
    format!("echo x >> \"$0.ran\"\n{GOOD}")
}

fn times_run(lab: &Lab) -> usize {
    fs::read_to_string(lab.path("workloads/fake.ran")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_place_that_can_not_be_written_is_found_out_before_anything_runs() {
    let lab = Lab::new();
    lab.workload("fake", &counted());
    fs::create_dir(lab.path("folder")).unwrap();
    fs::write(lab.path("notes.json"), "{\"mine\": true}").unwrap();
    fs::write(lab.path("notes.html"), "<p>mine</p>").unwrap();
    let cases = [
        (["--json", "/nowhere/r.json"], "folder does not exist"),
        (["--json", "folder"], "is a folder"),
        (
            ["--json", "notes.json"],
            "not something that `loam lab` wrote",
        ),
        (
            ["--html", "notes.html"],
            "not something that `loam lab` wrote",
        ),
        (["--html", "/nowhere/r.html"], "folder does not exist"),
        (["--json", "/dev/full"], "No space left on device"),
        (["--json", "/proc/loam.json"], "can not be written"),
    ];
    for (arguments, said) in cases {
        let ran = lab.run(&[&["fake", "--allocators", "system"], &arguments[..]].concat());
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(ran.err.contains(said), "{said} in {}", ran.err);
    }
    assert_eq!(times_run(&lab), 0);
    assert_eq!(
        fs::read_to_string(lab.path("notes.json")).unwrap(),
        "{\"mine\": true}"
    );
}

/// Runs a script in a mount namespace of its own with a tiny disk at $1; none if that is not
/// allowed.
fn on_tiny_disk(lab: &Lab, script: &str) -> Option<Ran> {
    let disk = lab.path("disk");
    fs::create_dir(&disk).unwrap();
    let mount = "mount -t tmpfs -o size=48k none \"$1\"";
    let run = |options: &[&str], script: &str| {
        let mut command = Command::new("unshare");
        command
            .args(options)
            .args(["sh", "-c", script, "sh"])
            .arg(&disk);
        command
            .arg(env!("CARGO_BIN_EXE_loam"))
            .arg(lab.path("workloads"));
        command.current_dir(lab.path("")).output().ok()
    };
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let options = ways
        .into_iter()
        .find(|options| run(options, mount).is_some_and(|output| output.status.success()))?;
    run(options, &format!("{mount} || exit 99\n{script}")).map(Ran::of)
}

#[test]
fn a_disk_that_fills_keeps_the_last_good_file_and_says_where() {
    let lab = Lab::new();
    // Each trial adds some 8 KiB. The disk has 48 KiB, and holds two versions while one is
    // replaced.
    let long = "x".repeat(8000);
    lab.workload(
        "fake",
        &GOOD.replace("\"checksum\"", &format!("\"long\":\"{long}\",\"checksum\"")),
    );
    let script = "\"$2\" lab fake --workloads-dir \"$3\" --json \"$1/r.json\" --html kept.html \
                  --allocators system --trials 20; code=$?; cp \"$1/r.json\" kept.json; exit $code";
    let Some(ran) = on_tiny_disk(&lab, script) else {
        common::skip("this system allows no mount namespace");
        return;
    };
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("No space left on device"), "{}", ran.err);
    assert!(
        ran.err.contains("disk/r.json") && ran.err.contains("not in it: fake"),
        "{}",
        ran.err
    );
    assert!(
        ran.out.contains("1000/s"),
        "what was measured is shown: {}",
        ran.out
    );
    let kept = lab.results("kept.json");
    assert!(trials(&kept).count() >= 1, "the last good file is complete");
    assert_eq!(kept["state"], "running");
}

#[test]
fn an_interruption_keeps_finished_trials_and_resuming_runs_the_rest() {
    let lab = Lab::new();
    // The third process (warm-up, round 1, round 2) hangs, once.
    let script = format!(
        "echo x >> \"$0.ran\"\n\
         [ $(wc -l < \"$0.ran\") = 3 ] && {{ echo $$ > \"$0.pid\"; sleep 600; }}\n{GOOD}"
    );
    lab.workload("fake", &script);
    let arguments = [
        "fake",
        "--json",
        "r.json",
        "--trials",
        "3",
        "--allocators",
        "system",
    ];
    let child = lab
        .command(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid_file = lab.path("workloads/fake.pid");
    until("the third trial begins", || {
        fs::read_to_string(&pid_file).is_ok_and(|text| !text.trim().is_empty())
    });
    assert!(signal("INT", child.id()));
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.err.contains("2 trials not run") && ran.err.contains("--resume"),
        "{}",
        ran.err
    );
    assert!(ran.out.contains("Missing: 2 planned trials"), "{}", ran.out);
    let results = lab.results("r.json");
    assert_eq!(results["state"], "interrupted");
    assert_eq!(trials(&results).count(), 1);
    let page = fs::read_to_string(lab.path("r.html")).unwrap();
    assert!(page.contains("The run was interrupted") && page.contains("Missing: 2 planned"));
    let pid = fs::read_to_string(&pid_file).unwrap();
    assert!(!signal("0", pid.trim()), "the running trial was ended");

    let ran = lab.run(&[&arguments[..], &["--resume"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("1 finished trial kept"), "{}", ran.err);
    let results = lab.results("r.json");
    assert_eq!(results["state"], "complete");
    let rounds: Vec<u64> = trials(&results)
        .map(|trial| trial["round"].as_u64().unwrap())
        .collect();
    assert_eq!(rounds, [0, 1, 2]);
}

#[test]
fn what_is_resumed_must_be_the_same_thing() {
    let lab = Lab::new();
    lab.workload("fake", GOOD);
    let arguments = [
        "fake",
        "--json",
        "r.json",
        "--trials",
        "1",
        "--allocators",
        "system",
    ];
    assert_eq!(lab.run(&arguments).code, Some(0));
    let before = fs::read(lab.path("r.json")).unwrap();
    let ran = lab.run(&[&arguments[..], &["--resume", "--seed", "2"]].concat());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("the seed was 1 and is 2"), "{}", ran.err);
    lab.workload("fake", &format!("# changed\n{GOOD}"));
    let ran = lab.run(&[&arguments[..], &["--resume"]].concat());
    assert!(ran.err.contains("the program of fake was"), "{}", ran.err);
    assert_eq!(
        fs::read(lab.path("r.json")).unwrap(),
        before,
        "nothing was lost"
    );
    let ran = lab.run(&["fake", "--resume"]);
    assert_eq!(ran.code, Some(2), "--resume needs --json: {ran:?}");
}

#[test]
fn a_results_file_can_be_shown_and_compared_again() {
    let lab = Lab::new();
    lab.workload("fake", GOOD);
    let run = |json: &str, allocators: &str| {
        let arguments = [
            "fake",
            "--json",
            json,
            "--trials",
            "2",
            "--allocators",
            allocators,
        ];
        assert_eq!(lab.run(&arguments).code, Some(0));
    };
    run("a.json", "system");
    run("b.json", "system:RATE=3000");
    // Only the label distinguishes them; `compare` uses labels.
    let text = fs::read_to_string(lab.path("b.json")).unwrap();
    fs::write(
        lab.path("b.json"),
        text.replace("\"system:RATE=3000\"", "\"system\""),
    )
    .unwrap();

    let plain = |arguments: &[&str]| {
        let mut command = common::loam();
        Ran::of(
            command
                .current_dir(lab.path(""))
                .arg("lab")
                .args(arguments)
                .output()
                .unwrap(),
        )
    };
    let shown = plain(&["show", "a.json", "--html", "again.html"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.out.contains("1000/s"), "{}", shown.out);
    assert!(fs::read_to_string(lab.path("again.html"))
        .unwrap()
        .contains("loam-data"));

    let compared = plain(&["compare", "a.json", "b.json"]);
    assert_eq!(compared.code, Some(0), "{compared:?}");
    assert!(
        compared.out.contains("speed up 200%, better"),
        "{}",
        compared.out
    );
    let same = plain(&["compare", "a.json", "a.json"]);
    assert!(
        same.out.contains("no difference beyond the noise"),
        "{}",
        same.out
    );
}

#[test]
fn a_file_that_is_no_results_file_is_named_as_such() {
    let lab = Lab::new();
    let cases = [
        ("{", "no results file"),
        ("{\"format\":\"other\"}", "\"format\" is not"),
        ("{\"format\":\"loam-lab-results\"}", "no \"version\""),
        (
            "{\"format\":\"loam-lab-results\",\"version\":99}",
            "newer loam",
        ),
        (
            "{\"format\":\"loam-lab-results\",\"version\":1}",
            "missing field",
        ),
    ];
    for (text, said) in cases {
        fs::write(lab.path("x.json"), text).unwrap();
        let mut command = common::loam();
        let ran = Ran::of(
            command
                .args(["lab", "show"])
                .arg(lab.path("x.json"))
                .output()
                .unwrap(),
        );
        assert_eq!(ran.code, Some(2), "{text}: {ran:?}");
        assert!(ran.err.contains(said), "{said} in {}", ran.err);
    }
    let missing = Ran::of(
        common::loam()
            .args(["lab", "show", "/no/x"])
            .output()
            .unwrap(),
    );
    assert!(
        missing.code == Some(2) && missing.err.contains("/no/x"),
        "{missing:?}"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let lab = Lab::new();
    lab.workload("fake", GOOD);
    let arguments = [
        "fake",
        "--json",
        "r.json",
        "--trials",
        "1",
        "--allocators",
        "system",
    ];
    assert_eq!(lab.run(&arguments).code, Some(0));
    let mut child = common::loam()
        .args(["lab", "show"])
        .arg(lab.path("r.json"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.status.signal()),
        (Some(0), None),
        "{output:?}"
    );
    assert!(output.stderr.is_empty(), "{output:?}");
}
