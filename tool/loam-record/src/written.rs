//! The trace of a process that runs already, of which only a sample is seen: memory that came and
//! went, and the stacks under which it came (`growth`, `probes`).

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use loam_format::trace::{
    AllocFamily, Clock, End, Ended, Event, FreeFamily, Header, How, Named, Process, Record, Stack,
    Statistics, Stay, Stream, Writer,
};
use loam_process::allocator;
use loam_process::code::{Checksums, Same};
use loam_process::mappings;
use loam_process::process::Pid;
use loam_process::rings::now;
use loam_process::sites::{Change, Sites};
use loam_process::symbols::Symbols;

use crate::describe;
use crate::sample;
use crate::stacks::Frames;
use crate::stays::Sum;

/// How often the process is looked at, and the file written.
const LOOK: Duration = Duration::from_millis(100);
const FLUSH: Duration = Duration::from_secs(2);

/// The trace that is being written.
#[derive(Debug)]
pub struct Written {
    writer: Writer<File>,
    stream: Stream,
    pid: Pid,
    process: Process,
    began: u64,
    ticks: u64,
    threads: HashMap<Pid, u32>,
    frames: Frames,
    symbols: Symbols,
    /// The innermost frames of sites.
    sites: HashMap<usize, Option<u64>>,
    looked: Instant,
    flushed: Instant,
}

impl Written {
    /// Whether the file has reached its largest size.
    pub fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// Why a recording ends whose file is full.
    pub fn full() -> (Ended, String) {
        let why = "the file has reached its --max-size";
        (Ended::Running, why.to_owned())
    }

    /// Begins a trace that says of itself what it is a sample of.
    pub fn begin(
        file: File,
        pid: Pid,
        words: &[String],
        sampled: &str,
        most: Option<u64>,
    ) -> Result<Written> {
        let began = now();
        let header = Header {
            stack_bytes: 1,
            weighted: true,
            sampled: sampled.to_owned(),
            clock: Clock::default(),
            ..describe::header(words)
        };
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let found = mappings::read_names(pid).unwrap_or_default();
        let process = Process {
            pid: pid as u32,
            how: How::Attach,
            program: program.to_string_lossy().into_owned(),
            arguments: words.to_vec(),
            allocator: allocator::of_process(pid, &found, false)
                .map_or(String::new(), |one| one.name),
            ..Process::default()
        };
        let mut writer = Writer::new(file, &header)?;
        writer.bound(most);
        let stream = writer.process(&process)?;
        Ok(Written {
            writer,
            stream,
            pid,
            process,
            began,
            ticks: rustix::param::clock_ticks_per_second().max(1),
            threads: HashMap::new(),
            frames: Frames::default(),
            symbols: Symbols::of_process(pid),
            sites: HashMap::new(),
            looked: Instant::now(),
            flushed: Instant::now(),
        })
    }

    /// Writes changes.
    pub fn take(&mut self, changes: &[Change], sites: &Sites) -> Result<()> {
        for change in changes {
            match change {
                Change::Gone { time, address } => {
                    let event = Event::Free {
                        family: FreeFamily::Free,
                        address: *address,
                        size: 0,
                        touched: None,
                    };
                    self.push(*time, self.pid, event)?;
                }
                Change::Grown(grown) => {
                    let event = Event::Allocate {
                        family: AllocFamily::Malloc,
                        address: grown.address,
                        size: grown.bytes,
                        alignment: 0,
                    };
                    let number = self.writer.events(self.stream);
                    self.push(grown.time, grown.thread, event)?;
                    let frame = self.frame(grown.site, sites)?;
                    let stack = Stack {
                        event: Some(number),
                        frame,
                        cut: Some(sites.all()[grown.site].is_cut.into()),
                        weight: Some((1000.0 * grown.weight).round() as u64),
                    };
                    self.writer.stack(self.stream, stack)?;
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, time: u64, thread: Pid, event: Event) -> Result<()> {
        let next = self.threads.len() as u32;
        let record = Record {
            time: time.saturating_sub(self.began),
            thread: *self.threads.entry(thread).or_insert(next),
            event,
        };
        Ok(self.writer.push(self.stream, &record)?)
    }

    fn frame(&mut self, site: usize, sites: &Sites) -> Result<Option<u64>> {
        if let Some(known) = self.sites.get(&site) {
            return Ok(*known);
        }
        let mut fresh = Vec::new();
        let frames = &sites.all()[site].frames;
        let number = self.frames.number(frames, u64::from, &mut fresh);
        for frame in fresh {
            self.writer.frame(self.stream, frame)?;
        }
        self.sites.insert(site, number);
        Ok(number)
    }

    /// Takes what the blocks are that stay.
    pub fn know(&mut self, sums: &[Sum], sites: &Sites) -> Result<()> {
        for sum in sums {
            let stay = Stay {
                frame: self.frame(sum.site, sites)?,
                cut: sites.all()[sum.site].is_cut,
                kind: sum.kind.clone(),
                blocks: sum.blocks,
                bytes: sum.bytes,
                error: sum.error(),
            };
            self.process.stays.push(stay);
        }
        Ok(())
    }

    /// From time to time: a sample of the process, and what is written.
    pub fn look(&mut self) -> Result<()> {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if let Some(mut sample) = sample::cheap(self.pid, self.ticks) {
                sample.time = Some(now().saturating_sub(self.began));
                self.writer.sample(self.stream, sample)?;
            }
        }
        if self.flushed.elapsed() >= FLUSH {
            self.flushed = Instant::now();
            self.writer.flush()?;
        }
        Ok(())
    }

    /// Names functions in files that nobody will find under their paths: those of a container, and
    /// those that were deleted or replaced. And code that the process made itself.
    fn name(&mut self, sites: &Sites) {
        let frames = sites.all().iter().flat_map(|site| &site.frames);
        let places: BTreeSet<(u32, u64)> = frames
            .filter_map(|place| Some((place.module?, place.address)))
            .collect();
        let mut is_here: HashMap<u32, bool> = HashMap::new();
        for (number, address) in places {
            let module = &mut self.process.modules[number as usize];
            let is_here = *is_here
                .entry(number)
                .or_insert_with(|| matches!(Same::of(module), Some(Same::Yes | Same::Unsaid)));
            if !is_here {
                let found = self.symbols.at(module, address);
                module.names.extend(found.into_iter().map(|function| Named {
                    address,
                    name: function.name,
                    file: function.file,
                    line: function.line,
                }));
            }
        }
    }

    /// Ends the trace. `lost`: samples that are missing in it.
    pub fn end(
        mut self,
        sites: &Sites,
        lost: u64,
        reason: Option<(Ended, String)>,
    ) -> Result<Statistics> {
        let mut checksums = Checksums::default();
        self.process.modules = sites.modules().to_vec();
        for module in &mut self.process.modules {
            if module.build_id.is_none() {
                let checksum = checksums.of(self.pid, &module.path);
                module.checksum = checksum.and_then(|checksum| checksum.wait());
            }
        }
        self.name(sites);
        self.writer.update(self.stream, &self.process)?;
        let (ended, reason) = match reason {
            Some((ended, reason)) => (ended, Some(reason)),
            None => (Ended::Running, None),
        };
        let end = End {
            ended,
            at: now().saturating_sub(self.began),
            dropped: lost,
            reason,
            ..End::default()
        };
        self.writer.end(self.stream, end)?;
        let (_, statistics) = self
            .writer
            .finish()
            .context("the trace can not be written")?;
        Ok(statistics)
    }
}
