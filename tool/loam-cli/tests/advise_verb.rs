//! `loam advise`: a line to copy, "nothing helps", and changes to the program. A replay that is not
//! known to reproduce the program gets no advice.

use crate::common;
use crate::common::recorded;
use std::path::Path;

use crate::common::{compile, loam_in, record_orders, root, Ran};
use serde_json::Value;

/// If there were two trials, one of them might be left out as noisy, and a single one has no
/// interval. Of three trials, at least two count.
fn advise(folder: &Path, trace: &str, more: &[&str]) -> Ran {
    let ran = loam_in(
        folder,
        &[&["advise", trace, "--trials", "3"], more].concat(),
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

#[test]
fn advice_is_a_line_to_copy_or_that_nothing_helps_or_refused() {
    if !common::can_replay_on_loam() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    record_orders(dir, "orders", &["-O1"]);

    // With the recorded pauses.
    let ran = advise(dir, "orders.trace", &["--allocators", "system"]);
    assert!(ran.out.contains("Nothing helps"), "{ran:?}");
    assert!(ran.out.contains("system (recorded)"), "{ran:?}");

    // The machine decides whether the saved time is sure, so one of two answers is expected.
    let both = ["--allocators", "system,mine=loam", "--speed", "max"];
    let ran = advise(dir, "orders.trace", &both);
    let advised = ran.out.contains("loam run -- ./orders");
    assert!(advised || ran.out.contains("Nothing helps"), "{ran:?}");

    let mut program = recorded::Program::record(&dir.join("short.trace"));
    program.allocate(0, 400);
    program.end();
    let ran = loam_in(dir, &["advise", "short.trace", "--allocators", "system"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("no advice is drawn"), "{ran:?}");
}

/// The replays say what they say; really running decides. Under "worse", which is Loam with a
/// variable, the program takes more than was recorded. Replays know nothing of that.
#[test]
fn an_advice_that_does_not_hold_when_the_command_is_really_run_is_taken_back() {
    if !common::can_replay_on_loam() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    // The system's heap keeps the peak, and Loam does not: so the replays advise it.
    let program = dir.join("peak.c");
    let text = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char* kept[200000];
int main(void) {
  for (int i = 0; i < 200000; ++i) {
    memset(kept[i] = malloc(500), 1, 500);
    if (i % 10000 == 0) usleep(10000);
  }
  for (int i = 0; i < 200000; ++i)
    if (i % 1000) free(kept[i]);
  const size_t more = getenv("MORE") ? 300u << 20 : 1;
  memset(malloc(more), 1, more);
  for (int i = 0; i < 400000; ++i) {
    char* const block = malloc(100 + i % 50);
    *(volatile char*)block = 1;
    free(block);
    if (i % 20000 == 0) usleep(10000);
  }
}
"#;
    std::fs::write(&program, text).unwrap();
    compile(&["-O1", "-fno-builtin"], &program, &dir.join("peak"));
    let record = ["record", "--output", "peak.trace", "--", "./peak"];
    assert_eq!(loam_in(dir, &record).code, Some(0));
    let tried = |candidates: &str| {
        let allocators = format!("system,{candidates}");
        let words = [
            "advise",
            "--speed",
            "max",
            "peak.trace",
            "--trials",
            "2",
            "--json",
            "--allocators",
        ];
        let really = [allocators.as_str(), "--verify", "--", "./peak"];
        let ran = loam_in(dir, &[&words[..], &really].concat());
        let answer: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
        let advised = answer["advised"]["allocator"].clone();
        (advised, answer["verified"]["candidates"].clone())
    };
    let ratio = |found: &Value, end: &str| found[0]["memory_ratio"][end].as_f64().unwrap();
    // The memory is sure. Whether the processor time is, the machine decides: if not in the
    // replays, nothing is really run, and if not in the real runs, the advice does not hold.
    let (advised, found) = tried("better=loam");
    if found.is_null() {
        common::skip("the machine is too busy for replays whose times are sure");
    } else {
        assert_eq!(advised == "better", found[0]["holds"] == true, "{found}");
        assert!(ratio(&found, "high") < 0.9, "{found}");
    }
    let (advised, found) = tried("worse=loam:MORE=1");
    assert_eq!(advised, Value::Null, "{found}");
    if !found.is_null() {
        assert_eq!(found[0]["holds"], false, "{found}");
        assert!(ratio(&found, "low") > 1.5, "{found}");
    }
    // The command is the user's, never the trace's.
    for (words, said) in [
        (&["--verify"][..], "<COMMAND>"),
        (&["--", "./peak"], "--verify"),
        (&["--verify", "--", "no-such-command"], "not found"),
    ] {
        let ran = loam_in(
            dir,
            &[&["advise", "peak.trace", "--trials", "2"], words].concat(),
        );
        assert!(ran.code != Some(0) && ran.err.contains(said), "{ran:?}");
    }
}

/// Compiles with a name for each frame, because the tests read the stacks.
fn compile_troubles(folder: &Path) {
    let source = root().join("tests/advise/troubles.c");
    compile(&["-O1", "-g"], &source, &folder.join("troubles"));
}

/// Records a program of tests/advise. Returns the output of `--json`.
fn advice_for(folder: &Path, trouble: &str, recording: &[&str]) -> Value {
    let (trace, program) = (format!("{trouble}.trace"), "./troubles".to_owned());
    let begin = ["record", "--output", &trace];
    let end = ["--", &program, trouble];
    let ran = loam_in(folder, &[&begin[..], recording, &end].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // The hints are about the trace, so the replays need not keep its pauses, and one is enough.
    let quick = ["--speed", "max", "--allocators", "system", "--json"];
    let ran = advise(folder, &trace, &quick);
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"))
}

fn hint<'a>(advice: &'a Value, kind: &str) -> Option<&'a Value> {
    let hints = advice["hints"].as_array().unwrap();
    hints.iter().find(|hint| hint["kind"] == kind)
}

#[test]
fn what_to_change_in_the_program_is_named_and_not_where_it_is_well() {
    if !common::can_replay_on_loam() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    compile_troubles(dir);
    let rows = [
        ("above", "fitting", "size-above-class"),
        ("steps", "doubling", "growing-container"),
        ("largest", "cutoff", "buffer-cache"),
        ("mixed", "apart", "separate"),
    ];
    for (ill, well, kind) in rows {
        let advice = advice_for(dir, ill, &["--stacks=4096"]);
        assert!(hint(&advice, kind).is_some(), "{ill}: {advice:#}");
        let advice = advice_for(dir, well, &[]);
        assert_eq!(hint(&advice, kind), None, "{well}: {advice:#}");
    }
}

#[test]
fn blocks_of_a_call_site_are_kept_apart_together_and_the_site_is_named() {
    if !common::can_replay_on_loam() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    compile_troubles(dir);
    let advice = advice_for(dir, "mixed", &["--stacks=1"]);
    let separated = &advice["separated"];
    assert_eq!(separated["by_site"], true, "{advice:#}");
    assert!(separated["bytes"].as_u64().unwrap() > 1 << 20, "{advice:#}");
    let text = hint(&advice, "separate").unwrap()["text"].as_str().unwrap();
    assert!(text.contains("session"), "{text}");
    assert!(!text.contains("request ("), "{text}");
}

/// The page after a browser has run its scripts.
fn drawn(page: &Path) -> Option<String> {
    let browser = ["chromium", "chromium-browser", "google-chrome"];
    let browser = browser
        .into_iter()
        .find(|name| which::which(name).is_ok())?;
    let output = std::process::Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--virtual-time-budget=5000", "--disable-dev-shm-usage"])
        .arg(format!(
            "--user-data-dir={}",
            page.with_extension("profile").display()
        ))
        .arg(format!("file://{}", page.display()))
        .stderr(std::process::Stdio::null())
        .output()
        .unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_page_has_the_chart_and_replaces_only_its_own_kind() {
    if !common::can_replay_on_loam() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    record_orders(dir, "orders", &["-O1"]);
    let options = [
        "--speed",
        "max",
        "--allocators",
        "system,loam",
        "--html",
        "a.html",
    ];
    advise(dir, "orders.trace", &options);
    let page = std::fs::read_to_string(dir.join("a.html")).unwrap();
    for text in [
        "loam advise",
        "Processor time against average memory",
        "\"scatter\"",
        "./orders",
        "system (recorded)",
        "The trace reproduces the program",
    ] {
        assert!(page.contains(text), "{text}");
    }
    match drawn(&dir.join("a.html")) {
        None => common::skip("no Chromium here, which draws the page (Debian package chromium)"),
        Some(page) => assert!(page.contains(">system</text>"), "the chart is not drawn"),
    }
    advise(dir, "orders.trace", &options);
    std::fs::write(dir.join("a.html"), "a page of mine").unwrap();
    let ran = loam_in(dir, &[&["advise", "orders.trace"], &options[..]].concat());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let kept = std::fs::read_to_string(dir.join("a.html")).unwrap();
    assert_eq!(kept, "a page of mine");
}
