//! Under which stacks a heap grows, watched on a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{anyhow, Result};

use loam_lab::traces::paths::Path;
use loam_process::growth::Growth;
use loam_process::process::Pid;

use crate::{growth, paths};

/// A thread that reads the samples.
#[derive(Debug)]
pub struct Grower {
    pid: Pid,
    is_to_end: Arc<AtomicBool>,
    thread: JoinHandle<Growth>,
    begun: Instant,
}

/// What it found.
#[derive(Debug)]
pub struct Grown {
    /// The call paths, those with the most bytes first.
    pub paths: Vec<Path>,
    /// By how much the heap grew, if the process lives on.
    pub total: Option<u64>,
    /// For how long it was watched.
    pub seconds: f64,
    /// What was not seen.
    pub gaps: Vec<String>,
}

impl Grower {
    /// Begins.
    pub fn begin(pid: Pid) -> Result<Grower> {
        let mut growth = growth::begin(pid)?;
        let is_to_end = Arc::new(AtomicBool::new(false));
        let ends = is_to_end.clone();
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) && !growth.is_over() {
                growth.pass();
                growth.wait();
            }
            growth.end();
            growth
        });
        Ok(Grower {
            pid,
            is_to_end,
            thread,
            begun: Instant::now(),
        })
    }

    /// Ends it.
    pub fn end(self) -> Result<Grown> {
        self.is_to_end.store(true, Ordering::Relaxed);
        let growth = self.thread.join();
        let mut growth =
            growth.map_err(|_| anyhow!("the watch of page faults failed; please report it"))?;
        let seconds = self.begun.elapsed().as_secs_f64();
        let bytes = |at: usize| growth.sites().all()[at].bytes;
        let paths = paths::of(self.pid, growth.sites(), bytes);
        Ok(Grown {
            paths,
            total: growth.total().ok(),
            seconds,
            gaps: growth::gaps(&growth),
        })
    }
}
