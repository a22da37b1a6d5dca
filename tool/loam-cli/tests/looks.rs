//! What a look does to the process that is looked at: nothing. The verbs that read a stranger's
//! memory are tried on groups that share memory, in a control group with a limit, on memory that
//! was never touched, and on processes that end meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{kill_process, Pid, Signal};

use crate::common::{compile, library, loam, root, signal, skip, state, Limited, Ran, Talker};

/// The verbs that read memory.
const VERBS: [&str; 5] = ["doctor", "pins", "map", "stats", "check"];
/// A look may map pages of files that are in memory already.
const MAPPED: u64 = 1 << 10;

fn program(folder: &Path, name: &str) -> PathBuf {
    let program = folder.join(name);
    let source = root().join("tests/doctor").join(format!("{name}.c"));
    compile(&["-O1", "-pthread"], &source, &program);
    program
}

/// One look of a verb.
fn look(verb: &str, pid: &str, folder: &Path) -> Command {
    let mut command = loam();
    command.current_dir(folder).args([verb, pid]);
    if verb == "map" {
        command.args(["--output", "map.html"]);
    }
    command
}

/// A group of processes that share so many MiB: on glibc's malloc or on the heap, with huge pages
/// or without.
fn group(program: &Path, mib: &str, is_huge: bool, heap: Option<&Path>) -> Talker {
    let mut command = Command::new(program);
    command.arg(mib).env_remove("LD_PRELOAD");
    if is_huge {
        command
            .arg("huge")
            .env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    }
    if let Some(heap) = heap {
        command
            .env("LD_PRELOAD", heap)
            .env("LOAM_HUGE_PAGES", if is_huge { "on" } else { "off" });
    }
    Talker::start(&mut command)
}

fn worker(group: &mut Talker) -> String {
    let workers = group.ask("workers");
    workers.split(' ').next().unwrap().to_owned()
}

fn looked_at_without_growth(group: &mut Talker, folder: &Path, what: &str) {
    let pid = worker(group);
    let before: u64 = group.ask("bytes").parse().unwrap();
    for verb in VERBS {
        let ran = Ran::of(look(verb, &pid, folder).output().unwrap());
        // On Loam no map is drawn.
        let is_refused = verb == "map" && ran.err.contains("is on Loam");
        assert!(
            is_refused || matches!(ran.code, Some(0 | 1)),
            "{verb} of {what}: {ran:?}"
        );
        let after: u64 = group.ask("bytes").parse().unwrap();
        assert!(
            after <= before + MAPPED,
            "{verb} of {what}: the group has {before} KiB, and {after} KiB after a look"
        );
    }
}

#[test]
fn a_look_leaves_pages_shared() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "forked");
    for is_huge in [false, true] {
        for heap in [None, library()] {
            let what = format!("a group on {heap:?}, huge pages: {is_huge}");
            let mut group = group(&program, "32", is_huge, heap.as_deref());
            looked_at_without_growth(&mut group, folder.path(), &what);
        }
    }
}

#[test]
fn a_look_at_a_group_with_a_limit_ends_none_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "forked");
    let Some(limited) = Limited::new("loam-looks") else {
        return skip("looks: no control group with a limit of memory can be made here");
    };
    let inside = format!(
        "echo $$ > {}/cgroup.procs && exec \"$0\" 32",
        limited.0.display()
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &inside])
        .arg(&program)
        .env_remove("LD_PRELOAD");
    let mut group = Talker::start(&mut command);
    // Four processes share 32 MiB: an unshared copy does not fit.
    limited.limit(limited.used() + (8 << 20));
    looked_at_without_growth(&mut group, folder.path(), "a group with a limit");
    let workers = group.ask("workers");
    for pid in workers.split(' ') {
        assert!(signal("0", pid), "{pid} of {workers} was killed");
    }
    drop(group);
}

/// What the process has in memory of its own and in tables of pages, KiB.
fn held(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |name: &str| -> u64 {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    of("RssAnon:") + of("RssShmem:") + of("VmPTE:")
}

#[test]
fn a_look_touches_nothing_that_the_process_has_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("untouched.c");
    let code = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        int main(void) {
            // Reserved, never touched: blocks of mappings, an area of its own, shared memory.
            for (int i = 0; i < 16; i++) { volatile char *p = malloc(64 << 20); p[0] = 0; }
            for (int kind = 0; kind < 3; kind++)
                mmap(0, 1 << 30, kind == 2 ? PROT_NONE : PROT_READ | PROT_WRITE,
                     MAP_ANONYMOUS | MAP_NORESERVE | (kind == 1 ? MAP_SHARED : MAP_PRIVATE), -1, 0);
            puts("ready"); fflush(stdout); getchar(); return 0;
        }"#;
    fs::write(&source, code).unwrap();
    let program = folder.path().join("untouched");
    compile(&["-O0"], &source, &program);
    for heap in [None, library()] {
        let mut command = Command::new(&program);
        command.env_remove("LD_PRELOAD");
        if let Some(heap) = &heap {
            command.env("LD_PRELOAD", heap);
        }
        let program = Talker::start(&mut command);
        let pid = program.pid();
        let before = held(&pid);
        for verb in VERBS {
            let ran = Ran::of(look(verb, &pid, folder.path()).output().unwrap());
            let after = held(&pid);
            // The system counts a page too many or too few for a while, in batches.
            assert!(
                after <= before + 256,
                "{verb}: {before} KiB, then {after} KiB; {ran:?}"
            );
        }
    }
}

/// Whether the process has the other's memory open.
fn reads(reader: u32, pid: &str) -> bool {
    let memory = PathBuf::from(format!("/proc/{pid}/mem"));
    let files = fs::read_dir(format!("/proc/{reader}/fd"))
        .into_iter()
        .flatten();
    files
        .flatten()
        .any(|file| fs::read_link(file.path()).is_ok_and(|path| path == memory))
}

/// The look is stopped while it has the memory open, and meanwhile the process is killed.
#[test]
fn a_process_that_ends_within_a_look_has_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "truth");
    for heap in [None, library()] {
        for verb in VERBS {
            if heap.is_some() && verb == "map" {
                continue;
            }
            let mut was_within = false;
            while !was_within {
                let mut command = Command::new(&program);
                command
                    .args(["0", "1", "50", "16"])
                    .env_remove("LD_PRELOAD");
                if let Some(heap) = &heap {
                    command.env("LD_PRELOAD", heap);
                }
                let target = Talker::start(&mut command);
                let pid = target.pid();
                let mut tool = Command::new(env!("CARGO_BIN_EXE_loam"));
                tool.current_dir(folder.path())
                    .args([verb, &pid])
                    .env_remove("LD_PRELOAD");
                if verb == "map" {
                    tool.args(["--output", "map.html"]);
                }
                tool.stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
                let mut looking = tool.spawn().unwrap();
                let reader = looking.id();
                while !reads(reader, &pid) && looking.try_wait().unwrap().is_none() {
                    std::hint::spin_loop();
                }
                // By a call, and not by a program that would first have to start.
                let tool = Pid::from_child(&looking);
                let _ = kill_process(tool, Signal::STOP);
                // It goes on until the signal comes, and may look at all there is meanwhile.
                while looking.try_wait().unwrap().is_none() && state(reader) != 'T' {
                    std::hint::spin_loop();
                }
                was_within = reads(reader, &pid);
                drop(target);
                let _ = kill_process(tool, Signal::CONT);
                let ran = Ran::of(looking.wait_with_output().unwrap());
                if was_within {
                    assert_eq!(ran.code, Some(2), "{verb} on {heap:?}: {ran:?}");
                    assert_eq!(ran.out, "", "{verb} on {heap:?}");
                    assert!(ran.err.contains("ended"), "{verb} on {heap:?}: {ran:?}");
                }
            }
        }
    }
}
