//! `loam lab merge`: jobs and machines in one file, and files that can not be merged.

use crate::common;
use std::fs;

use crate::common::{Lab, Ran, GOOD};
use serde_json::Value;

/// A lab with the results of two jobs, a.json and b.json.
fn two_jobs() -> Lab {
    let lab = Lab::new();
    lab.workload("fake", GOOD);
    lab.allocator("forward");
    for (name, trials) in [("a.json", "2"), ("b.json", "3")] {
        let allocators = "system,forward=./libforward.so";
        let ran = lab.run(&[
            "fake",
            "--allocators",
            allocators,
            "--trials",
            trials,
            "--json",
            name,
        ]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    lab
}

fn merge(lab: &Lab, files: &[&str]) -> Ran {
    let mut command = common::loam();
    command.current_dir(lab.path("")).args(["lab", "merge"]);
    Ran::of(
        command
            .args(files)
            .args(["--output", "all.json"])
            .output()
            .unwrap(),
    )
}

/// Writes a copy of a file with a change.
fn change(lab: &Lab, from: &str, to: &str, change: impl FnOnce(&mut Value)) {
    let mut results = lab.results(from);
    change(&mut results);
    fs::write(lab.path(to), results.to_string()).unwrap();
}

fn show(lab: &Lab, name: &str) -> String {
    let mut command = common::loam();
    command
        .current_dir(lab.path(""))
        .args(["lab", "show", name]);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.out
}

#[test]
fn jobs_of_like_machines_become_one_table_with_all_rounds() {
    let lab = two_jobs();
    let ran = merge(&lab, &["a.json", "b.json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let all = lab.results("all.json");
    assert_eq!(all["experiments"].as_array().unwrap().len(), 1);
    assert_eq!(all["experiments"][0]["name"], "fake");
    assert_eq!(all["state"], "complete");
    let rounds = |allocator: &str| {
        let own = common::trials(&all).filter(|trial| trial["allocator"] == allocator);
        let mut rounds: Vec<u64> = own.map(|trial| trial["round"].as_u64().unwrap()).collect();
        rounds.sort_unstable();
        rounds
    };
    assert_eq!(rounds("system"), [0, 1, 2, 3, 4]);
    assert_eq!(rounds("forward"), [0, 1, 2, 3, 4]);
    let part = &all["experiments"][0]["part"];
    assert_eq!(part["files"].as_array().unwrap().len(), 2);
    assert_eq!(part["machine"], lab.results("a.json")["machine"]);
    let shown = show(&lab, "all.json");
    assert!(
        shown.contains("forward") && !shown.contains("Missing"),
        "{shown}"
    );

    // The same merge gives the same file, and merged files can be merged again.
    let again = merge(&lab, &["a.json", "b.json"]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.contains("--overwrite"), "{again:?}");
}

#[test]
fn another_machine_is_a_table_of_its_own() {
    let lab = two_jobs();
    change(&lab, "b.json", "other.json", |results| {
        results["machine"]["cpu"] = "Another Processor".into();
        results["allocators"][1]["sha256"] = "another library".into();
    });
    let ran = merge(&lab, &["a.json", "other.json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let all = lab.results("all.json");
    let names: Vec<&str> = all["experiments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["fake", "fake-2"]);
    let of = |name: &str| {
        common::trials(&all)
            .filter(|one| one["experiment"] == name)
            .count()
    };
    assert_eq!((of("fake"), of("fake-2")), (4, 6));
    let parts = &all["experiments"];
    assert_eq!(parts[1]["part"]["machine"]["cpu"], "Another Processor");
    assert_eq!(
        parts[1]["part"]["allocators"][1]["sha256"],
        "another library"
    );
    let shown = show(&lab, "all.json");
    assert!(shown.contains("on Another Processor"), "{shown}");

    fs::rename(lab.path("all.json"), lab.path("first.json")).unwrap();
    change(&lab, "b.json", "third.json", |results| {
        for trial in results["trials"].as_array_mut().unwrap() {
            trial["started"] = "2026-01-01T00:00:00Z".into();
        }
    });
    let ran = merge(&lab, &["first.json", "third.json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let all = lab.results("all.json");
    assert_eq!(all["experiments"].as_array().unwrap().len(), 2, "{all}");
    assert_eq!(
        all["experiments"][0]["part"]["files"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn what_does_not_belong_together_is_refused_and_why() {
    let lab = two_jobs();
    change(&lab, "b.json", "full.json", |results| {
        results["options"]["form"] = "full".into()
    });
    change(&lab, "b.json", "seed.json", |results| {
        results["options"]["seed"] = 7.into()
    });
    change(&lab, "b.json", "older.json", |results| {
        results["tool"]["version"] = "0.0.1".into()
    });
    change(&lab, "b.json", "library.json", |results| {
        results["allocators"][1]["sha256"] = "another library".into();
    });
    fs::copy(lab.path("a.json"), lab.path("copy.json")).unwrap();
    fs::write(lab.path("notes.json"), "{}").unwrap();
    for (files, parts) in [
        (
            ["a.json", "full.json"],
            [
                "the form is quick in the one and full in the other",
                "full.json",
            ],
        ),
        (
            ["a.json", "seed.json"],
            ["the seed is 1 in the one and 7", "one sweep"],
        ),
        (["a.json", "older.json"], ["the version of loam", "0.0.1"]),
        (
            ["a.json", "library.json"],
            ["forward is not the same", "LABEL=NAME"],
        ),
        (["a.json", "a.json"], ["the same trial", "named twice"]),
        (["a.json", "copy.json"], ["the same trial", "copy.json"]),
        (["a.json", "notes.json"], ["notes.json", "no results file"]),
        (["a.json", "absent.json"], ["absent.json", "No such file"]),
    ] {
        let ran = merge(&lab, &files);
        assert_eq!(ran.code, Some(2), "{files:?}: {ran:?}");
        for part in parts {
            assert!(ran.err.contains(part), "{part}: {}", ran.err);
        }
        assert!(!lab.path("all.json").exists());
    }
    let ran = merge(&lab, &["a.json"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("two or more"), "{ran:?}");
}
