//! A process that runs already, on any allocator: under which stacks its heap grows. A page that came is a block of the
//! trace, and a page that went is a free.
//!
//! One thread reads the kernel's samples and writes the trace. Nothing of the process waits for it: samples that come too
//! fast are lost, counted, and told.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{bail, Context, Result};

use loam_format::trace::{
    AllocFamily, Clock, End, Ended, Event, FreeFamily, Header, How, Named, Process, Record, Stack,
    Statistics, Stream, Writer,
};
use loam_format::units::bytes;
use loam_lab::machine;
use loam_process::allocator;
use loam_process::code::{Checksums, Same};
use loam_process::growth::{Change, Growth};
use loam_process::mappings;
use loam_process::perf::rights::Rights;
use loam_process::process::{Pid, Stat};
use loam_process::rings::now;
use loam_process::symbols::Symbols;

use super::args::RecordOptions;
use super::progress::Progress;
use super::stacks::Frames;
use super::target::Target;
use super::{describe, name_of, sample};
use crate::ending::Watch;
use crate::exit::{Coded, Exit};
use crate::output;

/// How often the process is looked at, and the file written.
const LOOK: Duration = Duration::from_millis(100);
const FLUSH: Duration = Duration::from_secs(2);
/// What the trace says of itself.
const SAMPLED: &str = "each block is memory that came to the heap, seen by page faults";

/// Runs the verb.
pub fn record(options: &RecordOptions, pid: Pid, limit: Option<Duration>) -> Result<Exit> {
    let target = Target::open(options)?;
    let mut growth = begin(pid)?;
    let words = describe::words_of(pid);
    let name = words.first().map(|word| name_of(word.as_ref()));
    let ending = Watch::each_signal().begin()?;
    let (file, path) = target.settle(&name.unwrap_or_default(), pid as u32)?;
    let mut written = Written::begin(file, pid, &words, options.max_size)?;
    let progress = Progress::begin();
    progress.tell(&format!(
        "loam: recording under which stacks the heap of process {pid} grows, by its page faults; the process is not \
         changed; Ctrl-C ends it"
    ));
    let started = Stat::read(pid)?.started;
    let begun = Instant::now();
    let reason = loop {
        let changes = growth.pass();
        written.take(&changes, &growth)?;
        written.look()?;
        if !ending.take_signals().is_empty() || limit.is_some_and(|limit| begun.elapsed() >= limit)
        {
            break None;
        }
        let stat = Stat::read(pid);
        if !stat.is_ok_and(|stat| stat.started == started && !stat.is_dead()) {
            break Some((Ended::Unknown, "the process ended".to_owned()));
        }
        if growth.is_over() {
            break Some((Ended::Exec, "the process became another program".to_owned()));
        }
        if written.writer.is_full() {
            break Some((
                Ended::Running,
                "the file has reached its --max-size".to_owned(),
            ));
        }
        growth.wait();
    };
    let seconds = begun.elapsed().as_secs_f64();
    // The pages of a process that is gone are gone too; those of the last check count.
    let changes = match &reason {
        Some((Ended::Unknown | Ended::Exec, _)) => Vec::new(),
        _ => growth.end(),
    };
    written.take(&changes, &growth)?;
    let total = growth
        .total()
        .ok()
        .filter(|_| !matches!(&reason, Some((Ended::Unknown | Ended::Exec, _))));
    let statistics = written.end(&growth, reason.clone())?;
    progress.end();
    if let Some((_, reason)) = &reason {
        output::print_warning(&format!("recording ended early: {reason}"));
    }
    let shown = output::path(&path);
    output::say(&summary(&growth, total, seconds, &shown, &statistics));
    for line in gaps(&growth) {
        output::say(&format!("loam: {line}"));
    }
    Ok(Exit::Done)
}

/// Begins to watch a process, or says which right is missing.
pub fn begin(pid: Pid) -> Result<Growth> {
    match Stat::read(pid) {
        Ok(stat) if !stat.is_dead() => {}
        _ => bail!("there is no process {pid}"),
    }
    let rights = Rights::over(pid);
    let refused = |why: String| Coded {
        exit: Exit::Error,
        message: format!("the growth of process {pid} can not be seen: {why}"),
    };
    if let Some(why) = rights.refuses_faults() {
        return Err(refused(why).into());
    }
    Ok(Growth::begin(pid).map_err(|error| refused(rights.explain(&error)))?)
}

fn summary(
    growth: &Growth,
    total: Option<u64>,
    seconds: f64,
    shown: &str,
    statistics: &Statistics,
) -> String {
    let seen: f64 = growth.sites().iter().map(|site| site.bytes.max(0.0)).sum();
    let came = match total {
        Some(total) => format!("{} came to the heap in {seconds:.0} s", bytes(total as f64)),
        None => format!("the heap was watched for {seconds:.0} s"),
    };
    let stacks = growth
        .sites()
        .iter()
        .filter(|site| site.bytes > 0.0)
        .count();
    format!(
        "loam: {came}; {} of it came under {stacks} stacks (from {} samples), in {}: {shown}; next: loam trace info {}",
        bytes(seen),
        growth.samples().0,
        bytes(statistics.file_bytes as f64),
        loam_format::plain::word(shown)
    )
}

/// What was not seen, in sentences.
pub fn gaps(growth: &Growth) -> Vec<String> {
    let mut lines = Vec::new();
    let (_, lost) = growth.samples();
    if lost > 0 {
        lines.push(format!(
            "{lost} samples came too fast and were lost; {} count for the stack of the page before",
            bytes(growth.filled() as f64)
        ));
    }
    if let Some(share) = growth.share() {
        lines.push(format!(
            "page faults came so fast that only a part of the time was sampled, to keep the cost small, at last {:.1} %; \
             bytes are estimates",
            100.0 * share
        ));
    }
    if !growth.sees_kernel() {
        lines.push(
            "memory that the kernel filled first (read() into a fresh buffer) was not seen; that needs CAP_PERFMON"
                .to_owned(),
        );
    }
    lines
}

/// The trace that is being written.
struct Written {
    writer: Writer<File>,
    stream: Stream,
    pid: Pid,
    process: Process,
    began: u64,
    ticks: u64,
    threads: HashMap<Pid, u32>,
    frames: Frames,
    /// The innermost frames of sites.
    sites: HashMap<usize, Option<u64>>,
    looked: Instant,
    flushed: Instant,
}

impl Written {
    fn begin(file: File, pid: Pid, words: &[String], most: Option<u64>) -> Result<Written> {
        let began = now();
        let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let header = Header {
            stack_bytes: 1,
            weighted: true,
            sampled: SAMPLED.to_owned(),
            clock: Clock::default(),
            ..describe::header(&machine::current(), words, started)
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
            sites: HashMap::new(),
            looked: Instant::now(),
            flushed: Instant::now(),
        })
    }

    fn take(&mut self, changes: &[Change], growth: &Growth) -> Result<()> {
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
                    let frame = self.frame(grown.site, growth)?;
                    let stack = Stack {
                        event: Some(number),
                        frame,
                        cut: Some(growth.sites()[grown.site].is_cut.into()),
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

    fn frame(&mut self, site: usize, growth: &Growth) -> Result<Option<u64>> {
        if let Some(known) = self.sites.get(&site) {
            return Ok(*known);
        }
        let mut fresh = Vec::new();
        let frames = &growth.sites()[site].frames;
        let number = self.frames.number(frames, u64::from, &mut fresh);
        for frame in fresh {
            self.writer.frame(self.stream, frame)?;
        }
        self.sites.insert(site, number);
        Ok(number)
    }

    /// From time to time: a sample of the process, and what is written.
    fn look(&mut self) -> Result<()> {
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

    /// Names functions in files that nobody will find under their paths: those of a container, and those that were
    /// deleted or replaced.
    fn name(&mut self, growth: &Growth) {
        let mut symbols = Symbols::of_process(self.pid);
        let frames = growth.sites().iter().flat_map(|site| &site.frames);
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
                let found = symbols.at(module, address);
                module.names.extend(found.into_iter().map(|function| Named {
                    address,
                    name: function.name,
                    file: function.file,
                    line: function.line,
                }));
            }
        }
    }

    fn end(mut self, growth: &Growth, reason: Option<(Ended, String)>) -> Result<Statistics> {
        let mut checksums = Checksums::default();
        self.process.modules = growth.modules().to_vec();
        for module in &mut self.process.modules {
            if module.build_id.is_none() {
                let checksum = checksums.of(self.pid, &module.path);
                module.checksum = checksum.and_then(|checksum| checksum.wait());
            }
        }
        self.name(growth);
        self.writer.update(self.stream, &self.process)?;
        let (ended, reason) = match reason {
            Some((ended, reason)) => (ended, Some(reason)),
            None => (Ended::Running, None),
        };
        let end = End {
            ended,
            at: now().saturating_sub(self.began),
            dropped: growth.samples().1,
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
