//! A process that ends the running trial when the lab can not. After `kill -9`, a crash or an
//! out-of-memory kill the lab has no time to do anything.
//!
//! ```text
//! lab --(pipe: one line a change)--> watchdog        "4711" this process group runs now; "0" none
//! lab ends, however it ends --> the pipe ends --> the watchdog kills that group and ends
//! ```
//!
//! The watchdog sleeps in `read` all the time, so it does not disturb the measurement.

use std::cell::RefCell;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{kill_process_group, Pid, Signal};

/// The hidden verb that runs the watchdog.
pub const VERB: &str = "lab-watchdog";

/// The lab's end of the pipe.
#[derive(Debug)]
pub struct Watchdog {
    process: RefCell<Child>,
}

impl Watchdog {
    /// Starts the process.
    pub fn start() -> io::Result<Watchdog> {
        // Runs the lab's own program, even if its file was replaced meanwhile.
        let process = Command::new("/proc/self/exe")
            .arg(VERB)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A signal that ends the lab's group must not end the watchdog.
            .process_group(0)
            .spawn()?;
        Ok(Watchdog {
            process: RefCell::new(process),
        })
    }

    /// Tells the watchdog which process group runs from now on, or that none does.
    pub fn watch(&self, group: Option<u32>) {
        let mut process = self.process.borrow_mut();
        if let Some(pipe) = &mut process.stdin {
            // Without the watchdog, the lab still ends trials itself, if it can.
            let _ = writeln!(pipe, "{}", group.unwrap_or(0));
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let process = self.process.get_mut();
        drop(process.stdin.take());
        let _ = process.wait();
    }
}

/// The watchdog process's own code.
pub fn run() {
    let mut group = None;
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        group = line.parse().ok().and_then(Pid::from_raw);
    }
    if let Some(group) = group {
        // The group may have ended in the same moment, which is the goal.
        let _ = kill_process_group(group, Signal::KILL);
    }
}
