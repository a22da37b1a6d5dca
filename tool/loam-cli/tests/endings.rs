//! How each verb ends from outside: closed terminals, pipes without a reader, every signal that
//! asks for it. Also how `loam top` is suspended. The tests make their own terminals.
//!
//! Reports: issue 37, B9 (`loam top` spun on a closed terminal and ignored SIGTERM) and B13 (Ctrl-Z
//! did nothing).

use crate::common;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Lab;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use rustix::fs::{fcntl_setfl, OFlags};
use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcflow, tcgetattr, tcsetwinsize, Action, LocalModes, Winsize};

/// A limit for tests that hang; many times the time that is needed.
const LIMIT: Duration = Duration::from_secs(120);

const ASKING: [Signal; 5] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGPIPE,
    Signal::SIGTERM,
];

/// A program on a terminal.
struct OnTerminal {
    child: Running,
    /// The output on the terminal.
    shown: Arc<Mutex<Vec<u8>>>,
    /// Our side of the terminal. It is closed when this and the reader's copy are dropped.
    master: Option<File>,
    /// The program's side. While it is open, the terminal's mode can be read.
    slave: Option<OwnedFd>,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }

    fn send(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    fn end(&mut self, what: &str) -> ExitStatus {
        let mut status = None;
        wait_for(what, || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    fn state(&self) -> char {
        common::state(self.0.id())
    }
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < LIMIT, "{what} did not come");
        thread::sleep(Duration::from_millis(20));
    }
}

impl OnTerminal {
    /// `prepare` makes the command what starts it: of a session, of a group, with signals ignored.
    fn start(mut command: Command) -> OnTerminal {
        // The terminal must not be inherited by programs that other tests start at this moment,
        // because they would keep it open.
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let flags = OFlags::NOCTTY.bits() as i32;
        let slave = File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(name);
        let slave = OwnedFd::from(slave.unwrap());
        let size = Winsize {
            ws_row: 30,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).unwrap();
        let stream = || Stdio::from(slave.try_clone().unwrap());
        let child = command
            .env("TERM", "xterm")
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .unwrap();
        drop(command);
        let master = File::from(master);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let mut reader = master.try_clone().unwrap();
        // The reader polls, because a blocked read would keep the terminal open.
        fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
        let sink = Arc::downgrade(&shown);
        thread::spawn(move || {
            let mut piece = [0; 4096];
            // The loop ends when the terminal is dropped.
            while let Some(sink) = sink.upgrade() {
                match reader.read(&mut piece) {
                    Ok(size @ 1..) => sink.lock().unwrap().extend_from_slice(&piece[..size]),
                    _ => thread::sleep(Duration::from_millis(10)),
                }
            }
        });
        OnTerminal {
            child: Running(child),
            shown,
            master: Some(master),
            slave: Some(slave),
        }
    }

    fn count(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.shown.lock().unwrap())
            .matches(text)
            .count()
    }

    fn wait_for(&self, text: &str, times: usize) {
        wait_for(text, || self.count(text) >= times);
    }

    fn press(&mut self, keys: &str) {
        let master = self.master.as_mut().unwrap();
        master.write_all(keys.as_bytes()).unwrap();
    }

    /// Whether the terminal edits lines, as shells want it.
    fn is_given_back(&self) -> bool {
        let manner = tcgetattr(self.slave.as_ref().unwrap()).unwrap();
        manner
            .local_modes
            .contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Closes the window.
    fn close(&mut self) {
        self.slave = None;
        self.master = None;
        // The reader closes its copy when it finds that its buffer is gone.
        self.shown = Arc::default();
    }
}

fn top() -> Command {
    let mut command = common::loam();
    command.args(["top", "-d", "0.2"]);
    command
}

/// The command, started by another command that executes it.
fn behind(words: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(words[0]);
    outer.args(&words[1..]);
    outer.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        outer.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

const ALTERNATE: &str = "\u{1b}[?1049h";
const PRIMARY: &str = "\u{1b}[?1049l";
const FOOTER: &str = "? help  q quit";
const NO_HANGUP: [&str; 4] = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];

#[test]
fn top_ends_with_its_terminal_wherever_it_is() {
    // The keys open the help (`?`), a page (Enter), and the input of a name (`/`).
    for keys in ["", "?", "\r", "/x"] {
        let mut top = OnTerminal::start(behind(&["setsid", "--ctty"], &top()));
        top.wait_for(FOOTER, 1);
        top.press(keys);
        top.close();
        assert_eq!(top.child.end("the end").code(), Some(129), "{keys:?}");
    }
}

#[test]
fn top_ends_with_its_terminal_when_no_signal_says_so() {
    for words in [&NO_HANGUP[..], &["env"]] {
        let mut top = OnTerminal::start(behind(words, &top()));
        top.wait_for(FOOTER, 1);
        top.close();
        assert_eq!(top.child.end("the end").code(), Some(129), "{words:?}");
    }
}

#[test]
fn every_signal_ends_top_and_gives_the_terminal_back() {
    for signal in ASKING {
        // A caller that blocks all signals makes no difference.
        for words in [&["env"][..], &["env", "--block-signal"]] {
            let mut top = OnTerminal::start(behind(words, &top()));
            top.wait_for(FOOTER, 1);
            assert!(!top.is_given_back());
            top.child.send(signal);
            let status = top.child.end("the end");
            assert_eq!(
                status.code(),
                Some(128 + signal as i32),
                "{signal} {words:?}"
            );
            top.wait_for(PRIMARY, 1);
            assert!(top.is_given_back(), "{signal} {words:?}");
        }
    }
}

#[test]
fn a_signal_ends_top_while_its_terminal_is_stopped() {
    let mut top = OnTerminal::start(top());
    top.wait_for(FOOTER, 1);
    tcflow(top.slave.as_ref().unwrap(), Action::OOff).unwrap();
    // The view is blocked in a write now, or will be with its next line.
    top.press("?");
    thread::sleep(Duration::from_millis(300));
    top.child.send(Signal::SIGTERM);
    assert_eq!(top.child.end("the end").code(), Some(143));
    assert!(top.is_given_back());
}

#[test]
fn control_z_and_its_signal_suspend_top_and_it_goes_on_afterwards() {
    for by_key in [true, false] {
        let mut command = top();
        // The command has a process group of its own in this session, so that another process
        // exists that could continue it.
        command.process_group(0);
        let mut top = OnTerminal::start(command);
        top.wait_for(FOOTER, 1);
        for times in 1..3 {
            if by_key {
                top.press("\u{1a}");
            } else {
                top.child.send(Signal::SIGTSTP);
            }
            wait_for("the stop", || top.child.state() == 'T');
            top.wait_for(PRIMARY, times);
            assert!(top.is_given_back());
            let (alternate, drawn) = (top.count(ALTERNATE), top.count(FOOTER));
            top.child.send(Signal::SIGCONT);
            top.wait_for(ALTERNATE, alternate + 1);
            top.wait_for(FOOTER, drawn + 1);
            wait_for("the raw manner", || !top.is_given_back());
        }
        top.press("q");
        assert_eq!(top.child.end("the end").code(), Some(0));
        assert!(top.is_given_back());
    }
}

#[test]
fn top_draws_anew_after_it_was_stopped_without_being_asked() {
    let mut command = top();
    command.process_group(0);
    let top = OnTerminal::start(command);
    top.wait_for(FOOTER, 1);
    let drawn = top.count(FOOTER);
    top.child.send(Signal::SIGSTOP);
    wait_for("the stop", || top.child.state() == 'T');
    top.child.send(Signal::SIGCONT);
    top.wait_for(FOOTER, drawn + 1);
    // If no shell could continue it, it does not stop at all.
    let mut alone = OnTerminal::start(behind(&["setsid", "--ctty"], &self::top()));
    alone.wait_for(FOOTER, 1);
    let drawn = alone.count(FOOTER);
    alone.press("\u{1a}");
    alone.wait_for(FOOTER, drawn + 1);
    assert_ne!(alone.child.state(), 'T');
}

/// A batch that has printed once, and looks again in a day.
fn batch(words: &[&str]) -> (Running, BufReader<std::process::ChildStdout>) {
    let mut command = common::loam();
    command.args(["top", "--batch", "-d", "86400"]);
    let mut child = behind(words, &command)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut page = BufReader::new(child.stdout.take().unwrap());
    page.read_line(&mut String::new()).unwrap();
    (Running(child), page)
}

#[test]
fn a_batch_ends_with_its_reader_and_does_not_wait_for_its_next_look() {
    let (mut batch, page) = batch(&["env"]);
    drop(page);
    assert_eq!(batch.end("the end").code(), Some(0));
}

#[test]
fn a_batch_ends_with_its_terminal() {
    let mut command = common::loam();
    command.args(["top", "--batch", "-d", "86400"]);
    let mut batch = OnTerminal::start(behind(&NO_HANGUP, &command));
    batch.wait_for("loam top", 1);
    batch.close();
    assert_eq!(batch.child.end("the end").code(), Some(129));
}

#[test]
fn every_signal_ends_a_batch_and_an_exporter_unless_the_caller_ignores_it() {
    for signal in ASKING {
        for words in [&["env"][..], &["env", "--block-signal"]] {
            let (mut batch, _page) = batch(words);
            batch.send(signal);
            let status = batch.end("the end");
            let is_by_it = status.signal() == Some(signal as i32)
                || status.code() == Some(128 + signal as i32);
            assert!(is_by_it, "{signal} {words:?} {status:?}");

            let mut command = common::loam();
            command.args(["export", "--listen", "localhost:0"]);
            let mut child = behind(words, &command)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stderr.take().unwrap());
            lines.read_line(&mut String::new()).unwrap();
            let mut exporter = Running(child);
            exporter.send(signal);
            exporter.end("the exporter's end");
        }
    }
    let (mut batch, _page) = batch(&NO_HANGUP);
    batch.send(Signal::SIGHUP);
    batch.send(Signal::SIGTERM);
    assert_eq!(batch.end("the end").signal(), Some(15));
}

/// A lab with a first trial that would take an hour.
fn lab(lab: &Lab, words: &[&str]) -> Command {
    let started = lab.path("started");
    let script = format!(": > {}\nexec sleep 3600", started.display());
    lab.workload("queue", &script);
    behind(
        words,
        &lab.command(&["queue", "--allocators", "system", "--json", "r.json"]),
    )
}

#[test]
fn a_lab_ends_with_its_terminal_or_the_reader_of_its_progress_and_by_every_signal() {
    let place = Lab::new();
    let mut on_terminal = OnTerminal::start(lab(&place, &NO_HANGUP));
    wait_for("the trial", || place.path("started").exists());
    on_terminal.close();
    assert_eq!(on_terminal.child.end("the end").code(), Some(129));
    assert_eq!(place.results("r.json")["state"], "interrupted");

    for signal in ASKING {
        let place = Lab::new();
        let mut command = lab(&place, &["env"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut running = Running(child.unwrap());
        wait_for("the trial", || place.path("started").exists());
        running.send(signal);
        let status = running.end("the end");
        assert_eq!(status.code(), Some(128 + signal as i32), "{signal}");
        assert_eq!(place.results("r.json")["state"], "interrupted", "{signal}");
    }

    let place = Lab::new();
    let mut command = lab(&place, &["env"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let progress = child.stderr.take().unwrap();
    let mut running = Running(child);
    wait_for("the trial", || place.path("started").exists());
    drop(progress);
    assert_eq!(running.end("the end").code(), Some(141));
    assert_eq!(place.results("r.json")["state"], "interrupted");
}

#[test]
fn a_message_that_nobody_reads_changes_no_exit_code() {
    for (arguments, code) in [
        (&["stats", "no-such-process-at-all"][..], 2),
        (&["check", "/no/such/file"], 2),
        (
            &[
                "run",
                "--library",
                env!("CARGO_BIN_EXE_loam"),
                "/no/such/file",
            ],
            127,
        ),
        (&["export", "--listen", "nonsense"], 2),
        (&["top"], 2),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = common::loam()
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(writer)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn streams_that_are_closed_from_the_start_hold_nobody_up() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        for verb in [
            "top",
            "top --batch -n 1",
            "stats $$",
            "allocators",
            "check /bin/sh",
        ] {
            let script = format!("\"$0\" {verb} {closed}");
            let child = Command::new("sh")
                .args(["-c", &script, env!("CARGO_BIN_EXE_loam")])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let status = Running(child.unwrap()).end(&script);
            assert!(
                status.code().is_some_and(|code| code <= 2),
                "{script}: {status:?}"
            );
        }
    }
}
