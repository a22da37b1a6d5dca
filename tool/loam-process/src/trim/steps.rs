//! Trims at single instructions of malloc's functions: the program of `steps.c` is let go one
//! instruction at a time, and a trim is tried behind each.
//!
//! Two things are asked: whether the program finds its bytes and its heap whole, and whether a
//! thread was ever used that was inside of malloc. The second is told by the stack pointer, about
//! which the trim's own answer knows nothing. Candidates are all free chunks that any walk has seen
//! until then, so most of them are stale.

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdout};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use nix::libc;

use super::inject::{Held, Stop};
use super::pace::{Clock, Pace};
use super::plan::whole_pages;
use super::tests::{built, started};
use super::verify::Hole;
use super::*;
use crate::glibc::{Blocks, Residency};

/// More instructions than this are not run in the other thread between a check and a drop.
const AHEAD: usize = 3000;
/// In how many trims the other thread runs on once between a check and a drop.
const AHEAD_EVERY: u32 = 7;
/// How many instructions lie between two walks of the heap, beside those at the begin of each call.
const WALKS: u64 = 97;

/// All free chunks that were ever seen, with whole pages or without.
#[derive(Default)]
struct Seen {
    main: Option<u64>,
    holes: BTreeSet<(u64, u64, u64, bool)>,
}

impl Blocks for Seen {
    fn block(&mut self, _: u64, _: u64, _: &Residency) {}
    fn stretch_ends(&mut self, _: &Residency) {}

    fn hole(&mut self, arena: u64, address: u64, size: u64, is_top: bool, _: &Residency) {
        self.main.get_or_insert(arena);
        self.holes.insert((arena, address, size, is_top));
    }
}

impl Seen {
    fn pieces(&self) -> Vec<Piece> {
        let pieces = self.holes.iter().map(|&(arena, address, size, is_top)| {
            let hole = Hole {
                arena,
                is_main: Some(arena) == self.main,
                address,
                size,
                is_top,
            };
            let (start, end) = whole_pages(&hole);
            Piece {
                hole,
                start,
                end,
                resident: end.saturating_sub(start),
                swapped: 0,
            }
        });
        pieces.filter(|piece| piece.start < piece.end).collect()
    }
}

/// Where the stepped thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In front of a call of malloc's functions.
    Before,
    /// Inside of one.
    Inside,
    /// Behind one, with the program's next instructions to come.
    Behind,
    /// The program has ended.
    Ended,
}

/// A thread that is let go one instruction at a time inside of malloc's functions.
struct Stepper {
    thread: Pid,
    memory: File,
    place: Place,
    /// The stack pointer in front of the call.
    outer: u64,
    malloc: Range<u64>,
    /// The thread that makes the calls of a trim.
    other: Option<Pid>,
    /// How many calls are still to come. Behind the last one the program frees all without a trap.
    calls: u32,
}

impl Stepper {
    fn registers(&self) -> system::Registers {
        system::registers(self.thread).unwrap()
    }

    /// The next instruction; behind a call all up to the begin of the next one.
    fn step(&mut self) {
        match self.place {
            Place::Ended => {}
            Place::Behind => self.run_to_next(),
            Place::Before | Place::Inside => {
                system::step(self.thread).unwrap();
                self.place = match self.stop() {
                    Some(()) => self.placed(),
                    None => Place::Ended,
                };
            }
        }
    }

    /// Waits for the next trap. None: the program ends.
    fn stop(&self) -> Option<()> {
        let status = loop {
            // The end of the program comes behind its last call.
            let Some(other) = self.other.filter(|_| self.place == Place::Behind) else {
                break system::wait(self.thread).unwrap();
            };
            if let Some(status) = system::news(self.thread).unwrap() {
                break status;
            }
            // A first thread has not ended before the others have been seen to end.
            let _ = system::news(other);
            std::thread::sleep(Duration::from_micros(50));
        };
        match Stop::of(status) {
            Stop::Signal(libc::SIGTRAP) => Some(()),
            // A broken heap ends the program by SIGABRT or SIGSEGV.
            Stop::Signal(signal) => {
                system::let_go(self.thread, signal).unwrap();
                None
            }
            Stop::Ended => None,
            other => panic!("{other:?}"),
        }
    }

    fn placed(&self) -> Place {
        let now = self.registers();
        // The last that `calloc` does is a jump to `memset`, which returns to the program.
        let has_left = now.rsp == self.outer - 8 && !self.malloc.contains(&now.rip);
        match self.place {
            _ if now.rsp < self.outer && !has_left => Place::Inside,
            Place::Inside => Place::Behind,
            _ => Place::Before,
        }
    }

    /// Runs on to the program's next trap.
    fn run_to_next(&mut self) {
        system::go(self.thread, 0).unwrap();
        self.place = match self.stop() {
            Some(()) => Place::Before,
            None => Place::Ended,
        };
        if self.place == Place::Before {
            self.calls = self.calls.saturating_sub(1);
            self.outer = self.registers().rsp;
        }
    }

    /// Runs on until it would make a system call (it might wait for what the other thread has), or
    /// for some thousand instructions.
    fn run_ahead(&mut self) {
        for _ in 0..AHEAD {
            if self.place == Place::Inside {
                let mut code = [0; 2];
                let at = self.registers().rip;
                if self.memory.read_exact_at(&mut code, at).is_err() || code == [0x0f, 0x05] {
                    return;
                }
            }
            let was = self.place;
            if was == Place::Behind && self.calls == 0 {
                return;
            }
            self.step();
            if was == Place::Behind || self.place == Place::Ended {
                return;
            }
        }
    }
}

/// What happened.
#[derive(Debug, Default)]
struct Report {
    /// Instructions inside of malloc's functions.
    instructions: u64,
    /// Trims that were tried.
    tried: u64,
    /// Trims that dropped something.
    dropped: u64,
    /// Those of them that used a thread inside of malloc.
    inside: u64,
    /// Trims that found the lock taken.
    locked: u64,
    /// Ranges.
    ranges: u64,
    /// What the program said at its end.
    said: String,
}

impl Report {
    fn is_whole(&self) -> bool {
        self.said == "whole\n"
    }
}

/// How the program is stepped.
#[derive(Debug, Clone, Copy)]
struct Course {
    /// Calls of malloc's functions.
    calls: u32,
    /// A trim is tried behind every how many instructions.
    every: u64,
    /// Whether another thread makes the trim's calls, and the stepped one runs on between a check
    /// and a drop.
    two: bool,
    conditions: Conditions,
}

struct Started {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// None: there is no C compiler.
fn steps(course: Course) -> Option<Report> {
    let (_folder, file) = built("steps.c", &["-fno-plt", "-Wl,-z,now"])?;
    // All requests to a traced thread come from one thread, and the end of that thread lets go.
    let work = std::thread::spawn(move || {
        let (child, output) = started(&file, &[course.calls, u32::from(course.two)]);
        follow(Started { child, output }, &course)
    });
    Some(
        work.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    )
}

fn follow(mut started: Started, course: &Course) -> Report {
    let pid = started.child.id() as Pid;
    let held = |thread| slices::hold(thread).unwrap().unwrap();
    let other = course.two.then(|| {
        let threads = threads_of(pid).unwrap();
        held(*threads.iter().find(|thread| **thread != pid).unwrap())
    });
    system::seize(pid).unwrap();
    let mut input = started.child.stdin.take().unwrap();
    let patient = Patient::open(pid, true).unwrap();
    let stepper = Arc::new(Mutex::new(Stepper {
        thread: pid,
        memory: File::open(format!("/proc/{pid}/mem")).unwrap(),
        place: Place::Behind,
        outer: 0,
        malloc: patient.program.malloc.clone(),
        other: other.as_ref().map(|other| other.thread),
        // Eleven come before those that are drawn.
        calls: course.calls + 10,
    }));
    input.write_all(b"x").unwrap();
    // It may run until its first trap.
    stepper.lock().unwrap().place = match Stop::of(system::wait(pid).unwrap()) {
        Stop::Signal(libc::SIGTRAP) => Place::Before,
        other => panic!("{other:?}"),
    };
    let outer = stepper.lock().unwrap().registers().rsp;
    stepper.lock().unwrap().outer = outer;
    let ahead = stepper.clone();
    let tries = AtomicU32::new(0);
    let watch = match course.two {
        true => Watch(Some(Box::new(move |at| {
            if at == Step::Begun && tries.fetch_add(1, Ordering::Relaxed) % AHEAD_EVERY == 0 {
                ahead.lock().unwrap().run_ahead();
            }
        }))),
        false => Watch(None),
    };
    let setting = Setting {
        pid,
        memory: &patient.memory,
        program: &patient.program,
        at_once: system::takes_ranges_of_itself(),
        most: Duration::from_secs(60),
        conditions: course.conditions,
        watch: &watch,
        trusts_filters: false,
    };
    let mut frames = Frames::of(pid, &patient.mappings, patient.program.malloc.clone());
    let mut seen = Seen::default();
    let mut report = Report::default();
    let mut pieces = Vec::new();
    let mut since = 0;
    loop {
        let place = stepper.lock().unwrap().place;
        match place {
            Place::Ended => break,
            Place::Inside => report.instructions += 1,
            _ => {}
        }
        since += 1;
        if place == Place::Before || since % WALKS == 0 {
            // Inside of malloc a walk may find what does not add up.
            let _ = glibc::read_and_tell(patient.key, &mut seen);
            pieces = seen.pieces();
        }
        let is_tried = place != Place::Behind && since % course.every == 0;
        if is_tried || place == Place::Behind && !course.two {
            let mine;
            let thread = match &other {
                Some(other) => other,
                None => {
                    mine = Held {
                        thread: pid,
                        registers: system::registers(pid).unwrap(),
                    };
                    &mine
                }
            };
            report.tried += 1;
            let clock = Clock::of(pid, thread.thread);
            let mut pace = Pace::boundless();
            let times = (&clock, clock.now());
            let tried = slices::in_stop(&setting, &mut frames, thread, &pieces, &mut pace, times);
            if stepper.lock().unwrap().place == Place::Ended {
                break;
            }
            match tried.unwrap() {
                Ok(slice) => {
                    report.ranges += slice.ranges;
                    report.dropped += u64::from(slice.ranges > 0);
                    let is_inside = place == Place::Inside && !course.two;
                    report.inside += u64::from(is_inside && slice.ranges > 0);
                }
                Err(Futile::Locked) => report.locked += 1,
                Err(_) => {}
            }
        }
        stepper.lock().unwrap().step();
    }
    drop(input);
    started.output.read_to_string(&mut report.said).unwrap();
    if let Some(other) = &other {
        let _ = started.child.kill();
        while system::news(other.thread).is_ok() {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    report
}

const SAMPLE: Course = Course {
    calls: 60,
    every: 29,
    two: false,
    conditions: Conditions::ALL,
};

#[test]
fn a_trim_between_instructions_of_malloc_leaves_the_program_whole() {
    for two in [false, true] {
        let Some(report) = steps(Course { two, ..SAMPLE }) else {
            return;
        };
        assert!(report.is_whole() && report.inside == 0, "{report:?}");
        assert!(report.dropped > 10 && report.tried > 200, "{report:?}");
    }
}

#[test]
#[ignore = "every instruction of a thousand calls: some ten seconds and more"]
fn a_trim_at_every_instruction_of_malloc_leaves_the_program_whole() {
    for (two, calls) in [(false, 1000), (true, 200)] {
        let all = Course {
            two,
            calls,
            every: 1,
            ..SAMPLE
        };
        let Some(report) = steps(all) else { return };
        assert!(report.is_whole() && report.inside == 0, "{report:?}");
    }
}

#[test]
fn without_a_condition_a_trim_between_instructions_is_seen_to_be_wrong() {
    let all = Conditions::ALL;
    let outside = Conditions {
        outside: false,
        lock: false,
        ..all
    };
    let Some(report) = steps(Course {
        conditions: outside,
        ..SAMPLE
    }) else {
        return;
    };
    assert!(report.inside > 0, "{report:?}");
    let links = Conditions {
        links: false,
        ..all
    };
    let report = steps(Course {
        conditions: links,
        calls: 1,
        every: 13,
        ..SAMPLE
    });
    assert!(!report.unwrap().is_whole(), "without links");
    let lock = Conditions { lock: false, ..all };
    let report = steps(Course {
        conditions: lock,
        two: true,
        calls: 300,
        every: 13,
    });
    assert!(!report.unwrap().is_whole(), "without the lock");
}
