//! `loam help recipes`: each of its commands is tried, word for word, on a program and its trace.

use std::process::Command;

use loam_cli::recipes::RECIPES;

use crate::common::{self, can_replay_on_loam, compile, loam, loam_in, root, Ran, Talker};

#[test]
fn every_recipe_is_a_command_that_works() {
    if !can_replay_on_loam() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("truth");
    compile(
        &["-O1", "-pthread"],
        &root().join("tests/doctor/truth.c"),
        &program,
    );
    let mut command = Command::new(&program);
    command
        .args(["0", "2", "50", "16"])
        .env_remove("LD_PRELOAD")
        .env_remove("GLIBC_TUNABLES");
    let patient = Talker::start(&mut command);
    for name in ["now", "older"] {
        common::record_orders(dir.path(), name, &["-O1"]);
    }
    // Every allocator that is here would take minutes.
    let only = "jemalloc";
    for (question, command, _) in RECIPES {
        let words: Vec<String> = command
            .split(' ')
            .map(|word| match word {
                "PID" => patient.pid(),
                "TRACE" => "now.trace".to_owned(),
                "OLDER" => "older.trace".to_owned(),
                "PROGRAM" => "./now".to_owned(),
                "60" => "1".to_owned(),
                word => word.replace(&format!(",{only}"), ",loam"),
            })
            .collect();
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(words.remove(0), "loam", "{command}");
        match words[0] {
            "replay" | "gate" => words.extend(["--trials", "1"]),
            "advise" => words.extend(["--trials", "2", "--allocators", "system,loam"]),
            _ => {}
        }
        let ran = loam_in(dir.path(), &words);
        // A gate of one trial may not be able to tell.
        let is_well = matches!(ran.code, Some(0 | 1)) || words[0] == "gate";
        let is_usage = ran.err.contains("For more information, try");
        assert!(is_well && !is_usage, "{question} {command}: {ran:?}");
    }
}

#[test]
fn help_and_the_verb_print_the_same_recipes() {
    let shown = Ran::of(loam().args(["help", "recipes"]).output().unwrap());
    let printed = Ran::of(loam().arg("recipes").output().unwrap());
    for (question, command, _) in RECIPES {
        for ran in [&shown, &printed] {
            assert!(
                ran.out.contains(question) && ran.out.contains(command),
                "{command}: {ran:?}"
            );
        }
    }
}

/// The service of the front page: what the doctor says of it, and what a trim makes of it.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_front_pages_service_gets_thin() {
    use std::io::{BufRead, BufReader};
    let mut command = Command::new("python3");
    command.arg(root().join("examples/fat/messages.py"));
    command
        .env_remove("LD_PRELOAD")
        .env_remove("GLIBC_TUNABLES")
        .env_remove("PYTHONMALLOC");
    let child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut service = common::Running(child);
    let mut line = String::new();
    let mut output = BufReader::new(service.0.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "idle");
    let pid = service.0.id().to_string();
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    };
    let ran = Ran::of(loam().args(["doctor", &pid]).output().unwrap());
    assert!(
        ran.code == Some(1) && ran.out.contains("free pages"),
        "{ran:?}"
    );
    let before = resident();
    let ran = Ran::of(loam().args(["trim", &pid]).output().unwrap());
    assert!(
        ran.code == Some(0) && ran.out.contains("gave back"),
        "{ran:?}"
    );
    let after = resident();
    assert!(
        after + 8 < before,
        "{before} MiB before, {after} after: {ran:?}"
    );
}
