//! A tool of one file: its parts are inside, and are unpacked for the program that it starts. Here
//! the tool is the one of the build; tests/packaging/roots.py has the static one, in the systems of
//! others.

use std::fs;
use std::io::{Cursor, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use zip::write::SimpleFileOptions;
use zip::ZipWriter;

use crate::common::{self, skip, Ran};

/// Prints the names of the heap in its own memory.
const SHOW: &str = "while read -r line; do case $line in *libloam.so*) echo \"$line\"; esac; done \
                    < /proc/self/maps";

/// The tool with the heap for glibc behind it.
fn one_file(folder: &Path, parts: &[&str]) -> Option<PathBuf> {
    let Some(library) = common::library() else {
        skip("the library is not built (`make library`)");
        return None;
    };
    let mut out = Cursor::new(fs::read(env!("CARGO_BIN_EXE_loam")).unwrap());
    out.seek(SeekFrom::End(0)).unwrap();
    let mut archive = ZipWriter::new(out);
    for part in parts {
        archive
            .start_file(*part, SimpleFileOptions::default())
            .unwrap();
        let name = Path::new(part).file_name().unwrap();
        let bytes = fs::read(library.with_file_name(name)).unwrap();
        archive.write_all(&bytes).unwrap();
    }
    let tool = folder.join("loam");
    common::executable_bytes(&tool, archive.finish().unwrap().get_ref());
    Some(tool)
}

fn run(tool: &Path, folder: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(tool);
    command.env_remove("LOAM_LIBRARY").env_remove("LD_PRELOAD");
    command.env("TMPDIR", folder).current_dir(folder);
    Ran::of(command.args(arguments).output().unwrap())
}

#[test]
fn the_heap_is_unpacked_into_a_folder_that_only_its_user_writes_to() {
    let dir = tempfile::tempdir().unwrap();
    let Some(tool) = one_file(dir.path(), &["gnu/libloam.so"]) else {
        return;
    };
    for _ in 0..2 {
        let ran = run(&tool, dir.path(), &["run", "--", "sh", "-c", SHOW]);
        let folder = format!("{}/loam-", dir.path().display());
        assert!(ran.code == Some(0) && ran.out.contains(&folder), "{ran:?}");
    }
    let outer = fs::read_dir(dir.path()).unwrap().flatten();
    let outer = { outer }.find(|one| one.file_name().to_string_lossy().starts_with("loam-"));
    let mode = outer.unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o022, 0, "{mode:o}");
}

#[test]
fn what_it_has_inside_counts_and_nothing_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some(tool) = one_file(dir.path(), &["gnu/libloam.so"]) else {
        return;
    };
    fs::write(dir.path().join("libloam-record.so"), b"of somebody else").unwrap();
    let ran = run(&tool, dir.path(), &["record", "--", "true"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let names = ran
        .err
        .contains("this loam has no libloam-record.so for the GNU C library");
    assert!(names, "{ran:?}");
}

#[test]
fn a_program_is_recorded_by_the_recorder_inside() {
    let dir = tempfile::tempdir().unwrap();
    let parts = ["gnu/libloam.so", "gnu/libloam-record.so"];
    let Some(tool) = one_file(dir.path(), &parts) else {
        return;
    };
    let ran = run(
        &tool,
        dir.path(),
        &["record", "-o", "t", "--", "sh", "-c", ":"],
    );
    assert!(
        ran.code == Some(0) && ran.err.contains("events in"),
        "{ran:?}"
    );
}

#[test]
fn where_no_folder_takes_programs_the_heap_is_a_file_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let parts = ["gnu/libloam.so", "gnu/libloam-record.so"];
    let Some(tool) = one_file(dir.path(), &parts) else {
        return;
    };
    // The tool is started by a path that stays reachable.
    let script = "set -e; exec 9< \"$0\"
        for one in /tmp /var/tmp /run /dev/shm; do mount -t tmpfs -o noexec none $one; done
        cd /; TMPDIR=/tmp /proc/self/fd/9 run -- sh -c \"$1\"
        /proc/self/fd/9 record -o /tmp/t -- sh -c :";
    let ran = Command::new("unshare")
        .args(["-rm", "sh", "-c", script])
        .arg(&tool)
        .arg(SHOW)
        .env_remove("LOAM_LIBRARY")
        .env_remove("LD_PRELOAD")
        .output();
    let ran = match ran {
        Ok(ran) if !String::from_utf8_lossy(&ran.stderr).contains("unshare:") => Ran::of(ran),
        _ => return skip("one_file: this user may make no namespaces"),
    };
    let is_there = ran.out.contains("/memfd:libloam.so") && ran.err.contains("events in");
    assert!(ran.code == Some(0) && is_there, "{ran:?}");
}
