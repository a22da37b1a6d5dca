//! Processes that hold up a look: their file system has stopped answering (node_exporter#868). The
//! tests need FUSE and the right to mount.

use crate::common;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{export, get, library, on_loam, Ran, Running};

/// A file system of one file, whose server can be stopped.
struct FileSystem {
    dir: tempfile::TempDir,
    server: Option<Running>,
}

impl FileSystem {
    /// Mounts the file system; none if the system does not allow it.
    fn mount(shown: &Path) -> Option<FileSystem> {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuse.c");
        let program = dir.path().join("fuse");
        common::compile(&["-Wall", "-Wextra"], &source, &program);
        std::fs::create_dir(dir.path().join("mount")).unwrap();
        let mut system = FileSystem { dir, server: None };
        let mut serve = Command::new(program);
        serve.arg("serve").arg(system.path("mount")).arg(shown);
        system.server = Some(ready(&mut serve)?);
        Some(system)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a process that has mapped the file, and not touched it.
    fn mapping(&self) -> Running {
        let mut held = Command::new(self.path("fuse"));
        ready(held.arg("held").arg(self.path("mount/file"))).unwrap()
    }

    /// From now on the server does not answer.
    fn stop(&self) {
        let server = self.server.as_ref().unwrap();
        signal("-STOP", &server.0);
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // When the server ends, all waiting requests fail.
        self.server = None;
        let unmounted = Command::new("umount")
            .arg("-l")
            .arg(self.path("mount"))
            .status();
        assert!(unmounted.unwrap().success());
    }
}

fn signal(signal: &str, child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill")
        .args([signal, &pid])
        .status()
        .unwrap()
        .success());
}

/// Starts a program and waits until it prints that it is ready; none if it ends instead.
fn ready(command: &mut Command) -> Option<Running> {
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    (line == "ready\n").then_some(child)
}

/// A program on Loam, and one that holds up every look.
fn one_good_and_one_held_up() -> Option<(FileSystem, Running, Running)> {
    let (Some(good), Some(library)) = (on_loam(), library()) else {
        common::skip("no build/libloam.so (make build, or LOAM_LIBRARY)");
        return None;
    };
    let Some(system) = FileSystem::mount(&library) else {
        common::skip("FUSE can not be mounted");
        return None;
    };
    let held = system.mapping();
    system.stop();
    Some((system, good, held))
}

/// The line of a page with this beginning.
fn line<'a>(page: &'a str, start: &str) -> Option<&'a str> {
    page.lines().find(|line| line.starts_with(start))
}

#[test]
fn top_shows_the_others_and_says_what_is_waited_for() {
    let Some((_system, good, held)) = one_good_and_one_held_up() else {
        return;
    };
    let mut top = common::loam();
    let ran = Ran::of(
        top.args(["top", "--batch", "-n", "6", "-d", "0.1"])
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (good, held) = (good.0.id(), held.0.id());
    let row = line(&ran.out, &format!("{good:>7} sleep")).unwrap_or_else(|| panic!("{}", ran.out));
    assert!(row.contains("KiB"), "{row}");
    let says =
        format!("{held:>7} it can not be read: the memory of process {held} does not answer");
    assert!(line(&ran.out, &says).is_some(), "{}", ran.out);
}

#[test]
fn a_scrape_has_the_others_and_counts_the_one_as_unreadable() {
    let Some((system, good, held)) = one_good_and_one_held_up() else {
        return;
    };
    let (mut exporter, address) = export(&["--match", "^(sleep|fuse)$"]);
    let pid = format!("pid=\"{}\"", good.0.id());
    let number = |page: &str, name: &str| {
        let line = line(page, &format!("{name} ")).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    // On a busy machine a look may end before all processes were looked at.
    let began = Instant::now();
    loop {
        let page = get(&address, "/metrics", "*/*");
        let unreadable = number(&page, "loam_processes_unreadable");
        if page.contains(&pid) && unreadable >= 1.0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(300), "{page}");
    }
    // The exporter does not wait for the process again, and a signal still ends it.
    drop(held);
    signal("-TERM", &exporter.0);
    assert_eq!(exporter.0.wait().unwrap().code(), Some(0));
    drop(system);
}

#[test]
fn stats_and_check_give_up_and_say_why() {
    let Some((_system, _good, held)) = one_good_and_one_held_up() else {
        return;
    };
    let pid = held.0.id().to_string();
    for verb in ["stats", "check"] {
        let ran = Ran::of(common::loam().args([verb, &pid]).output().unwrap());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("does not answer"), "{ran:?}");
    }
}
