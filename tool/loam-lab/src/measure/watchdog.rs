//! A process that ends the running trial when the lab can not: after `kill -9`, a crash, or an
//! out-of-memory kill, which leave no time to do anything.
//!
//! ```text
//! lab --(pipe: one line a change)--> watchdog        "4711" this process group runs now; "0" none
//! lab ends, however it ends --> the pipe ends --> the watchdog kills that group and ends
//! ```
//!
//! It sleeps in `read` all the time, so it does not disturb what is measured.

use std::cell::RefCell;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{kill_process_group, Pid, Signal};

/// The hidden verb behind it.
pub const VERB: &str = "lab-watchdog";

/// The lab's end of the pipe.
#[derive(Debug)]
pub struct Watchdog {
    process: RefCell<Child>,
}

impl Watchdog {
    /// Starts the process.
    pub fn start() -> io::Result<Watchdog> {
        // This very program, even if its file was replaced meanwhile.
        let process = Command::new("/proc/self/exe")
            .arg(VERB)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What ends the lab's group must not end this.
            .process_group(0)
            .spawn()?;
        Ok(Watchdog {
            process: RefCell::new(process),
        })
    }

    /// From now on this process group runs, or none.
    pub fn watch(&self, group: Option<u32>) {
        let mut process = self.process.borrow_mut();
        if let Some(pipe) = &mut process.stdin {
            // Without the watchdog, trials end as well as the lab lets them.
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

/// What the process itself does.
pub fn run() {
    let mut group = None;
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        group = line.parse().ok().and_then(Pid::from_raw);
    }
    if let Some(group) = group {
        // It may have ended in the same moment, which is what we want.
        let _ = kill_process_group(group, Signal::KILL);
    }
}
