//! No verb sends a terminal characters that control it or that it hides. This holds for text from
//! arguments, from names of files and processes, from a results file and from the environment.
//! Issue 37, B13 and C19.

use crate::common;
use std::path::Path;
use std::process::{Child, Command};

use crate::common::{recorded, Lab, Ran, GOOD};
use loam_format::trace::{Event, Header, Module, Named, Origin, Process, Stay};

/// A text that sets colours and a title, reorders and breaks lines, and moves the cursor, in seven
/// and in eight bits.
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
    // The name differs from `HOSTILE`, because another test runs at the same time whose processes
    // have that name.
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
    // Another process copies the file: a child that another test starts meanwhile would hold it
    // open for writing.
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
    // Every text of the file is replaced in turn. Most replacements make the file unreadable, and
    // that message must be plain too.
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

/// A run that goes on takes over what a file says of the trials before.
#[test]
fn results_of_a_stranger_are_resumed_plainly() {
    let place = Lab::new();
    place.workload("queue", GOOD);
    let run = ["queue", "--allocators", "system", "--json"];
    let ran = place.run(&[&run[..], &["r.json"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = std::fs::read_to_string(place.path("r.json")).unwrap();
    let values: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut texts = Vec::new();
    collect(&values, &mut texts);
    texts.sort();
    texts.dedup();
    let before = listing(&place.path(".."));
    // All texts at once, and the names by which trials are found, which may name other files.
    for (evil, only) in [
        (HOSTILE, None),
        ("../../evil", Some("queue")),
        ("../../evil", Some("system")),
    ] {
        let evil = serde_json::to_string(evil).unwrap();
        let mut changed = text.clone();
        for old in texts
            .iter()
            .filter(|old| only.is_none_or(|one| one == *old))
        {
            changed = changed.replace(&serde_json::to_string(old).unwrap(), &evil);
        }
        assert_ne!(changed, text);
        std::fs::write(place.path("evil.json"), changed).unwrap();
        check(
            place.command(&[&run[..], &["evil.json", "--resume"]].concat()),
            None,
        );
    }
    assert_eq!(listing(&place.path("..")), before);
}

fn listing(folder: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.retain(|name| name.to_string_lossy().contains("evil"));
    names
}

/// Every text of a trace is hostile: of its header, processes, files, functions, marks and ends.
fn hostile_trace(path: &Path) {
    let text = || HOSTILE.to_owned();
    let texts = || std::collections::BTreeMap::from([(text(), text())]);
    let header = Header {
        tool: text(),
        command: vec![text(), "../../evil".into()],
        directory: text(),
        started: text(),
        host: text(),
        cpu: text(),
        kernel: text(),
        huge_pages: texts(),
        cgroup: texts(),
        environment: texts(),
        stack_bytes: 100,
        origin: Some(Origin {
            format: text(),
            file: text(),
            lost: vec![text()],
        }),
        ..recorded::header()
    };
    let process = Process {
        program: format!("/usr/bin/{HOSTILE}"),
        arguments: vec![text()],
        allocator: text(),
        allocator_version: Some(text()),
        allocator_settings: texts(),
        modules: vec![Module {
            path: format!("/{HOSTILE}"),
            build_id: Some(text()),
            checksum: Some(text()),
            end: 0x10_0000,
            names: vec![Named {
                address: 0x1000,
                name: text(),
                file: Some(text()),
                line: Some(1),
            }],
            ..Module::default()
        }],
        stays: vec![Stay {
            frame: Some(1),
            kind: text(),
            bytes: 1e6,
            ..Stay::default()
        }],
        ..recorded::process()
    };
    let mut program = recorded::Program::record_as(path, &header, &process);
    program.event(0, Event::ThreadBegins);
    program.frames(&[0x1000, 0x2000]);
    program.mark(HOSTILE);
    for _ in 0..40 {
        program.allocate(0, 10_000);
        program.stack(1);
        program.sample(Some(450_000));
    }
    program.end();
}

#[test]
fn traces_of_strangers() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let inner = dir.join("inner");
    std::fs::create_dir(&inner).unwrap();
    hostile_trace(&inner.join("t.trace"));
    let verbs = [
        "trace info t.trace",
        "trace info t.trace --json",
        "trace head t.trace",
        "trace check t.trace",
        "trace check t.trace --json",
        "trace diff t.trace t.trace",
        "trace export t.trace --format collapsed",
        "trace export t.trace --format flame",
        "trace export t.trace --format firefox",
        "trace export t.trace --table processes --format csv",
        "trace export t.trace --table marks --format jsonl",
        "trace export t.trace --table stacks --format csv",
        "trace export t.trace --dataset fleet",
        "trace export t.trace --dataset fleet --day 2026-11-29",
        "pins t.trace",
        "pins t.trace --json",
        "map t.trace --output map.html",
        "replay t.trace --allocators system --trials 1",
        "advise t.trace",
        "gate t.trace --baseline b.json",
    ];
    for verb in verbs {
        let mut command = loam(&verb.split(' ').collect::<Vec<_>>());
        command.current_dir(&inner);
        check(command, None);
    }
    let map = std::fs::read_to_string(inner.join("map.html")).unwrap_or_default();
    assert!(!map.contains(HOSTILE), "the map has the text as it is");
    // Its host and its program are names of folders.
    let names: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(inner.join("fleet/processes").is_dir());
}

/// What a dataset is sorted by comes from the trace.
#[test]
fn a_dataset_lies_below_its_folder_whatever_a_trace_says() {
    let temporary = tempfile::tempdir().unwrap();
    let inner = temporary.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    for (host, program) in [
        ("../../../../evil", ".."),
        ("..", "."),
        ("/evil", "a/../../../../../evil"),
        ("", "a\0b"),
    ] {
        let header = Header {
            host: host.into(),
            started: "2026-11-29T00:00:00Z".into(),
            ..recorded::header()
        };
        let process = Process {
            program: program.into(),
            ..recorded::process()
        };
        let mut program = recorded::Program::record_as(&inner.join("t.trace"), &header, &process);
        program.allocate(0, 100);
        program.end();
        let mut command = loam(&["trace", "export", "t.trace", "--dataset", "fleet"]);
        command.args((host.is_empty()).then_some("--host=../../evil"));
        let ran = Ran::of(command.current_dir(&inner).output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let names = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    assert_eq!((names(temporary.path()), names(&inner)), (1, 2));
    assert_eq!(names(&inner.join("fleet/processes")), 4);
}

/// The names in a recording of another program become those of the trace.
#[test]
fn imports_of_strangers() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    // `@ program:[file]address caller size`, as mtrace() writes it, and heaptrack's lines.
    let plain: String = HOSTILE.chars().filter(|c| *c != '\r').collect();
    let length = |text: &str| format!("{:x} {text}", text.len());
    let files = [
        (
            "heaptrack",
            format!(
                "v 10400 3\nX ./{plain} ../../evil\nI 1000 5e298f\ns {}\ns {}\na 64 1\n+ 0\na 10 \
                 2\n+ 1\nc a\n- 0\nR 3e5\n",
                length(&plain),
                length("../../../evil")
            ),
        ),
        (
            "raw",
            format!(
                "v 10400 3\nx {}\nX ./{plain}\nI 1000 5e298f\nm 1 -\nt 7f 0\n+ 64 1 a000\nc \
                     14\n- a000\n",
                length(&plain)
            ),
        ),
        (
            "logalloc",
            format!("5 6 malloc(32)=0x7f90495120e0\n5 6 {plain}(32)=0x7f\n"),
        ),
        (
            "android",
            format!("186: malloc 0xb6038060 20 1000000 1001000\n186: {plain} 0xb6 1\n"),
        ),
    ];
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap();
        let trace = format!("{name}.trace");
        for arguments in [
            &["trace", "import", name, "--output", &trace, "--overwrite"][..],
            &["trace", "info", &trace],
            &["trace", "check", &trace],
            &["trace", "head", &trace],
            &["trace", "export", &trace, "--format", "collapsed"],
            &["trace", "export", &trace, "--table", "processes"],
        ] {
            let mut command = loam(arguments);
            command.current_dir(dir);
            check(command, None);
        }
    }
    let made = |name: &&str| dir.join(format!("{name}.trace")).exists();
    assert_eq!(
        ["heaptrack", "raw"]
            .iter()
            .filter(|name| made(name))
            .count(),
        2
    );
}

#[test]
fn a_command_that_is_offered_for_copying_is_quoted() {
    let place = Lab::new();
    let program = place.path("server;rm x");
    // Another process copies the file: a child that another test starts meanwhile would hold it
    // open for writing.
    let copied = Command::new("cp").arg("/bin/sleep").arg(&program).status();
    assert!(copied.unwrap().success());
    let running = Running(Command::new(&program).arg("600").spawn().unwrap());
    let pid = running.0.id().to_string();
    let ran = Ran::of(loam(&["stats", &pid]).output().unwrap());
    let offered = ran.out.split("loam run -- ").nth(1).unwrap_or_default();
    let quoted = format!("'{}' 600", program.display());
    assert!(offered.starts_with(&quoted), "{quoted}: {ran:?}");
}
