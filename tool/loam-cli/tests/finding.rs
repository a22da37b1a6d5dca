//! `loam top` and `loam stats` recognise the same programs as programs on Loam, whatever the files
//! are called.

use crate::common;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{library, root, sleeping, Ran, Running};

/// Whether both show the process's counters.
fn assert_found(what: &str, process: &Running) {
    let pid = process.0.id();
    let ran = Ran::of(
        common::loam()
            .args(["stats", &pid.to_string()])
            .output()
            .unwrap(),
    );
    assert!(
        ran.code == Some(0) && ran.out.contains("on Loam"),
        "{what}: {ran:?}"
    );
    let mut top = common::loam();
    let ran = Ran::of(
        top.args(["top", "--batch", "-n", "3", "-d", "0.1"])
            .output()
            .unwrap(),
    );
    let row = ran
        .out
        .lines()
        .find(|line| line.starts_with(&format!("{pid:>7} ")));
    let row = row.unwrap_or_else(|| panic!("{what}: {}", ran.out));
    // The row has PID, name, resident bytes with their unit, and live bytes.
    let live = row
        .split_whitespace()
        .nth(4)
        .and_then(|word| word.parse::<f64>().ok());
    assert!(live.is_some_and(|live| live > 0.0), "{what}: {row}");
}

/// Waits until the program has begun to run its own code.
fn settled(process: Running) -> Running {
    let status = format!("/proc/{}/status", process.0.id());
    while !std::fs::read_to_string(&status)
        .unwrap()
        .contains("State:\tS")
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    process
}

fn copy(library: &Path, folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::copy(library, &path).unwrap();
    path
}

fn strip(options: &[&str], path: &Path) -> bool {
    let status = Command::new("objcopy").args(options).arg(path).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn a_library_of_another_name_deleted_or_stripped_is_found() {
    let Some(library) = library() else {
        common::skip("no build/libloam.so (make build, or LOAM_LIBRARY)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let renamed = copy(&library, dir.path(), "libm-alloc.so.7");
    assert_found("renamed", &settled(sleeping(&renamed)));
    let deleted = copy(&library, dir.path(), "libgone.so");
    let process = settled(sleeping(&deleted));
    std::fs::remove_file(&deleted).unwrap();
    assert_found("deleted", &process);
    let stripped = copy(&library, dir.path(), "libbare.so");
    if strip(&["--strip-all"], &stripped) {
        assert_found("stripped", &settled(sleeping(&stripped)));
    }
    // Without section headers, only the data for the dynamic linker is left.
    let blind = copy(&library, dir.path(), "libblind.so");
    blind_elf(&blind);
    assert_found("without section headers", &settled(sleeping(&blind)));
}

/// Removes the section headers, as `sstrip` does.
fn blind_elf(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[0x28..0x30].fill(0); // e_shoff
    bytes[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_program_whose_main_thread_has_ended_is_alive_to_every_verb() {
    let Some(library) = library() else {
        common::skip("no build/libloam.so (make build, or LOAM_LIBRARY)");
        return;
    };
    let lab = common::Lab::new();
    let source = lab.path("leaves.c");
    // Some time passes between the two threads' starts, because a process is identified by the
    // start of its own.
    std::fs::write(
        &source,
        "#include <pthread.h>\n\
         #include <stdlib.h>\n\
         #include <unistd.h>\n\
         static void *stay(void *all) \
         { volatile char *p = malloc(1000); p[0] = 1; for (;;) pause(); return all; }\n\
         int main(void) \
         { pthread_t one; usleep(60000); pthread_create(&one, 0, stay, 0); pthread_exit(0); }\n",
    )
    .unwrap();
    let program = lab.path("leaves");
    common::compile(&["-O0", "-pthread"], &source, &program);
    let child = Command::new(&program).env("LD_PRELOAD", &library).spawn();
    let process = Running(child.unwrap());
    let pid = process.0.id().to_string();
    let status = format!("/proc/{pid}/status");
    while !std::fs::read_to_string(&status)
        .unwrap()
        .contains("State:\tZ")
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_found("without its main thread", &process);
    let all = Ran::of(common::loam().args(["stats", "--all"]).output().unwrap());
    assert!(
        all.out
            .lines()
            .any(|line| line.contains(&format!(" {pid} ")) && line.ends_with("Loam")),
        "{all:?}"
    );
    let check = Ran::of(common::loam().args(["check", &pid]).output().unwrap());
    assert!(
        check.code == Some(0) && check.out.contains("libloam"),
        "{check:?}"
    );
}

#[test]
fn a_static_program_is_found_stripped_and_without_section_headers() {
    let archive = root().join("build/libloam.a");
    if !archive.is_file() {
        common::skip("no build/libloam.a (make build)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("waits.c");
    std::fs::write(
        &source,
        "#include <stdlib.h>\n#include <unistd.h>\n\
         int main(void) { volatile char *p = malloc(100); p[0] = 1; for (;;) pause(); }\n",
    )
    .unwrap();
    for kind in ["-static", "-static-pie", "-no-pie", "-pie"] {
        for how in ["whole", "stripped", "blind"] {
            let program = dir.path().join(format!("waits{kind}-{how}"));
            let whole = format!(
                "-Wl,--whole-archive,{},--no-whole-archive",
                archive.display()
            );
            let mut link = Command::new("c++");
            link.args(["-x", "c", kind])
                .arg(&source)
                .args(["-x", "none"])
                .arg(whole);
            let linked = link
                .arg("-pthread")
                .arg("-o")
                .arg(&program)
                .output()
                .unwrap();
            assert!(linked.status.success(), "{linked:?}");
            if how != "whole" {
                assert!(strip(&["--strip-all"], &program));
            }
            if how == "blind" {
                blind_elf(&program);
            }
            let process = settled(Running(Command::new(&program).spawn().unwrap()));
            assert_found(&format!("{kind} {how}"), &process);
        }
    }
}
