//! Trims of a real program that checks every byte of itself. Without a C compiler these tests say
//! that they were skipped.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::verify::{check, Hole, Verdict};
use super::*;
use loam_format::memory::Memory;

pub const OPTIONS: Options = Options {
    max_stop: Duration::from_millis(2),
    trusts_filters: false,
};

/// The program, running.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

/// A program of this folder, built. None: there is no C compiler.
pub fn built(source: &str, more: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/trim")
        .join(source);
    let built = Command::new("cc")
        .args(["-O1", "-pthread"])
        .args(more)
        .arg("-o")
        .arg(&file)
        .arg(source)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no C compiler");
        return None;
    }
    Some((folder, file))
}

/// A program that has said that it is ready, and what it says from now on.
pub fn started(file: &Path, numbers: &[u32]) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(file)
        .args(numbers.iter().map(u32::to_string))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, output)
}

/// Ends such a program. It says whether its bytes and its calls were as they should be.
pub fn end_whole(mut child: Child, mut output: BufReader<ChildStdout>) {
    let mut input = child.stdin.take().unwrap();
    let _ = input.write_all(b"x");
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success() && rest == "whole\n", "{status}: {rest}");
}

impl Program {
    fn start(threads: u32) -> Option<Program> {
        let (folder, file) = built("whole.c", &[])?;
        let (child, output) = started(&file, &[threads]);
        Some(Program {
            child,
            output,
            _folder: folder,
        })
    }

    fn pid(&self) -> Pid {
        self.child.id() as Pid
    }

    /// Ends it. It says whether all its bytes are what they were.
    fn end(self) {
        end_whole(self.child, self.output);
    }
}

#[test]
fn a_program_with_one_thread_gets_thin_and_stays_whole() {
    let Some(program) = Program::start(0) else {
        return;
    };
    let predicted = predict(program.pid()).unwrap();
    assert_eq!(predicted.bytes, 0);
    let done = run(program.pid(), &OPTIONS).unwrap();
    assert!(done.bytes > 20 << 20, "{done:?}");
    assert!(
        done.bytes * 10 > predicted.could * 9,
        "{done:?}, {predicted:?}"
    );
    assert!(
        done.resident.1 + (done.bytes / 10 * 8) < done.resident.0,
        "{done:?}"
    );
    assert_eq!(tracer(program.pid()), None);
    for _ in 0..20 {
        run(program.pid(), &OPTIONS).unwrap();
    }
    program.end();
}

#[test]
fn a_program_whose_threads_churn_gets_thin_and_stays_whole() {
    let Some(program) = Program::start(3) else {
        return;
    };
    let done = run(program.pid(), &OPTIONS).unwrap();
    assert!(done.bytes > 40 << 20, "{done:?}");
    for _ in 0..20 {
        run(program.pid(), &OPTIONS).unwrap();
    }
    program.end();
}

#[test]
fn a_stopped_program_is_trimmed_and_stays_stopped() {
    let Some(program) = Program::start(0) else {
        return;
    };
    let pid = rustix::process::Pid::from_raw(program.pid()).unwrap();
    let state = || Stat::read(program.pid()).unwrap().state;
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    while state() != 'T' {
        std::thread::yield_now();
    }
    // What the doctor tells of it.
    let (heap, _) = Patient::open(program.pid(), false).unwrap().walk().unwrap();
    let told = heap.sum(|arena| arena.from_outside);
    let done = run(program.pid(), &OPTIONS).unwrap();
    assert!(done.bytes > 20 << 20, "{done:?}");
    assert_eq!(told, done.bytes);
    while state() != 'T' {
        std::thread::yield_now();
    }
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    program.end();
}

/// The step at which the tool of the test below dies, and which time it comes to it.
const DIES: &str = "LOAM_TEST_TRIM_DIES";

const STEPS: [Step; 14] = [
    Step::Stopped,
    Step::Framed,
    Step::Armed,
    Step::Masked,
    Step::Locking,
    Step::Locked,
    Step::Set,
    Step::Begun,
    Step::Made,
    Step::Unlocking,
    Step::Unlocked,
    Step::Unmasked,
    Step::Restored,
    Step::LetGo,
];

/// Not a test: the tool that dies.
#[test]
#[ignore = "the test of the tool's death starts it"]
fn dies() {
    let Ok(text) = std::env::var(DIES) else {
        return;
    };
    let numbers: Vec<usize> = text.split(' ').map(|word| word.parse().unwrap()).collect();
    let [pid, step, time] = numbers[..] else {
        panic!("{text}")
    };
    let count = AtomicU32::new(0);
    let watch = Watch(Some(Box::new(move |at| {
        if at == STEPS[step] && count.fetch_add(1, Ordering::Relaxed) == time as u32 {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
            loop {
                std::thread::park();
            }
        }
    })));
    watched(pid as Pid, &OPTIONS, Conditions::ALL, &watch).unwrap();
}

#[test]
fn a_tool_that_dies_at_any_step_leaves_the_program_whole() {
    let mut died = [0; STEPS.len()];
    for threads in [0, 2] {
        for (step, died) in died.iter_mut().enumerate() {
            let Some(program) = Program::start(threads) else {
                return;
            };
            for time in 0..2 {
                let status = Command::new(std::env::current_exe().unwrap())
                    .args(["--ignored", "--exact", "trim::tests::dies"])
                    .env(DIES, format!("{} {step} {time}", program.pid()))
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .unwrap();
                *died += u32::from(!status.success());
                assert_eq!(tracer(program.pid()), None);
            }
            program.end();
        }
    }
    for (step, died) in STEPS.iter().zip(died) {
        assert!(died > 0, "no tool died at {step:?}");
    }
}

/// A heap of one free chunk between two blocks, of which words are changed.
struct Words(Vec<(u64, u64)>);

impl Memory for Words {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        for (place, bytes) in (address..).step_by(8).zip(buffer.chunks_mut(8)) {
            let word = self.0.iter().rev().find(|(at, _)| *at == place);
            bytes.copy_from_slice(&word.map_or(0, |(_, word)| *word).to_le_bytes()[..bytes.len()]);
        }
        Ok(())
    }
}

const CHUNK: u64 = 0x10_0000;
const SIZE: u64 = 0x8000;
const ARENA: u64 = 0x5000;

fn heap(changes: &[(u64, u64)]) -> Words {
    let next = CHUNK + SIZE;
    let bin = ARENA + 0x60;
    let mut words = vec![
        (CHUNK + 8, SIZE | 1),
        (CHUNK + 16, bin),
        (CHUNK + 24, bin),
        (bin + 16, CHUNK),
        (bin + 24, CHUNK),
        (next, SIZE),
        (next + 8, 0x40),
        (next + 0x48, 0x41),
        (ARENA + 96, CHUNK + 0x20_0000),
    ];
    words.extend(changes);
    Words(words)
}

#[test]
fn each_condition_alone_keeps_a_chunk_that_only_it_tells() {
    let hole = Hole {
        arena: ARENA,
        is_main: true,
        address: CHUNK,
        size: SIZE,
        is_top: false,
    };
    let next = CHUNK + SIZE;
    let free =
        |words: &Words, conditions: &Conditions| check(words, &hole, conditions) == Verdict::Free;
    assert!(free(&heap(&[]), &Conditions::ALL));
    let all = Conditions::ALL;
    for (changes, without) in [
        (vec![(next, SIZE - 16)], Conditions { foot: false, ..all }),
        (vec![(next + 8, 0x41)], Conditions { next: false, ..all }),
        (
            vec![(CHUNK + 8, SIZE)],
            Conditions {
                neighbours: false,
                ..all
            },
        ),
        (
            vec![(next + 0x48, 0x40)],
            Conditions {
                neighbours: false,
                ..all
            },
        ),
        (
            vec![(ARENA + 0x60 + 16, 0)],
            Conditions {
                links: false,
                ..all
            },
        ),
        (
            vec![(ARENA + 0x60 + 24, CHUNK + 64)],
            Conditions {
                links: false,
                ..all
            },
        ),
    ] {
        let words = heap(&changes);
        assert!(!free(&words, &all), "{changes:x?}");
        assert!(
            free(&words, &without),
            "{changes:x?}: another condition keeps it"
        );
    }
    // A chunk of another length is another chunk.
    assert_eq!(
        check(&heap(&[(CHUNK + 8, 0x101)]), &hole, &all),
        Verdict::Changed
    );
}
