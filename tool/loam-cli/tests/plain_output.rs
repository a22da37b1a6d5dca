//! No verb sends a terminal characters that control it or that it hides. This holds for text from arguments, from
//! names of files and processes, from a results file and from the environment. Issue 37, B13 and C19.

use crate::common;
use std::path::Path;
use std::process::{Child, Command};

use crate::common::{Lab, Ran, GOOD};

/// A text that sets colours and a title, reorders and breaks lines, and moves the cursor, in seven and in eight bits.
const HOSTILE: &str = "x\u{1b}[35my\u{1b}]0;t\u{7}\u{202e}z\u{9b}2J\u{2066}\u{2028}\u{7f}\r\u{8}";

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether all characters are visible, apart from our own styles.
#[track_caller]
fn assert_plain(text: &str, what: &str) {
    let mut text = text.to_owned();
    for style in ["[0m", "[1m", "[2m", "[31m", "[33m", "[4m", "[32m"] {
        text = text.replace(&format!("\u{1b}{style}"), "");
    }
    let bad = |c: &char| *c != '\n' && !loam_format::plain::shows(*c);
    assert_eq!(text.chars().find(bad), None, "{what}: {text:?}");
}

#[track_caller]
fn check(mut command: Command, says: Option<&str>) {
    command.env("CLICOLOR_FORCE", "1");
    let ran = Ran::of(command.output().unwrap());
    let what = format!("{command:?}");
    assert_plain(&ran.out, &what);
    assert_plain(&ran.err, &what);
    if let Some(says) = says {
        let all = ran.out + &ran.err;
        assert!(all.contains(says), "{what} does not say {says}: {all}");
    }
}

fn loam(arguments: &[&str]) -> Command {
    let mut command = common::loam();
    // Any shared object will do, because no program is started on it.
    command
        .args(arguments)
        .env("LOAM_LIBRARY", env!("CARGO_BIN_EXE_loam"));
    command
}

#[test]
fn arguments() {
    let half = format!("({HOSTILE}");
    let path = format!("/tmp/{HOSTILE}");
    // The name differs from `HOSTILE`, because another test runs at the same time whose processes have that name.
    let nobody = format!("nobody{HOSTILE}");
    let own = std::process::id().to_string();
    for arguments in [
        &[HOSTILE][..],
        &[&format!("--{HOSTILE}")],
        &["run", HOSTILE],
        &["run", &path],
        &["run", "--check", HOSTILE],
        &["run", "--library", HOSTILE, "true"],
        &["check", HOSTILE],
        &["check", &path],
        &["check", "--library", HOSTILE, "true"],
        &["stats", &nobody],
        &["stats", &own, "--heap", HOSTILE],
        &["top", "--batch", &nobody],
        &["top", "-d", HOSTILE],
        &["top", "--sort", HOSTILE],
        &["top", "--batch", "--match", &half],
        &["export", "--listen", HOSTILE],
        &["export", "--listen", &format!("{HOSTILE}:1")],
        &["export", "--listen", &format!("localhost:{HOSTILE}")],
        &["export", "--match", &half],
        &["allocators", HOSTILE],
        &["lab", "show", HOSTILE],
        &["lab", "compare", HOSTILE, HOSTILE],
        &["lab", "--workloads-dir", HOSTILE],
        &["generate", HOSTILE],
    ] {
        check(loam(arguments), Some("\\u202e"));
    }
    let place = Lab::new();
    place.workload("queue", GOOD);
    for arguments in [
        &[HOSTILE][..],
        &["queue", "--allocators", HOSTILE],
        &["queue", "--allocators", &format!("{HOSTILE}=system")],
        &["queue", "--allocators", &format!("system:{HOSTILE}")],
        &[
            "queue",
            "--allocators",
            "system",
            "--json",
            &format!("{HOSTILE}.json"),
        ],
    ] {
        check(place.command(arguments), Some("\\u202e"));
    }
}

#[test]
fn environments_and_files() {
    let place = Lab::new();
    let mut command = loam(&["run", "true"]);
    command.env("LOAM_LIBRARY", HOSTILE);
    check(command, Some("\\u202e"));

    let program = place.path(HOSTILE);
    std::fs::copy("/bin/true", &program).unwrap();
    let library = env!("CARGO_BIN_EXE_loam");
    for verb in [
        &["check", "--library", library][..],
        &["run", "--check", "--library", library],
    ] {
        let mut command = loam(verb);
        command.arg(&program);
        check(command, Some("\\u202e"));
    }
    let script = place.path("script");
    common::executable(&script, &format!("#!/no/{HOSTILE}\n"));
    let mut command = loam(&["run"]);
    command.arg(&script);
    check(command, None);
}

#[test]
fn processes() {
    let place = Lab::new();
    let program = place.path(HOSTILE);
    // Another process copies the file: a child that another test starts meanwhile would hold it open for writing.
    let copied = Command::new("cp").arg("/bin/sleep").arg(&program).status();
    assert!(copied.unwrap().success());
    let child = Command::new(&program).arg("600").spawn().unwrap();
    let running = Running(child);
    let pid = running.0.id().to_string();
    for arguments in [
        &["stats", &pid][..],
        &["stats", "--json", &pid],
        &["check", &pid],
        &["check", "--json", &pid],
        &["top", "--batch", "-n", "1", &pid],
        &["top", "--json", "-n", "1", &pid],
        &["top", "--csv", "-n", "1", &pid],
    ] {
        check(loam(arguments), None);
    }
}

#[test]
fn results_files() {
    let place = Lab::new();
    place.workload("queue", GOOD);
    let ran = place.run(&["queue", "--allocators", "system", "--json", "r.json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = std::fs::read_to_string(place.path("r.json")).unwrap();
    let hostile = serde_json::to_string(HOSTILE).unwrap();
    // Every text of the file is replaced in turn. Most replacements make the file unreadable, and that message must be
    // plain too.
    let values: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut texts = Vec::new();
    collect(&values, &mut texts);
    texts.sort();
    texts.dedup();
    assert!(texts.len() > 10, "{texts:?}");
    for old in texts {
        let old = serde_json::to_string(&old).unwrap();
        let path = place.path("evil.json");
        std::fs::write(&path, text.replace(&old, &hostile)).unwrap();
        show(&path);
    }
}

fn show(path: &Path) {
    for arguments in [&["lab", "show"][..], &["lab", "show", "--markdown"]] {
        let mut command = loam(arguments);
        command.arg(path);
        check(command, None);
    }
    let mut command = loam(&["lab", "compare"]);
    command.arg(path).arg(path);
    check(command, None);
}

fn collect(value: &serde_json::Value, texts: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) if !text.is_empty() => texts.push(text.clone()),
        serde_json::Value::Array(all) => all.iter().for_each(|value| collect(value, texts)),
        serde_json::Value::Object(all) => all.values().for_each(|value| collect(value, texts)),
        _ => {}
    }
}

#[test]
fn a_command_that_is_offered_for_copying_is_quoted() {
    let place = Lab::new();
    let program = place.path("server;rm x");
    // Another process copies the file: a child that another test starts meanwhile would hold it open for writing.
    let copied = Command::new("cp").arg("/bin/sleep").arg(&program).status();
    assert!(copied.unwrap().success());
    let running = Running(Command::new(&program).arg("600").spawn().unwrap());
    let pid = running.0.id().to_string();
    let ran = Ran::of(loam(&["stats", &pid]).output().unwrap());
    let offered = ran.out.split("loam run -- ").nth(1).unwrap_or_default();
    let quoted = format!("'{}' 600", program.display());
    assert!(offered.starts_with(&quoted), "{quoted}: {ran:?}");
}
