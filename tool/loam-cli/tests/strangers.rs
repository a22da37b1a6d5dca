//! What strangers give the tool: recordings, folders of other users, programs in sandboxes. Nothing
//! of it is obeyed, waited for, or believed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{compile, loam, loam_in, recorder, replayer, root, skip, Ran};
use rustix::fs::{FileType, Mode, CWD};
use serde_json::Value;

fn program(folder: &Path, name: &str) -> PathBuf {
    let product = folder.join(name);
    let source = root().join(format!("tests/recorder/{name}.c"));
    compile(
        &["-O1", "-fno-builtin", "-w", "-pthread"],
        &source,
        &product,
    );
    product
}

/// Records a shell script.
fn recorded(folder: &Path, script: &str) -> Ran {
    let arguments = [
        "record",
        "--overwrite",
        "--output",
        "t.trace",
        "--",
        "sh",
        "-c",
        script,
    ];
    loam_in(folder, &arguments)
}

/// The trace says that it was recorded on an allocator whose name would be a setting, if the user
/// had written it.
#[test]
fn an_allocator_that_a_trace_names_is_only_looked_up() {
    if recorder().is_none() || replayer().is_none() {
        return;
    }
    let lab = crate::common::Lab::new();
    let folder = lab.path(".");
    let library = lab.allocator("own");
    let evil = lab.path("system:LOAM_MARK=1");
    fs::rename(library, &evil).unwrap();
    let source = lab.path("p.c");
    let code =
        "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 999; i++) free(malloc(99)); }\n";
    fs::write(&source, code).unwrap();
    let link = ["-O0", "-Wl,--no-as-needed", "-Wl,--disable-new-dtags"];
    let name = evil.to_str().unwrap();
    let status = Command::new("cc")
        .args(link)
        .arg(&source)
        .arg(name)
        .arg("-o")
        .arg(lab.path("p"))
        .status();
    assert!(status.unwrap().success());
    let ran = loam_in(&folder, &["record", "--output", "t.trace", "--", "./p"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let info = loam_in(&folder, &["trace", "info", "t.trace", "--json"]);
    assert!(info.out.contains("system:LOAM_MARK=1"), "{info:?}");

    let ran = loam_in(
        &folder,
        &[
            "gate",
            "t.trace",
            "--baseline",
            "b.json",
            "--write-baseline",
            "--trials",
            "1",
        ],
    );
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("no allocator of this machine"), "{ran:?}");
    let ran = loam_in(
        &folder,
        &[
            "replay",
            "t.trace",
            "--allocators",
            "system",
            "--trials",
            "1",
            "--json",
            "r.json",
        ],
    );
    let results: Value =
        serde_json::from_str(&fs::read_to_string(lab.path("r.json")).unwrap()).unwrap();
    let allocators = results["allocators"].as_array().unwrap();
    assert_eq!(allocators.len(), 1, "{ran:?} {allocators:?}");
    assert!(
        !allocators[0].to_string().contains("LOAM_MARK"),
        "{allocators:?}"
    );
}

/// A folder in shared memory that goes with the test.
struct Planted(PathBuf);

impl Planted {
    fn new(name: &str) -> Planted {
        let folder = format!("/dev/shm/loam-record-test{}-{name}", std::process::id());
        fs::create_dir(&folder).unwrap();
        Planted(folder.into())
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_others_put_into_shared_memory_holds_up_no_recording() {
    if recorder().is_none() {
        return;
    }
    let pipe = Planted::new("pipe");
    let mode = Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(CWD, pipe.0.join("session"), FileType::Fifo, mode, 0).unwrap();
    let link = Planted::new("link");
    std::os::unix::fs::symlink("/dev/zero", link.0.join("session")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ran = recorded(folder.path(), "true");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(pipe.0.exists() && link.0.exists());
}

#[test]
fn the_rings_are_private_under_any_umask() {
    if recorder().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.current_dir(folder.path());
    command.args([
        "-c",
        "umask 0; exec \"$0\" record --output t.trace -- sh -c 'stat -c %a \
                         \"$LOAM_RECORD\" \"$LOAM_RECORD\"/*'",
    ]);
    let ran = Ran::of(command.arg(env!("CARGO_BIN_EXE_loam")).output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let modes: Vec<&str> = ran.out.lines().collect();
    assert_eq!(modes[0], "700", "{ran:?}");
    assert!(
        modes.len() > 1 && modes[1..].iter().all(|mode| *mode == "600"),
        "{ran:?}"
    );
}

#[test]
fn a_program_behind_a_filter_of_calls_survives_its_recording() {
    if recorder().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "filtered");
    for how in ["loop", "large", "thread", "clock"] {
        let alone = Command::new("./filtered")
            .current_dir(folder.path())
            .arg(how)
            .output();
        if alone.unwrap().status.code() == Some(77) {
            return skip("record: no filter of system calls can be set here");
        }
        let trace = format!("{how}.trace");
        let ran = loam_in(
            folder.path(),
            &["record", "--output", &trace, "--", "./filtered", how],
        );
        assert_eq!(ran.code, Some(0), "{how}: {ran:?}");
        assert_eq!(ran.out, "survived\n", "{how}");
        assert!(ran.err.contains("none dropped"), "{how}: {ran:?}");
        // Of the program's own clock nothing is believed.
        let info = loam_in(folder.path(), &["trace", "info", &trace, "--json"]);
        let info: Value = serde_json::from_str(&info.out).unwrap();
        let end = info["processes"][0]["end"]["at"].as_u64();
        assert!(
            end.is_some_and(|at| at < 3_600_000_000_000),
            "{how}: {info}"
        );
    }
}

/// The recorded program lies in PID and time namespaces below those of the tool, and writes more
/// than its rings hold.
#[test]
fn a_program_in_other_namespaces_is_recorded_to_its_end() {
    if recorder().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "filtered");
    let inner = ["unshare", "-fp", "--mount-proc"];
    let with_time = [
        "unshare",
        "-fpT",
        "--mount-proc",
        "--monotonic",
        "1000000",
        "--boottime",
        "1000000",
    ];
    let outer = ["unshare", "-fp", "--mount-proc", env!("CARGO_BIN_EXE_loam")];
    for inside in [&inner[..], &with_time[..]] {
        let can = Command::new(inside[0])
            .args(&inside[1..])
            .arg("true")
            .output();
        if !can.is_ok_and(|done| done.status.success()) {
            skip("record: no namespaces can be made here");
            continue;
        }
        for tool in [&outer[3..], &outer[..]] {
            let mut command = Command::new(tool[0]);
            command
                .current_dir(folder.path())
                .args(&tool[1..])
                .env_remove("LD_PRELOAD");
            command.args(["record", "--overwrite", "--output", "t.trace", "--"]);
            let ran = Ran::of(
                command
                    .args(inside)
                    .args(["./filtered", "clock"])
                    .output()
                    .unwrap(),
            );
            assert_eq!(ran.code, Some(0), "{tool:?} {inside:?}: {ran:?}");
            assert_eq!(ran.out, "survived\n", "{tool:?} {inside:?}: {ran:?}");
            let events = ran.err.split("loam: ").last().unwrap();
            let events: u64 = events.split(' ').next().unwrap().parse().unwrap();
            assert!(events >= 600_000, "{tool:?} {inside:?}: {ran:?}");
        }
    }
}

/// Two recordings in different PID namespaces: neither takes the other's folder for one that was
/// left behind.
#[test]
fn a_recording_in_another_namespace_is_left_alone() {
    if recorder().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let other = "unshare -fp --mount-proc \"$0\" record --output other.trace -- true && ls \
                 \"$LOAM_RECORD\"/session";
    let mut command = loam();
    command.current_dir(folder.path());
    command.args(["record", "--output", "t.trace", "--", "sh", "-c", other]);
    let ran = Ran::of(command.arg(env!("CARGO_BIN_EXE_loam")).output().unwrap());
    if ran.err.contains("unshare") {
        return skip("record: no namespaces can be made here");
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("/session"), "{ran:?}");
}

#[test]
fn a_process_that_becomes_an_unrecorded_program_is_told() {
    if recorder().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ran = recorded(folder.path(), "env -i sleep 1; true");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.err
            .contains("has become `sleep`, which is not recorded"),
        "{ran:?}"
    );
    let info = loam_in(folder.path(), &["trace", "info", "t.trace"]);
    assert_eq!(info.code, Some(0), "{info:?}");
}

/// A program that ends at once, without the recording's variables: after exec, in a new PID
/// namespace, and started by a process without any.
#[test]
fn programs_that_are_not_recorded_are_told_however_short_they_live() {
    if recorder().is_none() {
        return;
    }
    if loam_process::perf::Starts::of_children().is_err() {
        return skip("record: the kernel does not tell starts of programs here");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "env -i true; env -i env true; unshare -p -f env -i id >/dev/null; true";
    let ran = recorded(folder.path(), script);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // `unshare -p` needs rights that the others do not.
    let (told, count) = match ran.err.contains("`id`") {
        true => (
            "4 programs were not recorded: `true` (2 times), `env` and `id`",
            4,
        ),
        false => (
            "3 programs were not recorded: `true` (2 times) and `env`",
            3,
        ),
    };
    assert!(ran.err.contains(told), "{ran:?}");
    let check = loam_in(folder.path(), &["trace", "check", "t.trace"]);
    let reasons = check.out.matches("it was not recorded").count();
    assert_eq!(reasons, count, "{check:?}");
    // Nothing is said where nothing is missing.
    let ran = recorded(folder.path(), "for i in 1 2 3 4 5; do env true; done");
    assert!(
        ran.code == Some(0) && !ran.err.contains("not recorded"),
        "{ran:?}"
    );
}

/// It has the variables and the recorder, and may not make a file.
#[test]
fn another_users_process_holds_up_no_recording() {
    if recorder().is_none() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip("record: only root can be another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let other = "setpriv --reuid 65534 --clear-groups sleep 600";
    let script = format!("{other} >/dev/null 2>&1 & echo $! > pid; sleep 0.1");
    let script = format!("cd {}; {script}", folder.path().display());
    let ran = recorded(folder.path(), &script);
    let pids = fs::read_to_string(folder.path().join("pid")).unwrap();
    let mut living = 0;
    for pid in pids.split_whitespace() {
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        let ended = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        living += u32::from(ended.is_ok());
    }
    assert_eq!((ran.code, living), (Some(0), 1), "{ran:?}");
}

/// Some kilobytes that unpack to hundreds of megabytes.
#[test]
fn a_packed_recording_that_grows_without_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let make = "(echo 'v 10500 3'; yes '+ 10 1 2' | head -c 40000000) | gzip > bomb.gz";
    let status = Command::new("sh")
        .current_dir(folder.path())
        .args(["-c", make])
        .status();
    assert!(status.unwrap().success());
    let ran = loam_in(
        folder.path(),
        &["trace", "import", "bomb.gz", "--output", "t.trace"],
    );
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("unpacks to more than 100 times"),
        "{ran:?}"
    );
}
