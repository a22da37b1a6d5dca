//! Under which stacks the heap grows while the doctor watches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{anyhow, Result};

use loam_format::units::bytes;
use loam_lab::traces::paths::Path;
use loam_process::growth::Growth;
use loam_process::process::Pid;
use loam_record::paths;

use crate::record::growth;

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

/// The function is named through which this part came, and that is the nearest to the allocation.
const MOST: f64 = 0.8;

impl Grown {
    /// For people.
    pub fn text(&self) -> String {
        let seen: f64 = self.paths.iter().map(|path| path.bytes).sum();
        let total = self.total.map_or(seen, |total| total as f64);
        let mut text = format!(
            "Under these call paths {} came to the heap in {:.0} s",
            bytes(total),
            self.seconds
        );
        if self.paths.is_empty() {
            return format!(
                "No memory came to the heap in {:.0} s{}.\n",
                self.seconds,
                match self.total {
                    Some(total) if total > 0 => format!(
                        " with a page fault that was seen, though {} more are resident",
                        bytes(total as f64)
                    ),
                    _ => String::new(),
                }
            );
        }
        text += ":\n";
        if let Some((function, share)) = loam_lab::traces::paths::common(&self.paths, MOST) {
            text += &format!(
                "\n  {:.0} % of it came through {}\n",
                100.0 * share,
                loam_format::plain::line(function)
            );
        }
        text += &paths::text(&self.paths);
        // Huge pages that the kernel made later, and faults that were lost.
        if total - seen > 0.1 * total && self.total.is_some() {
            text += &format!("\n  {} without a stack\n", bytes(total - seen));
        }
        text
    }
}
