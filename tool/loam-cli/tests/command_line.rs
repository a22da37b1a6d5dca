//! The command line as a whole: its documentation, its errors, its colours.

use crate::common;

use crate::common::{Lab, Ran, GOOD};
use clap::CommandFactory;
use loam_cli::cli::Cli;

#[test]
fn every_option_has_help_and_no_name_means_two_things() {
    fn sweep(command: &clap::Command) {
        let mut names = Vec::new();
        for argument in command.get_arguments() {
            let id = format!("{} {}", command.get_name(), argument.get_id());
            let is_documented = argument
                .get_help()
                .is_some_and(|help| !help.to_string().is_empty());
            assert!(is_documented, "{id} has no help");
            names.extend(argument.get_long().map(str::to_owned));
            names.extend(argument.get_short().map(|short| short.to_string()));
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(
            names.len(),
            count,
            "{} has an option twice",
            command.get_name()
        );
        assert!(
            command.get_about().is_some(),
            "{} has no description",
            command.get_name()
        );
        command.get_subcommands().for_each(sweep);
    }
    let command = Cli::command();
    command.clone().debug_assert();
    sweep(&command);
}

#[test]
fn unknown_names_get_a_suggestion_and_the_list() {
    let lab = Lab::new();
    lab.workload("queue", GOOD).workload("phase", GOOD);
    let ran = lab.run(&["quueu"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("did you mean `queue`") && ran.err.contains("phase"),
        "{}",
        ran.err
    );
    let ran = lab.run(&["queue", "--allocators", "sistem"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("did you mean `system`"), "{}", ran.err);
    let ran = lab.run(&["sizes"]);
    assert!(
        ran.code == Some(2) && ran.err.contains("not built"),
        "{ran:?}"
    );
    let empty = Lab::new();
    let ran = empty.run(&[]);
    assert!(
        ran.code == Some(2) && ran.err.contains("make build"),
        "{ran:?}"
    );
}

#[test]
fn the_listing_of_allocators_is_for_people_and_for_programs() {
    let ran = Ran::of(common::loam().arg("allocators").output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("system") && ran.out.contains("glibc"),
        "{}",
        ran.out
    );
    let ran = Ran::of(
        common::loam()
            .args(["allocators", "--json"])
            .output()
            .unwrap(),
    );
    let listing: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(listing["allocators"][0]["name"], "system");
    for allocator in listing["allocators"].as_array().unwrap() {
        let is_found = allocator["status"] == "found";
        assert_eq!(is_found, allocator["reason"].is_null(), "{allocator}");
    }
}

#[test]
fn an_option_that_would_have_no_effect_is_refused() {
    for (line, option) in [
        ("record --for 1 -- true", "--for"),
        ("record --growth -- true", "--growth"),
        ("export --listen 127.0.0.1:0 --every 5m", "--every"),
        ("export --listen 127.0.0.1:0 --types", "--types"),
        ("export --listen 127.0.0.1:0 --once", "--once"),
        #[cfg(target_arch = "x86_64")]
        ("trim 1 --dry-run --listen 127.0.0.1:0", "--listen"),
        (
            "trace export t.trace --dataset d --overwrite",
            "--overwrite",
        ),
        ("trace export t.trace --format flame --host h", "--host"),
        (
            "trace export t.trace --table blocks --replays r",
            "--replays",
        ),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let error = Cli::command().try_get_matches_from([&["loam"], &words[..]].concat());
        let error = error.expect_err(line).to_string();
        assert!(
            error.contains("cannot be used with") && error.contains(option),
            "{line}: {error}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let own = std::process::id().to_string();
    for verb in ["map", "pins"] {
        let ran = common::loam_in(folder.path(), &[verb, &own, "--process", "3"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("--process"), "{ran:?}");
    }
}

#[test]
fn colour_appears_only_where_it_is_wanted() {
    let coloured = |force: bool, refuse: bool| {
        let mut command = common::loam();
        command.arg("allocators");
        if force {
            command.env("CLICOLOR_FORCE", "1");
        }
        if refuse {
            command.env("NO_COLOR", "1");
        }
        Ran::of(command.output().unwrap()).out.contains('\u{1b}')
    };
    assert!(!coloured(false, false), "a pipe gets plain text");
    assert!(coloured(true, false));
    assert!(!coloured(false, true));
}

#[test]
fn completions_and_the_manual_page_are_made_from_the_help_too() {
    for (what, said) in [
        ("bash", "_loam"),
        ("zsh", "#compdef loam"),
        ("fish", "complete"),
        ("man", ".TH"),
    ] {
        let ran = Ran::of(common::loam().args(["generate", what]).output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.out.contains(said), "{what}");
    }
}
