//! `loam record --pid`: a running process on Loam is recorded, left alone, and recorded again.

use crate::common;
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{compile, root, skip, Ran, Talker};
use loam_format::trace::{Ended, Event, How, Item, Items, Process, Wanted};

/// The number of threads in the program that allocate all the time.
const THREADS: u64 = 4;

/// A program on Loam that obeys orders.
struct Program {
    talker: Talker,
    dir: tempfile::TempDir,
}

impl Program {
    /// Starts the program; none if something has not been built.
    fn start(arguments: &[&str]) -> Option<Program> {
        let recorder = root().join("build/libloam-record.so");
        let (Some(library), true) = (common::library(), recorder.is_file()) else {
            skip("build/libloam.so or build/libloam-record.so has not been built");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let product = dir.path().join("attached");
        let source = root().join("tests/recorder/attached.c");
        compile(
            &["-O1", "-fno-builtin", "-w", "-pthread"],
            &source,
            &product,
        );
        let mut command = Command::new(product);
        let talker = Talker::start(command.args(arguments).env("LD_PRELOAD", library));
        Some(Program { talker, dir })
    }

    fn order(&mut self, what: &str) {
        let answer = if what == "quit" { "bye" } else { "done" };
        assert_eq!(self.talker.ask(what), answer);
    }

    fn quit(mut self) {
        self.order("quit");
        assert!(self.talker.wait().success());
    }

    fn trace(&self) -> PathBuf {
        self.dir.path().join("t.trace")
    }

    fn attach(&self) -> Recording {
        self.attach_into(&self.trace())
    }

    fn attach_into(&self, trace: &Path) -> Recording {
        let mut command = common::loam();
        command.args(["record", "--overwrite", "--output"]);
        command.arg(trace).args(["--pid", &self.talker.pid()]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Recording(child.spawn().unwrap())
    }

    /// Attaches, and waits until each call is recorded.
    fn record(&self) -> Recording {
        let mut recording = self.attach();
        recording.wait_for("recording process");
        recording
    }
}

struct Recording(Child);

impl Recording {
    fn wait_for(&mut self, text: &str) {
        // Reads one byte at a time: later output belongs to the end of the recording.
        let error = self.0.stderr.as_mut().unwrap();
        let mut said = Vec::new();
        for byte in std::io::Read::bytes(&mut *error) {
            said.push(byte.unwrap());
            if said.ends_with(b"\n") && String::from_utf8_lossy(&said).contains(text) {
                return;
            }
        }
        panic!("{}", String::from_utf8_lossy(&said));
    }

    fn end(self) -> Ran {
        common::signal("INT", self.0.id());
        self.wait()
    }

    fn wait(self) -> Ran {
        Ran::of(self.0.wait_with_output().unwrap())
    }
}

/// The contents of a trace about one process.
#[derive(Debug, Default)]
struct Told {
    processes: HashMap<u32, Process>,
    ended: Option<Ended>,
    /// Blocks that lived before recording began, by size.
    existing: HashMap<u64, u64>,
    /// Of these, the blocks that were freed.
    existing_freed: HashMap<u64, u64>,
    /// Numbers of allocations and frees, by size.
    sizes: HashMap<u64, (u64, u64)>,
    /// Events that contradict the live blocks.
    odd: u64,
    /// Blocks that lived before recording began and whose events do not come first.
    late: u64,
    events: u64,
}

fn read(path: &Path) -> Told {
    let mut told = Told::default();
    let mut live: HashMap<u64, (u64, bool)> = HashMap::new();
    let mut resizing = HashMap::new();
    let mut items = Items::new(BufReader::new(File::open(path).unwrap()), Wanted::ALL).unwrap();
    for item in items.by_ref() {
        let record = match item.unwrap() {
            (stream, Item::Process(process)) => {
                // The last description of a process counts.
                told.processes.insert(stream, process);
                continue;
            }
            (_, Item::End(end)) => {
                told.ended = Some(end.ended);
                continue;
            }
            (0, Item::Event(_, record)) => record,
            _ => continue,
        };
        told.events += 1;
        match record.event {
            Event::Existing { address, size } => {
                told.odd += u64::from(live.insert(address, (size, true)).is_some());
                told.late += u64::from(!told.sizes.is_empty());
                *told.existing.entry(size).or_default() += 1;
            }
            Event::Allocate { address, size, .. } => {
                told.odd += u64::from(live.insert(address, (size, false)).is_some());
                told.sizes.entry(size).or_default().0 += 1;
            }
            Event::Free { address, .. } => match live.remove(&address) {
                Some((size, true)) => *told.existing_freed.entry(size).or_default() += 1,
                Some((size, false)) => told.sizes.entry(size).or_default().1 += 1,
                None => told.odd += 1,
            },
            Event::ResizeFrom { address, .. } => {
                told.odd += u64::from(live.remove(&address).is_none());
                resizing.insert(record.thread, address);
            }
            Event::ResizeTo { address, size } => {
                assert!(resizing.remove(&record.thread).is_some());
                live.insert(address, (size, false));
            }
            _ => {}
        }
    }
    assert_eq!(items.damaged(), 0, "{:?}", items.damage());
    told
}

/// The count of the blocks of 3,001 bytes, which appear with the size of their slots.
fn of_old(counts: &HashMap<u64, u64>) -> u64 {
    let old = counts
        .iter()
        .filter(|(size, _)| (3_001..3_600).contains(*size));
    old.map(|(_, count)| count).sum()
}

#[test]
fn a_process_is_recorded_left_alone_and_recorded_again() {
    let Some(mut program) = Program::start(&[]) else {
        return;
    };
    for round in 0..2 {
        let recording = program.record();
        program.order("work");
        program.order("fork");
        let ran = recording.end();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.err.contains("none dropped"), "{ran:?}");
        let told = read(&program.trace());
        assert_eq!(told.processes[&0].how, How::Attach);
        assert_eq!(told.processes[&0].allocator, "loam");
        assert_eq!(told.ended, Some(Ended::Running));
        assert_eq!(told.sizes.get(&6_007), Some(&(100, 40)), "round {round}");
        assert_eq!(told.sizes.get(&7_011), None, "the child is not recorded");
        assert_eq!(of_old(&told.existing), 500 - 250 * round);
        assert_eq!(of_old(&told.existing_freed), 250);
        assert_eq!(told.existing.get(&(3 << 20)), Some(&1));
        // If a thread lost the processor inside a call when recording began, the recording may lack
        // this one call.
        assert!(told.odd <= THREADS && told.late == 0, "{told:?}");
        // Without a recording, the program goes on.
        program.order("fork");
    }
    program.quit();
}

#[test]
fn a_process_that_ends_meanwhile_leaves_a_trace() {
    for how in ["KILL", "quit"] {
        let Some(mut program) = Program::start(&[]) else {
            return;
        };
        let recording = program.record();
        program.order("work");
        if how == "quit" {
            program.order("quit");
        } else {
            common::signal(how, program.talker.pid());
        }
        program.talker.wait();
        let ran = recording.wait();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let told = read(&program.trace());
        assert_eq!(told.sizes.get(&6_007), Some(&(100, 40)), "{how}");
        assert_eq!(told.ended, Some(Ended::Unknown), "{how}");
    }
}

#[test]
fn a_recorder_that_is_killed_leaves_a_process_that_can_be_recorded_again() {
    let Some(mut program) = Program::start(&[]) else {
        return;
    };
    let mut killed = program.record();
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let recording = program.record();
    program.order("work");
    let ran = recording.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = read(&program.trace());
    assert_eq!(told.sizes.get(&6_007), Some(&(100, 40)));
    program.quit();
}

#[test]
fn a_recording_that_is_refused_leaves_its_file_as_it_was() {
    let Some(mut program) = Program::start(&[]) else {
        return;
    };
    let first = program.record();
    let other = program.dir.path().join("other.trace");
    for before in [None, Some("precious")] {
        if let Some(text) = before {
            std::fs::write(&other, text).unwrap();
        }
        let ran = program.attach_into(&other).wait();
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("is being recorded already"), "{ran:?}");
        assert_eq!(std::fs::read_to_string(&other).ok().as_deref(), before);
    }
    // Two recordings do not share a file.
    let ran = program.attach().wait();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("t.trace is being written by another loam"),
        "{ran:?}"
    );
    program.order("work");
    let ran = first.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = read(&program.trace());
    assert_eq!(told.sizes.get(&6_007), Some(&(100, 40)));
    program.quit();
}

#[test]
fn a_process_that_ends_without_a_call_leaves_the_file_as_it_was() {
    for before in [None, Some("precious")] {
        let Some(mut program) = Program::start(&["idle"]) else {
            return;
        };
        if let Some(text) = before {
            std::fs::write(program.trace(), text).unwrap();
        }
        let mut recording = program.attach();
        recording.wait_for("has not called its heap yet");
        common::signal("KILL", program.talker.pid());
        program.talker.wait();
        let ran = recording.wait();
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("ended before it called"), "{ran:?}");
        let after = std::fs::read_to_string(program.trace()).ok();
        assert_eq!(after.as_deref(), before);
    }
}

#[test]
fn the_time_of_a_recording_ends_without_a_call_of_the_heap() {
    for is_stopped in [false, true] {
        let Some(mut program) = Program::start(&["idle"]) else {
            return;
        };
        let pid = program.talker.pid();
        if is_stopped {
            common::signal("STOP", &pid);
            common::until("the process stops", || common::state(&pid) == 'T');
        }
        let folder = program.dir.path();
        // Without the limit it would wait for ever.
        let mut command = std::process::Command::new("timeout");
        command
            .current_dir(folder)
            .args(["60", env!("CARGO_BIN_EXE_loam")]);
        command.args(["record", "--pid", &pid, "--for", "1"]);
        let ran = common::Ran::of(command.output().unwrap());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("did not call its heap in "), "{ran:?}");
        // Only the program lies there.
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
        common::signal("CONT", &pid);
        // The request was taken back: the call does not begin a recording.
        program.order("work");
        let mapped = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!mapped.contains("libloam-record.so"));
        program.quit();
    }
}

#[test]
fn an_output_that_can_not_be_written_is_told_as_such() {
    let Some(program) = Program::start(&[]) else {
        return;
    };
    let ran = program.attach_into(Path::new("/dev/full")).wait();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("/dev/full") && ran.err.contains("No space left"),
        "{ran:?}"
    );
    program.quit();
}

#[test]
fn a_thread_of_the_kernel_has_no_heap_to_record() {
    if std::fs::read_to_string("/proc/2/comm").unwrap_or_default() != "kthreadd\n" {
        return skip("the threads of the kernel are not seen from here");
    }
    for way in [&[][..], &["--growth"], &["--cost", "2%"]] {
        let mut command = common::loam();
        let ran = Ran::of(
            command
                .args(["record", "--pid", "2"])
                .args(way)
                .output()
                .unwrap(),
        );
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains("is a thread of the kernel"), "{ran:?}");
    }
}

#[test]
fn a_process_that_does_not_call_its_heap_is_waited_for() {
    let Some(mut program) = Program::start(&["idle"]) else {
        return;
    };
    let mut recording = program.attach();
    recording.wait_for("has not called its heap yet");
    let ran = recording.end();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("did not call its heap"), "{ran:?}");
    let mut recording = program.attach();
    recording.wait_for("has not called its heap yet");
    program.order("work");
    recording.wait_for("recording process");
    program.order("work");
    let ran = recording.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = read(&program.trace());
    assert_eq!(of_old(&told.existing_freed), 250);
    assert_eq!((told.odd, told.late), (0, 0));
    program.quit();
}

#[test]
fn what_does_not_run_is_refused_and_so_is_a_hardened_heap() {
    let Some(library) = common::library() else {
        return skip("build/libloam.so has not been built");
    };
    let dir = tempfile::tempdir().unwrap();
    let record = |pid: &str| common::loam_in(dir.path(), &["record", "--pid", pid]);
    let mut sleeping = Command::new("sleep").arg("300").spawn().unwrap();
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    let ran = record(&sleeping.id().to_string());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("there is no process"), "{ran:?}");
    // No file was left.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    let mut hardened = Command::new("sh")
        .args(["-c", "while :; do read -r line < /dev/null; done"])
        .env("LD_PRELOAD", library)
        .env("LOAM_HARDEN", "all")
        .spawn()
        .unwrap();
    let ran = record(&hardened.id().to_string());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("hardened"), "{ran:?}");
    hardened.kill().unwrap();
    hardened.wait().unwrap();
}
