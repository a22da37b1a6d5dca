//! Trims of programs in odd states (`odd.c`), and of programs that wait in system calls
//! (`calls.c`).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout};
use std::sync::{Barrier, Mutex};

use super::tests::{built, end_whole, started, OPTIONS};
use super::*;

/// A running program of this folder.
struct Odd {
    child: Child,
    output: BufReader<ChildStdout>,
}

#[derive(Clone, Copy)]
enum State {
    Plain,
    Corrupted,
    Mappings,
    Forbids,
    Allows,
    Locked,
    Forked,
    WithoutLeader,
    Becomes,
    AllowsSingle,
}

impl Odd {
    fn start(file: &Path, state: State) -> Odd {
        let (child, output) = started(file, &[state as u32]);
        Odd { child, output }
    }

    fn pid(&self) -> Pid {
        self.child.id() as Pid
    }

    /// It says whether its bytes and its calls were as they should.
    fn end(self) {
        end_whole(self.child, self.output);
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

const LEAST: u64 = 15 << 20;

#[test]
fn odd_programs_are_trimmed_or_refused_and_stay_whole() {
    let Some((_folder, file)) = built("odd.c", &[]) else {
        return;
    };
    for state in [
        State::Plain,
        State::Mappings,
        State::Allows,
        State::WithoutLeader,
        State::AllowsSingle,
    ] {
        let program = Odd::start(&file, state);
        let done = run(program.pid(), &OPTIONS);
        let done = done.unwrap_or_else(|error| panic!("state {}: {error}", state as u32));
        assert!(done.bytes > LEAST, "state {}: {done:?}", state as u32);
        program.end();
    }

    let program = Odd::start(&file, State::Corrupted);
    let before = resident_bytes(program.pid()).unwrap();
    let refused = run(program.pid(), &OPTIONS);
    assert!(matches!(refused, Err(TrimError::Broken(_))), "{refused:?}");
    assert!(
        resident_bytes(program.pid()).unwrap() >= before,
        "nothing is dropped"
    );
    program.end();

    let program = Odd::start(&file, State::Forbids);
    let refused = run(program.pid(), &OPTIONS);
    assert!(
        matches!(refused, Err(TrimError::Forbidden("madvise"))),
        "{refused:?}"
    );
    program.end();

    let program = Odd::start(&file, State::Locked);
    let done = run(program.pid(), &OPTIONS).unwrap();
    assert_eq!((done.bytes, done.ranges), (0, 0), "locked pages stay");
    program.end();
}

#[test]
fn what_forked_processes_share_is_neither_dropped_nor_copied() {
    let Some((_folder, file)) = built("odd.c", &[]) else {
        return;
    };
    let program = Odd::start(&file, State::Forked);
    let own = || {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", program.pid())).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Private_Dirty:"));
        line.unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            << 10
    };
    let before = own();
    let predicted = predict(program.pid()).unwrap();
    let done = run(program.pid(), &OPTIONS).unwrap();
    assert!(
        predicted.shared > LEAST && predicted.could < 2 << 20,
        "{predicted:?}"
    );
    assert!(done.bytes < 2 << 20, "{done:?}");
    // Its own churn copies a hundred blocks.
    assert!(own() < before + (3 << 20), "{before} then {}", own());
    program.end();
}

#[test]
fn a_process_that_ends_meanwhile_or_becomes_another_program_is_let_alone() {
    let Some((_folder, file)) = built("odd.c", &[]) else {
        return;
    };
    let program = Odd::start(&file, State::Plain);
    let pid = program.pid();
    program.kill();
    let refused = run(pid, &OPTIONS);
    assert!(refused.is_err(), "{refused:?}");
    // At each of these steps it is killed.
    for step in [
        Step::Stopped,
        Step::Framed,
        Step::Set,
        Step::Begun,
        Step::Made,
        Step::Restored,
    ] {
        let program = Odd::start(&file, State::Plain);
        let system = rustix::process::Pid::from_raw(program.pid()).unwrap();
        let watch = Watch(Some(Box::new(move |at| {
            if at == step {
                let _ = rustix::process::kill_process(system, rustix::process::Signal::KILL);
            }
        })));
        let done = watched(program.pid(), &OPTIONS, Conditions::ALL, &watch);
        assert!(matches!(done, Err(TrimError::Ended)), "{step:?}: {done:?}");
        program.kill();
    }

    for step in [Step::Stopped, Step::Locked, Step::Made] {
        let mut program = Odd::start(&file, State::Becomes);
        let pid = program.pid();
        let input = Mutex::new(program.child.stdin.take());
        let watch = Watch(Some(Box::new(move |at| {
            let input = (at == step).then(|| input.lock().unwrap().take()).flatten();
            let Some(mut input) = input else { return };
            input.write_all(b"x").unwrap();
            // The thread that calls `exec` waits for the end of the one that is held.
            while Stat::read(pid).is_ok_and(|stat| stat.threads > 1) {
                std::thread::yield_now();
            }
        })));
        let done = watched(pid, &OPTIONS, Conditions::ALL, &watch);
        assert!(matches!(done, Err(TrimError::Ended)), "{step:?}: {done:?}");
        let name = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        while name() != "sleep\n" {
            std::thread::yield_now();
        }
        assert_eq!(tracer(pid), None);
        assert!(program.child.try_wait().unwrap().is_none(), "it runs on");
        program.kill();
    }
}

#[test]
fn a_number_that_was_used_again_means_another_process() {
    let Some((_folder, file)) = built("odd.c", &[]) else {
        return;
    };
    let program = Odd::start(&file, State::Plain);
    let patient = Patient::open(program.pid(), true).unwrap();
    let mut outcome = Outcome::default();
    let pieces = patient.look(&mut outcome).unwrap();
    program.kill();
    // As if the number had been given to another process, of the same program.
    let other = Odd::start(&file, State::Plain);
    let patient = Patient {
        pid: other.pid(),
        key: ProcessKey {
            pid: other.pid(),
            started: patient.key.started.wrapping_sub(1),
        },
        ..patient
    };
    let before = resident_bytes(other.pid()).unwrap();
    let watch = Watch(None);
    let setting = Setting {
        pid: patient.pid,
        memory: &patient.memory,
        program: &patient.program,
        at_once: system::takes_ranges_of_itself(),
        most: OPTIONS.max_stop,
        conditions: Conditions::ALL,
        watch: &watch,
        trusts_filters: false,
    };
    let mappings = mappings::read_names(patient.pid).unwrap();
    let mut frames = Frames::of(patient.pid, &mappings, patient.program.malloc.clone());
    let pace = &mut Pace::default();
    let refused = patient.drop_all(&setting, &mut frames, &pieces, pace, &mut outcome);
    assert!(matches!(refused, Err(TrimError::Ended)), "{refused:?}");
    assert_eq!(outcome.bytes, 0);
    assert!(
        resident_bytes(other.pid()).unwrap() + (1 << 20) >= before,
        "nothing is dropped"
    );
    assert_eq!(tracer(other.pid()), None);
    // And from the begin.
    let refused = patient.trim(&OPTIONS, Conditions::ALL, &watch);
    assert!(refused.is_err(), "{refused:?}");
    other.end();
}

#[test]
fn a_traced_process_is_refused() {
    let Some((_folder, file)) = built("odd.c", &[]) else {
        return;
    };
    let program = Odd::start(&file, State::Plain);
    let pid = program.pid();
    let (seized, wait) = (&Barrier::new(2), &Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            system::seize(pid).unwrap();
            seized.wait();
            wait.wait();
        });
        seized.wait();
        let refused = run(pid, &OPTIONS);
        wait.wait();
        assert!(
            matches!(&refused, Err(TrimError::Stopping(why)) if why.contains("traces it already")),
            "{refused:?}"
        );
    });
    // A thread traces until it has ended, which may be a moment after it was joined.
    while tracer(pid).is_some() {
        std::thread::yield_now();
    }
    // Whoever traced it a moment ago has gone, and no right is missing.
    let gone = super::refused(pid).to_string();
    assert!(gone.contains("traced it at that moment"), "{gone}");
    program.end();
}

#[test]
fn a_version_that_was_not_studied_is_refused() {
    for (major, minor, is_good) in [
        (2, 28, true),
        (2, 41, true),
        (2, 42, false),
        (2, 27, false),
        (3, 0, false),
    ] {
        let found = studied(Version { major, minor });
        assert_eq!(found.is_ok(), is_good, "{major}.{minor}: {:?}", found.err());
    }
}

const CALLS: [&str; 9] = [
    "epoll_wait",
    "futex",
    "pthread_cond_timedwait",
    "read",
    "accept",
    "wait4",
    "io_uring_enter",
    "semtimedop",
    "rt_sigtimedwait",
];

#[test]
fn calls_that_a_stop_interrupts_answer_as_if_it_had_not_been() {
    let Some((_folder, file)) = built("calls.c", &[]) else {
        return;
    };
    let programs: Vec<_> = (0..CALLS.len())
        .filter_map(|number| {
            let mut child = std::process::Command::new(&file)
                .arg(number.to_string())
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            if line == "absent\n" {
                // Many sandboxes refuse this one.
                assert_eq!(CALLS[number], "io_uring_enter");
                child.wait().unwrap();
                return None;
            }
            assert_eq!(line, "ready\n", "{}", CALLS[number]);
            Some((number, Odd { child, output }))
        })
        .collect();
    for (number, program) in programs {
        let mut slices = 0;
        for _ in 0..6 {
            match run(program.pid(), &OPTIONS) {
                Ok(done) => slices += done.slices,
                // Between `vfork` and `exec` of its child a thread does not stop.
                Err(TrimError::NoMoment(..)) => {}
                Err(error) => panic!("{}: {error}", CALLS[number]),
            }
        }
        assert!(slices > 0, "{}: {slices} stops", CALLS[number]);
        program.end();
    }
}
