//! When the recording of a running process ends from outside: at a signal, or after a time. The
//! first signal for a program that was started here is passed on to it.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Result;

use loam_process::ending::Ending;

use crate::start;

/// What ends it.
#[derive(Debug)]
pub struct Ends {
    ending: Ending,
    begun: Instant,
    limit: Option<Duration>,
    child: Option<Child>,
    signals: u32,
}

impl Ends {
    /// For a process that is not ours.
    pub fn of_process(ending: Ending, limit: Option<Duration>) -> Ends {
        Ends {
            ending,
            begun: Instant::now(),
            limit,
            child: None,
            signals: 0,
        }
    }

    /// For a program that was started here.
    pub fn of_program(ending: Ending, child: Child) -> Ends {
        Ends {
            ending,
            begun: Instant::now(),
            limit: None,
            child: Some(child),
            signals: 0,
        }
    }

    /// Whether it is time.
    pub fn are_reached(&mut self) -> bool {
        for signal in self.ending.take_signals() {
            self.signals += 1;
            match &self.child {
                Some(child) if self.signals == 1 => start::pass_on(child, signal),
                _ => return true,
            }
        }
        self.limit
            .is_some_and(|limit| self.begun.elapsed() >= limit)
    }

    /// Waits for the program, as long as nothing else ends this; how it ended.
    pub fn wait_for_program(mut self, pause: Duration) -> Result<Option<ExitStatus>> {
        loop {
            let Some(child) = &mut self.child else {
                return Ok(None);
            };
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if self.are_reached() {
                return Ok(None);
            }
            std::thread::sleep(pause);
        }
    }
}
