//! `loam record`: programs with one hazard each (tests/recorder), over the system's malloc and over
//! Loam; and whatever can go wrong with the file or with the one who records.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{self, compile, recorder, root, skip, Ran};
use loam_format::trace::{
    Ended, Event, Frame, How, Item, Items, Mark, Process, Sample, Stack, Wanted,
};

/// A folder with a program of tests/recorder in it.
struct Place {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    fn new(program: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let source = root().join(format!("tests/recorder/{program}.c"));
        let product = dir.path().join(program);
        compile(
            &["-O1", "-fno-builtin", "-w", "-pthread"],
            &source,
            &product,
        );
        Place {
            dir,
            program: product,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, options: &[&str], arguments: &[&str]) -> Command {
        let mut command = common::loam();
        command.current_dir(self.dir.path()).arg("record");
        command.args(options).arg("--").arg(&self.program);
        command.args(arguments);
        command
    }

    fn record(&self, options: &[&str], arguments: &[&str]) -> Ran {
        let options = [&["--output", "t.trace"], options].concat();
        Ran::of(self.command(&options, arguments).output().unwrap())
    }
}

/// What a trace says.
#[derive(Debug, Default)]
struct Told {
    processes: Vec<Process>,
    ends: Vec<(u32, Ended, u64)>,
    samples: Vec<Sample>,
    touches: usize,
    frames: Vec<(u32, Frame)>,
    stacks: Vec<(u32, Stack)>,
    marks: Vec<Mark>,
    /// By size: allocated, freed.
    sizes: HashMap<u64, (u64, u64)>,
    events: u64,
    /// `malloc_trim`, by what was to be kept.
    trims: Vec<u64>,
    /// Events that contradict what is live.
    odd: u64,
}

fn read(path: &Path) -> Told {
    let (told, damage) = read_prefix(path);
    assert!(damage.is_empty(), "{damage:?}");
    told
}

/// The same of a trace whose last chunk may be cut; and what is damaged.
fn read_prefix(path: &Path) -> (Told, Vec<String>) {
    let mut told = Told::default();
    let file = BufReader::new(File::open(path).unwrap());
    let mut live: HashMap<(u32, u64), u64> = HashMap::new();
    let mut resizing: HashMap<(u32, u32), (u64, Option<u64>)> = HashMap::new();
    let mut items = Items::new(file, Wanted::ALL).unwrap();
    for item in items.by_ref() {
        let (stream, item) = item.unwrap();
        let record = match item {
            Item::Process(process) => {
                let at = stream as usize;
                if told.processes.len() <= at {
                    told.processes.push(process);
                } else {
                    told.processes[at] = process;
                }
                continue;
            }
            Item::Sample(sample) => {
                told.samples.push(sample);
                continue;
            }
            Item::Touch(_) => {
                told.touches += 1;
                continue;
            }
            Item::End(end) => {
                told.ends.push((stream, end.ended, end.events));
                continue;
            }
            Item::Event(_, record) => record,
            Item::Frame(frame) => {
                told.frames.push((stream, frame));
                continue;
            }
            Item::Stack(stack) => {
                told.stacks.push((stream, stack));
                continue;
            }
            Item::Mark(mark) => {
                told.marks.push(mark);
                continue;
            }
        };
        told.events += 1;
        let is_child = told.processes[stream as usize].how == How::Fork;
        match record.event {
            Event::Allocate { address, size, .. } => {
                told.sizes.entry(size).or_default().0 += 1;
                if address != 0 {
                    told.odd += u64::from(live.insert((stream, address), size).is_some());
                }
            }
            Event::Free { address, .. } => match live.remove(&(stream, address)) {
                Some(size) => told.sizes.entry(size).or_default().1 += 1,
                None => told.odd += u64::from(!is_child),
            },
            Event::ResizeFrom { address, .. } => {
                let size = live.remove(&(stream, address));
                told.odd += u64::from(size.is_none() && !is_child);
                resizing.insert((stream, record.thread), (address, size));
            }
            Event::ResizeTo { address, size } => {
                let (old, old_size) = resizing.remove(&(stream, record.thread)).unwrap();
                if address == 0 {
                    old_size.map(|size| live.insert((stream, old), size));
                } else {
                    live.insert((stream, address), size);
                    told.sizes.entry(size).or_default().0 += 1;
                    if let Some(size) = old_size {
                        told.sizes.entry(size).or_default().1 += 1;
                    }
                }
            }
            Event::Trim { keep } => told.trims.push(keep),
            _ => {}
        }
    }
    let damage = items.damage().iter().map(ToString::to_string).collect();
    (told, damage)
}

/// What the program printed must be what the trace says.
fn hold(ran: &Ran, told: &Told) {
    for line in ran.out.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words.as_slice() {
            ["expect", "size", ..] => {
                let found = told.sizes.get(&number(2)).copied().unwrap_or_default();
                assert_eq!(found, (number(4), number(6)), "{line}: {ran:?}");
            }
            ["expect", "processes", _] => {
                assert_eq!(told.processes.len() as u64, number(2), "{line}")
            }
            _ => {}
        }
    }
}

/// The folder for rings of the recording by that process.
fn rings_of(drainer: u32) -> PathBuf {
    let all = fs::read_dir("/dev/shm").unwrap().flatten();
    let is_it = |folder: &PathBuf| {
        fs::read(folder.join("session"))
            .is_ok_and(|page| page.get(12..16) == Some(&drainer.to_le_bytes()[..]))
    };
    all.map(|one| one.path()).find(is_it).unwrap()
}

#[test]
fn every_hazard_is_recorded_as_the_program_tells_it() {
    let Some(_) = recorder() else { return };
    let loam = common::library().is_some();
    for (name, arguments) in [
        ("edges", &[][..]),
        ("maps", &[]),
        ("inherits", &[]),
        ("forks", &[]),
        ("storm", &[]),
        ("executes", &[]),
        ("daemon", &[]),
        ("endings", &["_exit"]),
        ("endings", &["thread"]),
    ] {
        let place = Place::new(name);
        let over: &[&[&str]] = match loam {
            true => &[&[], &["--allocator", "loam"]],
            false => &[&[]],
        };
        for options in over {
            let _ = fs::remove_file(place.path("t.trace"));
            let ran = place.record(options, arguments);
            assert_eq!(ran.code, Some(0), "{name} {options:?}: {ran:?}");
            let told = read(&place.path("t.trace"));
            hold(&ran, &told);
            assert!(ran.err.contains("loam replay t.trace"), "{ran:?}");
            let allocator = options.last().copied().unwrap_or("system");
            assert_eq!(told.processes[0].allocator, allocator, "{name}");
            assert_eq!(told.processes[0].how, How::Start);
            if name != "storm" {
                assert_eq!(told.odd, 0, "{name} {options:?}");
            }
        }
    }
}

#[test]
fn what_a_signal_ends_is_there_to_the_last_event_and_the_exit_code_is_the_shells() {
    let Some(_) = recorder() else { return };
    let place = Place::new("endings");
    for (how, signal) in [("kill", 9), ("abort", 6), ("segv", 11)] {
        let _ = fs::remove_file(place.path("t.trace"));
        let ran = place.record(&[], &[how]);
        assert_eq!(ran.code, Some(128 + signal), "{ran:?}");
        let told = read(&place.path("t.trace"));
        hold(&ran, &told);
        assert_eq!(told.ends, [(0, Ended::Signal(signal), told.events)]);
    }
}

#[test]
fn a_process_that_becomes_another_program_ends_one_stream_and_begins_the_next() {
    let Some(_) = recorder() else { return };
    let place = Place::new("executes");
    let ran = place.record(&[], &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = read(&place.path("t.trace"));
    let parents: Vec<_> = told.processes.iter().map(|one| one.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1), Some(2), Some(3), Some(4)]);
    assert!(told.processes[1..].iter().all(|one| one.how == How::Exec));
    // An end is told once the allocator's name and the checksums are known: in any order.
    let mut ends = told.ends;
    ends.sort_by_key(|(stream, ..)| *stream);
    let ends: Vec<_> = ends.iter().map(|(_, ended, _)| *ended).collect();
    assert_eq!(ends[..5], [Ended::Exec; 5]);
    assert_eq!(ends[5], Ended::Code(0));
}

#[test]
fn the_process_is_sampled_and_its_exit_code_is_its_own() {
    let Some(_) = recorder() else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("sleepy.c");
    let code = r#"
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        int main(void) {
            char *block = malloc(64 << 20);
            memset(block, 1, 32 << 20);
            for (int i = 0; i < 30; ++i) { free(malloc(100)); usleep(100000); }
            return 7;
        }"#;
    fs::write(&source, code).unwrap();
    compile(
        &["-O1", "-fno-builtin", "-Wl,--build-id=none"],
        &source,
        &dir.path().join("sleepy"),
    );
    let mut command = common::loam();
    command
        .current_dir(dir.path())
        .args(["record", "--", "./sleepy"]);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let traces: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
    let named = |name: &str| name.starts_with("loam-sleepy-") && name.ends_with(".trace");
    let trace = traces
        .iter()
        .find(|one| named(&one.file_name().to_string_lossy()));
    let told = read(&trace.unwrap().path());
    assert!(told.samples.len() >= 15, "{} samples", told.samples.len());
    let half = 32 << 20;
    let resident = told
        .samples
        .iter()
        .filter_map(|one| one.resident_anonymous)
        .max()
        .unwrap();
    let heap = told
        .samples
        .iter()
        .filter_map(|one| one.resident_heap)
        .max()
        .unwrap();
    assert!(
        resident >= half && heap >= half && heap <= resident,
        "{heap} of {resident}"
    );
    assert!(heap < half + (4 << 20), "{heap} bytes of heap");
    assert!(told.touches > 0);
    assert_eq!(told.ends[0].1, Ended::Code(7));
    let modules = &told.processes[0].modules;
    assert!(modules.iter().any(|one| one.build_id.is_some()));
    let mut own = modules.iter().filter(|one| one.path.ends_with("/sleepy"));
    assert!(own.all(|one| one.checksum.is_some()), "{modules:?}");
    let times: Vec<_> = told.samples.iter().map(|one| one.time.unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn memory_that_the_program_maps_itself_is_not_the_heaps() {
    let Some(_) = recorder() else { return };
    let place = Place::new("maps");
    let ran = place.record(&[], &["8000"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = read(&place.path("t.trace"));
    assert_eq!(told.trims, [12_345]);
    // Sixteen blocks of 3 MiB between sixty-four pools of 1 MiB of the program's own.
    let (blocks, pools) = (48 << 20, 64 << 20);
    let at_rest = told.samples.iter().filter(|one| {
        one.resident_anonymous
            .is_some_and(|all| all >= blocks + pools)
    });
    let heaps: Vec<u64> = at_rest.filter_map(|one| one.resident_heap).collect();
    assert!(heaps.len() >= 3, "{} looks while it rests", heaps.len());
    // The first of them may know less of the events than of the memory.
    let heap = heaps[heaps.len() - 1];
    assert!(
        (blocks..blocks + (2 << 20)).contains(&heap),
        "{heaps:?} bytes of heap"
    );
}

#[test]
fn a_file_is_never_replaced_unasked_and_one_that_can_not_be_written_is_told_before_the_start() {
    let Some(_) = recorder() else { return };
    let place = Place::new("endings");
    fs::write(place.path("t.trace"), "precious").unwrap();
    let ran = place.record(&[], &["_exit"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains("--overwrite"), "{ran:?}");
    assert_eq!(fs::read(place.path("t.trace")).unwrap(), b"precious");
    let ran = place.record(&["--overwrite"], &["_exit"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(read(&place.path("t.trace")).events > 0);
    let ran = Ran::of(
        place
            .command(&["--output", "no/such/folder.trace"], &["_exit"])
            .output()
            .unwrap(),
    );
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains("no/such/folder.trace"), "{ran:?}");
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    let Some(_) = recorder() else { return };
    let place = Place::new("handover");
    let options = ["--output", "/dev/full", "--overwrite"];
    let ran = Ran::of(place.command(&options, &["2", "20000"]).output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.out.contains("expect size 701"), "{ran:?}");
    assert!(
        ran.err.contains("/dev/full") && ran.err.contains("No space left"),
        "{ran:?}"
    );
}

#[test]
fn a_file_that_may_not_grow_ends_the_recording_and_what_was_written_can_be_read() {
    let Some(_) = recorder() else { return };
    let place = Place::new("handover");
    let ran = place.record(&["--max-size", "100K"], &["4", "1000000"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("expect size 701"),
        "the program ended: {ran:?}"
    );
    assert!(ran.err.contains("--max-size"), "{ran:?}");
    assert!(fs::metadata(place.path("t.trace")).unwrap().len() <= 100 << 10);
    let told = read(&place.path("t.trace"));
    assert!(told.events > 0 && told.events < 2 * 4 * 1_000_000);
    assert_eq!(told.ends[0].1, Ended::Running);
}

#[test]
fn the_memory_of_a_program_whose_first_thread_has_ended_is_seen() {
    let Some(_) = recorder() else { return };
    let place = Place::new("leaver");
    assert_eq!(place.record(&[], &[]).code, Some(0));
    let large = |one: &Sample| one.resident_heap > Some(16 << 20);
    assert!(read(&place.path("t.trace")).samples.iter().any(large));
}

#[test]
fn a_recorder_that_is_killed_leaves_a_program_that_ends_normally_and_a_trace_that_can_be_read() {
    let Some(_) = recorder() else { return };
    let place = Place::new("handover");
    let mut command = place.command(&["--output", "t.trace"], &["4", "3000000"]);
    // Without the shell's `env` in between, so that the signal reaches the tool.
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while fs::metadata(place.path("t.trace")).map_or(0, |meta| meta.len()) < 10_000 {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "nothing is written"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let rings = rings_of(child.id());
    child.kill().unwrap();
    // The program holds the other end of the pipe until it ends.
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert!(ran.out.contains("expect size 701"), "{ran:?}");
    assert!(ran.err.contains("has gone away"), "{ran:?}");
    // A chunk that was being written is cut.
    let (told, damage) = read_prefix(&place.path("t.trace"));
    assert!(told.events > 0 && damage.len() <= 1, "{damage:?}");
    assert!(!rings.exists(), "{} is there still", rings.display());
}

/// The package manager's answer about the allocator comes only when the third program has ended,
/// which it does only if its ring is emptied after the end of the first two.
#[test]
fn an_end_does_not_wait_for_the_allocators_name() {
    let Some(jemalloc) = packaged_jemalloc() else {
        return skip("record: no jemalloc of a package is installed");
    };
    let place = Place::new("edges");
    let mix = place.path("mix");
    compile(
        &["-O2", "-fno-builtin"],
        &root().join("bench/recording/mix.c"),
        &mix,
    );
    let asked = "#!/bin/sh\n\
        [ \"$1\" = --show ] && { echo \"libjemalloc2:here 5.late\"; exit; }\n\
        for file; do case $file in /*jemalloc*) echo \"libjemalloc2:here: $file\"; esac; done\n\
        for i in $(seq 600); do [ -e written ] && exit; sleep 0.1; done\n\
        touch late\n";
    common::executable(&place.path("dpkg-query"), asked);
    let script = "cat /dev/null; cat /dev/null; ./mix 200; touch written";
    let path = format!(
        "{}:{}",
        place.dir.path().display(),
        std::env::var("PATH").unwrap()
    );
    let mut command = common::loam();
    let begun = command
        .current_dir(place.dir.path())
        .env("PATH", path)
        .args(["record", "--output", "t.trace", "--allocator", "jemalloc"])
        .args(["--", "sh", "-c", script]);
    let ran = Ran::of(begun.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!place.path("late").exists(), "{ran:?}");
    let told = read(&place.path("t.trace"));
    assert_eq!(told.ends.len(), told.processes.len());
    assert!(told.processes.len() >= 4 && told.events > 1_900_000);
    for process in &told.processes {
        assert_eq!(process.allocator, "jemalloc", "{jemalloc:?}");
        assert_eq!(process.allocator_version.as_deref(), Some("5.late"));
    }
}

fn packaged_jemalloc() -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
    folders
        .iter()
        .map(|folder| Path::new(folder).join("libjemalloc.so.2"))
        .find(|path| path.exists())
}

#[test]
fn the_second_signal_ends_the_recording_and_leaves_the_program_alone() {
    let Some(_) = recorder() else { return };
    let place = Place::new("endings");
    let script = place.path("patient.sh");
    let text = "#!/bin/bash\ntrap 'echo got it' TERM\necho ready\n\
                for i in {1..8}; do sleep 0.25; done\necho done\n";
    common::executable(&script, text);
    let mut command = common::loam();
    command.current_dir(place.dir.path());
    command
        .args(["record", "--output", "t.trace", "--"])
        .arg(&script);
    command.process_group(0);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It takes signals once it has blocked them.
    let status = format!("/proc/{}/status", child.id());
    common::until("signals are taken", || {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        blocked.is_some_and(|mask| mask >> (15 - 1) & 1 == 1)
    });
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..2 {
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(143), "{ran:?}");
    // The first one was the program's, and it went on to its end.
    assert!(
        ran.out.contains("got it") && ran.out.contains("done"),
        "{ran:?}"
    );
    assert!(ran.err.contains("interrupted"), "{ran:?}");
    let told = read(&place.path("t.trace"));
    assert!(told
        .ends
        .iter()
        .any(|(_, ended, _)| *ended == Ended::Running));
}

#[test]
fn what_can_not_take_a_preload_is_refused() {
    let Some(_) = recorder() else { return };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("fixed.c"), "int main(void) { return 0; }").unwrap();
    let product = dir.path().join("fixed");
    compile(&["-static"], &dir.path().join("fixed.c"), &product);
    let mut command = common::loam();
    command
        .current_dir(dir.path())
        .args(["record", "--"])
        .arg(&product);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("static executable") && ran.err.contains("loam record --force"),
        "{ran:?}"
    );
    let mut command = common::loam();
    command.current_dir(dir.path());
    command
        .args(["record", "--force", "--output", "t.trace", "--"])
        .arg(&product);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("no process loaded the recorder"),
        "{ran:?}"
    );
    assert!(!dir.path().join("t.trace").exists());
}

/// What `tests/recorder/sites.c` allocates: function, bytes in all, bytes at the peak.
const SITES: [(&str, f64, f64); 3] = [
    ("keeps_blocks", 40e6, 40e6),
    ("frees_at_once", 60e6, 300.0),
    ("grows_a_block", 500.5e6, 1e6),
];

#[test]
fn stacks_name_who_allocated_and_their_estimates_are_within_the_error() {
    let Some(_) = recorder() else { return };
    let place = Place::new("sites");
    let ran = place.record(&["--stacks=64K"], &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut command = common::loam();
    let info = command
        .current_dir(place.dir.path())
        .args(["trace", "info", "t.trace", "--json"]);
    let info = Ran::of(info.output().unwrap());
    let info: serde_json::Value = serde_json::from_str(&info.out).unwrap();
    let sites = info["stacks"]["sites"].as_array().unwrap();
    for (function, in_all, at_peak) in SITES {
        let mut sums = [0.0; 4];
        let mut count = 0;
        for site in sites {
            let names: Vec<&str> = site["functions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| name.as_str().unwrap())
                .collect();
            if !names.contains(&function) {
                continue;
            }
            // From the beginning to the function that called malloc: nothing is missing, nothing of
            // the recorder's.
            let main = names.iter().position(|name| *name == "main").unwrap();
            assert_eq!(names[main + 1..], [function], "{names:?}");
            count += site["allocated"]["samples"].as_u64().unwrap();
            let figures = [
                site["allocated"]["bytes"].as_f64().unwrap(),
                site["allocated_error"].as_f64().unwrap().powi(2),
                site["peak"]["bytes"].as_f64().unwrap(),
                site["peak_error"].as_f64().unwrap().powi(2),
            ];
            sums.iter_mut()
                .zip(figures)
                .for_each(|(sum, one)| *sum += one);
        }
        assert!(count > 100, "{function}: {count} samples");
        // The error is twice the standard error; each recording of the program draws the same
        // numbers.
        let [all, all_error, peak, peak_error] = sums;
        let (all_error, peak_error) = (all_error.sqrt() * 2.0, peak_error.sqrt() * 2.0 + 1e5);
        assert!(
            (all - in_all).abs() < all_error,
            "{function}: {all} of {in_all} +- {all_error}"
        );
        assert!(
            (peak - at_peak).abs() < peak_error,
            "{function}: {peak} of {at_peak} +- {peak_error}"
        );
    }
    let text = common::loam()
        .current_dir(place.dir.path())
        .args(["trace", "info", "t.trace"])
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("A stack for each 64.0 KiB requested"),
        "{text}"
    );

    let export = |options: &[&str]| {
        let mut command = common::loam();
        command.current_dir(place.dir.path());
        command.args(["trace", "export", "t.trace"]).args(options);
        let out = command.output().unwrap();
        assert!(out.status.success(), "{out:?}");
        out.stdout
    };
    let marks = read(&place.path("t.trace")).marks;
    let names: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
    assert_eq!(names, ["keep", "churn", "end"]);
    assert!(marks.is_sorted_by_key(|mark| mark.time) && marks[0].time > 0);
    assert!(text.contains("keep") && text.contains("Marks"), "{text}");

    let collapsed = export(&["--format", "collapsed", "--of", "allocated"]);
    let drawn = export(&["--format", "flame", "--of", "allocated"]);
    let has_all = |text: Vec<u8>| {
        let text = String::from_utf8(text).unwrap();
        SITES.iter().all(|(function, ..)| text.contains(function))
    };
    assert!(has_all(collapsed) && has_all(drawn));

    export(&["--format", "pprof", "--output", "t.pb.gz"]);
    let go = |kind: &str| {
        let mut pprof = Command::new("go");
        pprof.current_dir(place.dir.path());
        let sample = format!("-sample_index={kind}");
        pprof.args([
            "tool",
            "pprof",
            "-top",
            &sample,
            "-unit=B",
            "-symbolize=none",
            "t.pb.gz",
        ]);
        pprof.output().map(|out| {
            assert!(out.status.success(), "{out:?}");
            String::from_utf8(out.stdout).unwrap()
        })
    };
    match go("alloc_space") {
        Err(_) => skip("pprof of the Go tools is not installed"),
        Ok(top) => {
            let first = top
                .lines()
                .find(|line| line.contains("grows_a_block"))
                .unwrap();
            let bytes: f64 = first.trim().split('B').next().unwrap().parse().unwrap();
            assert!((bytes - 500.5e6).abs() < 50e6, "{top}");
            assert!(go("inuse_space").unwrap().contains("keeps_blocks"));
        }
    }
}

/// Of each process of a trace: its stacks, the outermost function first, and their blocks.
fn callers(folder: &Path, processes: usize) -> Vec<Vec<(Vec<String>, u64)>> {
    let of = |process: usize| {
        let number = process.to_string();
        let info = common::loam_in(
            folder,
            &["trace", "info", "t.trace", "--json", "--process", &number],
        );
        let info: serde_json::Value = serde_json::from_str(&info.out).unwrap();
        let sites = info["stacks"]["sites"].as_array().unwrap().clone();
        let site = |site: &serde_json::Value| {
            let names = site["functions"].as_array().unwrap().iter();
            let names = names.map(|name| name.as_str().unwrap().to_owned());
            let samples = site["allocated"]["samples"].as_u64().unwrap();
            (names.collect(), samples)
        };
        sites.iter().map(site).collect()
    };
    (0..processes).map(of).collect()
}

#[test]
fn stacks_lead_through_forks_late_libraries_signal_handlers_and_threads() {
    let Some(_) = recorder() else { return };
    let place = Place::new("callers");
    let source = root().join("tests/recorder/callers.c");
    let library = place.path("library.so");
    compile(
        &[
            "-O2",
            "-fno-builtin",
            "-w",
            "-DIN_LIBRARY",
            "-fPIC",
            "-shared",
            "-s",
        ],
        &source,
        &library,
    );
    let frames = "-fno-omit-frame-pointer";
    let tables = "-fomit-frame-pointer";
    for options in [&["-O1", frames][..], &["-O2", tables, "-s"]] {
        let more = ["-fno-builtin", "-w", "-pthread", "-rdynamic"];
        compile(&[options, &more].concat(), &source, &place.program);
        let _ = fs::remove_file(place.path("t.trace"));
        let ran = place.record(&["--stacks=1K"], &[library.to_str().unwrap()]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let told = read(&place.path("t.trace"));
        assert_eq!(told.processes.len(), 3);
        let all = callers(place.dir.path(), 3);
        for (process, function, outer, blocks) in [
            (0, "in_main", "main", 20),
            (0, "in_handler", "main", 20),
            (0, "in_thread", "start_thread", 1_000),
            (0, "in_library", "main", 20),
            (0, "fills_the_ring", "main", 1_200),
            (1, "in_child", "main", 20),
            (2, "in_next", "main", 20),
        ] {
            let its = all[process].iter().filter(|(names, _)| {
                names.last().is_some_and(|name| name == function)
                    && names.iter().any(|name| name == outer)
                    && names[0] != "[not known]"
            });
            let found: u64 = its.map(|(_, blocks)| blocks).sum();
            // A stack that found no room is not known, rarely.
            assert!(
                found <= blocks && found >= blocks - blocks / 100,
                "{function}, {found} of {blocks}, {options:?}: {:?}",
                all[process]
            );
        }
    }
}

#[test]
fn a_trace_without_stacks_says_so_and_what_to_do() {
    let Some(_) = recorder() else { return };
    let place = Place::new("sites");
    assert_eq!(place.record(&[], &[]).code, Some(0));
    let told = read(&place.path("t.trace"));
    assert!(told.stacks.is_empty() && told.frames.is_empty());
    for format in ["collapsed", "pprof"] {
        let mut command = common::loam();
        command.current_dir(place.dir.path());
        command.args([
            "trace", "export", "t.trace", "--format", format, "--output", "out",
        ]);
        let ran = Ran::of(command.output().unwrap());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(
            ran.err.contains("has no stacks") && ran.err.contains("--stacks"),
            "{}",
            ran.err
        );
        assert!(!place.path("out").exists());
    }
}
