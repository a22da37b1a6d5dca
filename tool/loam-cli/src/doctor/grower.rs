//! Under which stacks the heap grows while the doctor watches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{anyhow, Result};

use loam_format::units::bytes;
use loam_lab::traces::paths::{self, Path};
use loam_lab::traces::stacks::{Estimate, Place, Site, Stacks};
use loam_process::growth::Growth;
use loam_process::process::Pid;
use loam_process::symbols::Symbols;

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
        let sites = growth.sites().iter().map(|site| Site {
            frames: site
                .frames
                .iter()
                .map(|place| Place {
                    module: place.module.map(|module| module as usize),
                    address: place.address,
                })
                .collect(),
            is_cut: site.is_cut,
            ..Site::default()
        });
        let stacks = Stacks {
            mean: 1,
            modules: growth.modules().to_vec(),
            sites: sites.collect(),
        };
        let mut symbols = Symbols::of_process(self.pid);
        let bytes = |at: usize, _: &Site| Estimate::exactly(growth.sites()[at].bytes);
        let mut paths = paths::of(&stacks, &mut symbols, bytes);
        paths.retain(|path| path.bytes >= 0.5);
        Ok(Grown {
            paths,
            total: growth.total().ok(),
            seconds,
            gaps: growth::gaps(&growth),
        })
    }
}

/// How many paths are shown, and how many functions of each; the JSON has all.
const PATHS: usize = 5;
/// The function is named through which this part came, and that is the nearest to the allocation.
const MOST: f64 = 0.8;
const FUNCTIONS: usize = 8;

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
        if let Some((function, share)) = paths::common(&self.paths, MOST) {
            text += &format!(
                "\n  {:.0} % of it came through {}\n",
                100.0 * share,
                loam_format::plain::line(function)
            );
        }
        for path in self.paths.iter().take(PATHS) {
            text += &format!("\n  {}\n", bytes(path.bytes));
            for name in path.functions.iter().take(FUNCTIONS) {
                text += &format!("    {}\n", loam_format::plain::line(name));
            }
            if path.functions.len() > FUNCTIONS {
                text += &format!("    ... {} more\n", path.functions.len() - FUNCTIONS);
            }
        }
        if self.paths.len() > PATHS {
            let rest: f64 = self.paths[PATHS..].iter().map(|path| path.bytes).sum();
            text += &format!(
                "\n  {} under {} other paths\n",
                bytes(rest),
                self.paths.len() - PATHS
            );
        }
        // Huge pages that the kernel made later, and faults that were lost.
        if total - seen > 0.1 * total && self.total.is_some() {
            text += &format!("\n  {} without a stack\n", bytes(total - seen));
        }
        text
    }
}
