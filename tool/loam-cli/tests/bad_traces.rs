//! Files that are no trace, or no readable one. Each verb that takes a trace reports what is wrong,
//! where, and what to do.

use crate::common;
use crate::common::recorded;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::recorded::Program;
use crate::common::{loam_in, Ran};
use loam_format::trace::{Header, Writer};

/// The verbs: the words before the name of the trace, and those after it.
const VERBS: [(&[&str], &[&str]); 10] = [
    (&["trace", "info"], &[]),
    (&["trace", "head"], &[]),
    (&["trace", "check"], &[]),
    (&["trace", "export"], &[]),
    (&["trace", "export"], &["--dataset", "fleet"]),
    (&["replay"], &[]),
    (&["pins"], &[]),
    (&["map"], &["--output", "never.html"]),
    (&["advise"], &[]),
    (&["gate"], &["--baseline", "t.trace"]),
];
/// Verbs that replay.
const REPLAYING: [&str; 3] = ["replay", "advise", "gate"];
/// Verbs that have an answer for a trace without events: its first events, what is wrong with it,
/// or a table without rows.
const CONTENT: [&str; 3] = ["head", "check", "export"];
/// Verbs that read a trace once, so that it may come from a pipe.
const ONCE: [&str; 2] = ["head", "check"];

fn sample(path: &Path) {
    let mut program = Program::record(path);
    for _ in 0..100 {
        program.allocate(0, 100);
    }
    program.end();
}

/// Runs `loam`, which must refuse with a message that contains all these parts.
fn refused(dir: &Path, arguments: &[&str], parts: &[&str]) -> Ran {
    let ran = loam_in(dir, arguments);
    assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
    for part in parts {
        assert!(ran.err.contains(part), "{arguments:?}, {part}: {ran:?}");
    }
    ran
}

/// Runs all verbs except the named ones on a bad file.
fn all_say(dir: &Path, name: &str, parts: &[&str], but: &[&str]) {
    let can_replay = common::replayer().is_some();
    for (before, after) in VERBS {
        let is_left_out = before.iter().any(|word| but.contains(word));
        let replays = REPLAYING.contains(&before[0]);
        if is_left_out && after.is_empty() || replays && !can_replay {
            continue;
        }
        let arguments = [before, &[name], after].concat();
        let ran = refused(dir, &arguments, &[&[name][..], parts].concat());
        assert!(ran.out.is_empty(), "{before:?} {name}: {ran:?}");
    }
    assert!(!dir.join("never.html").exists() && !dir.join("fleet").exists());
}

#[test]
fn each_verb_says_what_is_wrong_where_and_what_to_do() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    sample(&dir.join("t.trace"));
    let good = fs::read(dir.join("t.trace")).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let mut swapped = good.clone();
    swapped[8..10].reverse();
    // The first chunk begins at byte 16 with its own head of 24 bytes.
    let files: [(&str, Vec<u8>, &[&str]); 9] = [
        ("zero.trace", Vec::new(), &["is empty", "record again"]),
        (
            "text.trace",
            b"hello, world; hello, world".to_vec(),
            &["no trace of `loam record`", "\"hello, w\"", "trace import"],
        ),
        (
            "magic.trace",
            good[..8].to_vec(),
            &["ends at byte 8", "copy it again"],
        ),
        (
            "head.trace",
            good[..30].to_vec(),
            &["ends at byte 30", "copy it again"],
        ),
        (
            "header.trace",
            good[..100].to_vec(),
            &["ends at byte 100", "copy it again"],
        ),
        (
            "damaged.trace",
            changed(60, !good[60]),
            &["no readable header", "at byte 16", "copy the file again"],
        ),
        (
            "newer.trace",
            changed(8, 9),
            &["format version 9", "a later one"],
        ),
        (
            "swapped.trace",
            swapped,
            &["order of another machine", "copy it again"],
        ),
        (
            "short.trace",
            good[..3].to_vec(),
            &["ends at byte 3", "copy it again"],
        ),
    ];
    for (name, bytes, parts) in files {
        fs::write(dir.join(name), bytes).unwrap();
        all_say(dir, name, parts, &[]);
    }
    let absent: &[&str] = &["there is no such trace", "loam record"];
    all_say(dir, "absent.trace", absent, &[]);
    all_say(dir, "t.trace/more", absent, &[]);
    fs::create_dir(dir.join("folder.trace")).unwrap();
    all_say(
        dir,
        "folder.trace",
        &["a folder", "name a trace in it"],
        &[],
    );

    Program::record(&dir.join("nothing.trace")).end();
    let nothing: &[&str] = &["has no events", "loam check"];
    all_say(dir, "nothing.trace", nothing, &CONTENT);

    // A whole header, and a part of the next chunk or nothing of it.
    let head = 16 + 24 + u32::from_le_bytes(good[24..28].try_into().unwrap()) as usize;
    fs::write(dir.join("cut.trace"), &good[..head + 40]).unwrap();
    let cut: &[&str] = &[
        "no event can be read",
        "ends within a chunk",
        "copy the file again",
    ];
    all_say(dir, "cut.trace", cut, &CONTENT);
    let ran = loam_in(dir, &["trace", "head", "cut.trace"]);
    assert!(
        ran.code == Some(0) && ran.err.contains("ends within a chunk"),
        "{ran:?}"
    );
    fs::write(dir.join("headed.trace"), &good[..head]).unwrap();
    let headed = format!("ends at byte {head}, before its events");
    all_say(dir, "headed.trace", &[&headed, "record again"], &CONTENT);

    fs::write(dir.join("secret.trace"), &good).unwrap();
    let mut permissions = fs::metadata(dir.join("secret.trace"))
        .unwrap()
        .permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o000);
    fs::set_permissions(dir.join("secret.trace"), permissions).unwrap();
    if fs::read(dir.join("secret.trace")).is_ok() {
        return common::skip("this user may read every file");
    }
    all_say(dir, "secret.trace", &["may not read", "chmod"], &[]);
}

#[test]
fn a_pipe_is_read_once_or_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    sample(&dir.join("t.trace"));
    let made = Command::new("mkfifo").arg(dir.join("pipe.trace")).status();
    assert!(made.unwrap().success());
    // The pipe has no writer, so a verb that opened it would wait for one.
    all_say(dir, "pipe.trace", &["a pipe", "write it to a file"], &ONCE);
    for verb in ONCE {
        let mut command = common::loam();
        command.current_dir(dir).args(["trace", verb, "/dev/stdin"]);
        let mut cat = Command::new("cat")
            .arg(dir.join("t.trace"))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        command.stdin(cat.stdout.take().unwrap());
        let ran = Ran::of(command.output().unwrap());
        cat.wait().unwrap();
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

/// Bad outputs of the recorder.
#[test]
fn a_recording_that_can_not_be_written_does_not_start_the_program() {
    if common::recorder().is_none() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    fs::create_dir(dir.join("folder")).unwrap();
    fs::write(dir.join("there"), "something").unwrap();
    let made = Command::new("mkfifo").arg(dir.join("pipe")).status();
    assert!(made.unwrap().success());
    for (output, parts) in [
        ("folder", ["is a folder", "name a file in it"]),
        ("nowhere/t.trace", ["folder does not exist", "create it"]),
        ("there/t.trace", ["can not be written", "Not a directory"]),
        ("there", ["exists", "--overwrite"]),
        ("pipe", ["no program reads", "start its reader first"]),
    ] {
        let touch = ["--", "touch", "started"];
        let arguments = [&["record", "--output", output][..], &touch].concat();
        refused(dir, &arguments, &[output, parts[0], parts[1]]);
        assert!(!dir.join("started").exists(), "{output}");
    }
    assert_eq!(fs::read(dir.join("there")).unwrap(), b"something");
}

#[test]
fn a_trace_of_another_architecture_is_read_and_replayed_only_on_pages_like_its_own() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let header = Header {
        architecture: "armv9".into(),
        page_size: 65_536,
        ..recorded::header()
    };
    let file = fs::File::create(dir.join("other.trace")).unwrap();
    let mut writer = Writer::new(file, &header).unwrap();
    let stream = writer.process(&recorded::process()).unwrap();
    let record = loam_format::trace::Record {
        time: Duration::from_millis(1).as_nanos() as u64,
        thread: 0,
        event: loam_format::trace::Event::Allocate {
            family: loam_format::trace::AllocFamily::Malloc,
            address: 4096,
            size: 10,
            alignment: 0,
        },
    };
    writer.push(stream, &record).unwrap();
    writer.end(stream, Default::default()).unwrap();
    writer.finish().unwrap();
    for verb in ["info", "head", "export"] {
        let ran = loam_in(dir, &["trace", verb, "other.trace"]);
        assert_eq!(ran.code, Some(0), "{verb}: {ran:?}");
    }
    if common::replayer().is_none() {
        return;
    }
    for (before, after) in VERBS {
        if !REPLAYING.contains(&before[0]) {
            continue;
        }
        let parts = ["other.trace", "pages of 65536 bytes", "armv9"];
        refused(dir, &[before, &["other.trace"], after].concat(), &parts);
    }
}

/// An input must not change, and neither must an output if the verb fails before the first byte.
#[test]
fn what_is_there_is_not_lost_before_the_first_byte() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    sample(&dir.join("t.trace"));
    let good = fs::read(dir.join("t.trace")).unwrap();
    fs::hard_link(dir.join("t.trace"), dir.join("same")).unwrap();
    fs::write(dir.join("old.csv"), "something").unwrap();
    for (arguments, part) in [
        ("trace export t.trace --output t.trace", "is what is read"),
        ("trace export t.trace --output same", "is what is read"),
        (
            "trace export t.trace --process 99 --overwrite --output old.csv",
            "99",
        ),
    ] {
        refused(dir, &arguments.split(' ').collect::<Vec<_>>(), &[part]);
    }
    if common::recorder().is_some() {
        let arguments = [
            "record",
            "--output",
            "t.trace",
            "--overwrite",
            "--",
            "./nowhere",
        ];
        let ran = loam_in(dir, &arguments);
        assert_ne!(ran.code, Some(0), "{ran:?}");
    }
    assert_eq!(fs::read(dir.join("t.trace")).unwrap(), good);
    assert_eq!(fs::read(dir.join("old.csv")).unwrap(), b"something");
}

/// Runs `loam` with so much address space.
fn within(dir: &Path, mib: u64, arguments: &[&str]) -> Ran {
    let mut command = Command::new("sh");
    command.current_dir(dir);
    command.args(["-c", "ulimit -v $1; shift; exec \"$@\"", "sh"]);
    command.arg((mib << 10).to_string());
    command.arg(env!("CARGO_BIN_EXE_loam")).args(arguments);
    Ran::of(command.output().unwrap())
}

/// Each of twelve processes has a description of almost 16 MiB, in a file of some kilobytes. In
/// memory they have 134 MB.
#[test]
fn descriptions_of_all_processes_together_are_bounded() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let file = fs::File::create(dir.join("t.trace")).unwrap();
    let mut writer = Writer::new(file, &recorded::header()).unwrap();
    let described = loam_format::trace::Process {
        arguments: vec![String::new(); 5_500_000],
        ..recorded::process()
    };
    for _ in 0..12 {
        let stream = writer.process(&described).unwrap();
        writer.end(stream, Default::default()).unwrap();
    }
    writer.finish().unwrap();
    for verb in ["info", "check"] {
        let ran = within(dir, 1_400, &["trace", verb, "t.trace"]);
        let told = format!("{}{}", ran.out, ran.err);
        assert!(matches!(ran.code, Some(0..=2)), "{verb}: {ran:?}");
        assert!(
            told.contains("of all processes would take more than 1.00 GiB"),
            "{verb}: {ran:?}"
        );
    }
}

/// Four processes with a million live blocks each, in a file of some kilobytes.
#[test]
fn live_blocks_of_all_processes_together_are_bounded() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let file = fs::File::create(dir.join("t.trace")).unwrap();
    let mut writer = Writer::new(file, &recorded::header()).unwrap();
    let streams: Vec<_> = (0..4)
        .map(|_| writer.process(&recorded::process()).unwrap())
        .collect();
    for at in 1..=1_000_000 {
        for stream in &streams {
            let record = loam_format::trace::Record {
                time: 0,
                thread: 0,
                event: loam_format::trace::Event::Allocate {
                    family: loam_format::trace::AllocFamily::Malloc,
                    address: at * 32,
                    size: 32,
                    alignment: 0,
                },
            };
            writer.push(*stream, &record).unwrap();
        }
    }
    for stream in streams {
        writer.end(stream, Default::default()).unwrap();
    }
    writer.finish().unwrap();
    let said = "and this process may not have the memory for them";
    let ran = within(dir, 1_024, &["trace", "check", "t.trace"]);
    assert!(ran.code == Some(2) && ran.err.contains(said), "{ran:?}");
    // The table keeps a row of each live block beside them.
    for (mib, arguments) in [
        (256, &["trace", "info", "t.trace"][..]),
        (400, &["trace", "export", "t.trace", "--table", "blocks"]),
    ] {
        let ran = within(dir, mib, arguments);
        assert!(ran.code == Some(2) && ran.err.contains(said), "{ran:?}");
    }
    let ran = within(dir, 1_024, &["trace", "info", "t.trace"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
