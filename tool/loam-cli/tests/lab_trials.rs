//! Trials that succeed, and every way in which one can fail.

use crate::common;
use crate::common::{statuses, trials, Lab, GOOD};

#[test]
fn a_good_run_leaves_a_table_a_results_file_and_a_report() {
    let lab = Lab::new();
    let library = lab.allocator("other");
    lab.workload(
        "fake",
        &format!("case $LD_PRELOAD in *other*) RATE=2000;; esac\n{GOOD}"),
    );
    let ran = lab.compare(&library, &["--trials", "2"]);

    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out
            .contains("other: 2.00 times as fast as the system's malloc"),
        "{}",
        ran.out
    );
    assert!(ran.err.contains("about"), "an estimate: {}", ran.err);
    let results = lab.results("r.json");
    assert_eq!(results["format"], "loam-lab-results");
    assert_eq!(results["state"], "complete");
    let order: Vec<String> = statuses(&results)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(order, ["system", "other", "other", "system"], "A B B A");
    for trial in trials(&results) {
        assert_eq!(trial["status"], "ok");
        assert_eq!(trial["lines"].as_array().unwrap().len(), 5);
        assert_eq!(trial["lines"][1]["novel"], 7, "unknown keys are kept");
        // `traced` if the process ended before it could be inspected.
        assert_eq!(trial["preload"] == "none", trial["allocator"] == "system");
    }
    let page = std::fs::read_to_string(lab.path("r.html")).unwrap();
    assert!(page.contains("2.00 times as fast") && page.contains("loam-data"));
}

#[test]
fn a_trial_that_goes_wrong_is_recorded_and_the_others_go_on() {
    let cases = [
        ("crashed", "kill -SEGV $$", "SIGSEGV"),
        (
            "failed",
            "echo 'no more slots' >&2; exit 3",
            "it exited with 3: no more slots",
        ),
        (
            "garbage",
            "echo '{\"type\":\"start\"}'; echo 'Segmentation?'; exit 0",
            "line 2",
        ),
        (
            "garbage",
            "echo '{\"type\":\"start\"}'; exit 0",
            "no \"end\"",
        ),
        ("garbage", "exit 0", "printed nothing"),
        (
            "garbage",
            "printf '{\"type\":\"start\"}\\n\\377\\376\\n'",
            "UTF-8",
        ),
        (
            "garbage",
            "head -c 2000000 /dev/zero | tr '\\0' x",
            "longer than",
        ),
        (
            "timed-out",
            "echo '{\"type\":\"start\"}'; sleep 600",
            "--timeout",
        ),
    ];
    for (status, script, said) in cases {
        let lab = Lab::new();
        let library = lab.allocator("other");
        // Only the trial under the second allocator fails.
        lab.workload(
            "fake",
            &format!("case $LD_PRELOAD in *other*) {script};; esac\n{GOOD}"),
        );
        // A trial that must not time out gets plenty of time, because the machine may be busy. The
        // other one needs a short limit.
        let timeout = if status == "timed-out" { "5" } else { "600" };
        let ran = lab.compare(&library, &["--trials", "1", "--timeout", timeout]);
        assert_eq!(ran.code, Some(1), "{status}: {ran:?}");
        let found = statuses(&lab.results("r.json"));
        let expected = [("system", "ok"), ("other", status)].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(found, expected, "{script}");
        assert!(
            ran.out.contains("Failed: fake under other, round 1"),
            "{}",
            ran.out
        );
        assert!(ran.out.contains(said), "{said} in {}", ran.out);
        assert!(
            ran.out.contains("1000/s"),
            "the good one is in the table: {}",
            ran.out
        );
        let page = std::fs::read_to_string(lab.path("r.html")).unwrap();
        assert!(
            page.contains("Failed: fake under other"),
            "the report marks it"
        );
    }
}

#[test]
fn what_takes_too_long_is_run_once() {
    let lab = Lab::new();
    let library = lab.allocator("other");
    lab.workload(
        "fake",
        &format!("case $LD_PRELOAD in *other*) sleep 600;; esac\n{GOOD}"),
    );
    let ran = lab.compare(&library, &["--trials", "3", "--timeout", "3"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let words = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("not run again"), "{words}");
    let found = statuses(&lab.results("r.json"));
    let of = |allocator: &str| found.iter().filter(|(a, _)| a == allocator).count();
    assert_eq!((of("system"), of("other")), (3, 1), "{found:?}");
}

#[test]
fn a_library_that_does_not_load_is_a_failed_trial_with_the_loaders_reason() {
    let lab = Lab::new();
    // The library exports malloc, so it passes the inspection, but it needs a symbol that does not
    // exist.
    let source = lab.path("broken.c");
    let code = "extern int loam_no_such_symbol; void *malloc(unsigned long n) {\n\
                return (void *)(n + (unsigned long)&loam_no_such_symbol); }";
    std::fs::write(&source, code).unwrap();
    let library = lab.path("libbroken.so");
    common::compile(&["-shared", "-fPIC", "-w"], &source, &library);
    lab.workload("fake", GOOD);
    let ran = lab.compare(&library, &["--trials", "1"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let results = lab.results("r.json");
    let broken = trials(&results)
        .find(|trial| trial["allocator"] == "broken")
        .unwrap();
    assert_ne!(broken["status"], "ok");
    assert!(ran.out.contains("loam_no_such_symbol"), "{}", ran.out);
}

#[test]
fn a_workload_that_sheds_its_preload_is_not_measured_as_if_it_had_it() {
    let lab = Lab::new();
    let library = lab.allocator("other");
    // The process stays until it has been inspected, and is then ended.
    lab.workload(
        "fake",
        &format!("[ $LD_PRELOAD ] && LD_PRELOAD= exec \"$0\"\n{GOOD}\nsleep 600"),
    );
    let list = format!("{}", library.display());
    let ran = lab.run(&[
        "fake",
        "--json",
        "r.json",
        "--trials",
        "1",
        "--allocators",
        &list,
    ]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(
        trials(&lab.results("r.json")).next().unwrap()["status"],
        "not-preloaded"
    );
}

#[test]
fn another_result_under_another_allocator_is_a_failure() {
    let lab = Lab::new();
    let library = lab.allocator("other");
    let wrong = GOOD.replace("\"abc\"", "\"'${LD_PRELOAD:+x}'abc\"");
    lab.workload("fake", &wrong);
    let ran = lab.compare(&library, &["--trials", "1"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.out
            .contains("it computed xabc where the others computed abc"),
        "{}",
        ran.out
    );
}

#[test]
fn a_variant_that_is_not_offered_is_neither_measured_nor_a_failure() {
    let lab = Lab::new();
    let end = r#"echo '{"type":"start"}'; echo '{"type":"end","unavailable":"no such heap"}'"#;
    lab.workload("fake", end);
    let ran = lab.run(&[
        "fake",
        "--json",
        "r.json",
        "--trials",
        "1",
        "--allocators",
        "system",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran
        .out
        .contains("Not available: fake under system, round 1: no such heap"));
    assert_eq!(
        trials(&lab.results("r.json")).next().unwrap()["status"],
        "unavailable"
    );
}

#[test]
fn settings_reach_the_workload_and_nothing_else_of_the_environment_does() {
    let lab = Lab::new();
    lab.workload(
        "fake",
        &format!("[ \"$MALLOC_ARENA_MAX$SECRET\" = \"$WANT\" ] || exit 9\n{GOOD}"),
    );
    let list = "plain=system:WANT=,tight=system:MALLOC_ARENA_MAX=2:WANT=2";
    let mut command = lab.command(&["fake", "--json", "r.json", "--trials", "1"]);
    command
        .args(["--allocators", list])
        .env("SECRET", "1")
        .env("MALLOC_ARENA_MAX", "7");
    let ran = common::Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let results = lab.results("r.json");
    assert_eq!(
        results["allocators"][1]["environment"]["MALLOC_ARENA_MAX"],
        "2"
    );
}

/// Uses programs that stand in for those of Windows: `make windows` builds the real ones.
#[test]
fn programs_for_windows_run_on_four_heaps_and_every_name_says_wine() {
    let lab = Lab::new();
    std::fs::create_dir(lab.path("workloads/bin")).unwrap();
    lab.workload("bin/about", "echo 'Wine 8.0; heap mode 0'");
    let script = format!(
        "case $LD_PRELOAD$LOAM_LAB_HEAP in process|lfh|private|loam) ;; *) exit 9;; esac\n{GOOD}"
    );
    lab.workload("fake", &script);
    let ran = lab.run(&["fake", "--windows", "--json", "r.json", "--trials", "1"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let results = lab.results("r.json");
    let mut names: Vec<String> = statuses(&results)
        .into_iter()
        .map(|(name, status)| format!("{name} {status}"))
        .collect();
    names.sort();
    let heaps = ["loam-wine", "wine-lfh", "wine-private", "wine-process"];
    assert_eq!(names, heaps.map(|name| format!("{name} ok")));
    let page = std::fs::read_to_string(lab.path("r.html")).unwrap();
    for text in [&ran.out, &page] {
        assert!(
            text.contains("Programs for Windows under Wine: every figure is Wine"),
            "{text}"
        );
    }
    assert!(page.contains("Wine 8.0; heap mode 0"));
    // Wine's heap would need minutes for the usual number of steps.
    lab.workload("lfh", &script);
    let ran = lab.run(&["lfh", "--windows", "--json", "few.json", "--trials", "1"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let few = lab.results("few.json");
    assert_eq!(
        few["experiments"][0]["cases"][0]["arguments"],
        serde_json::json!(["--iterations", "1600000"])
    );
    // The two options to choose an allocator exclude each other.
    let both = lab.run(&["fake", "--windows", "--allocators", "system"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}
