//! Under which stacks a process's heap grows: by its page faults, each with a stack, on any
//! allocator and without a change of the process.
//!
//! ```text
//! begin   which pages of the heap are resident            (the baseline)
//! pass    faults on other pages -> the stack of each      -> Grown
//! check   pages that are resident no more                 -> Gone
//!         pages whose sample was lost                     -> the stack of the page before
//! ```
//!
//! The heap is private anonymous memory that is no thread's stack. A page of the baseline that
//! comes and goes is no growth. What grows within pages that were resident before is not seen: no
//! fault tells of it.
//!
//! **Cost.** A sample takes the process `SAMPLE`. If samples take more than `SHARE` of the
//! process's time and a credit of `CREDIT`, they are taken in a share of all slices of time, which
//! are chosen at random. A fault then stands for `1 / share` faults. The share is chosen before its
//! slices, so sums have no bias.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use crate::mappings::{self, Mapping};
use crate::pagemap::Pagemap;
use crate::perf::{self, Sample};
use crate::probes::Faults;
use crate::process::{Pid, Stat};
use crate::python::calls;
use crate::rings::CopiedStack;
use crate::sites::{Change, Grown, Sites};
use crate::stacks;

/// Bytes of a page.
pub const PAGE: u64 = 4_096;
/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;
/// Pages of a huge page.
const PAGES: u64 = HUGE / PAGE;
/// What a sample costs the process. Measured: 1.9 us with 20 KiB of stack, and up to 4 us on a busy
/// machine (docs/attach.md).
const SAMPLE: Duration = Duration::from_nanos(3_000);
/// Samples may take one part in so many of the process's time, or of a tenth of a processor's.
const SHARE: u32 = 50;
const LEAST: u32 = 10;
/// What samples may take beyond that, once: the faults of some 130 MiB. A short burst is seen
/// whole.
const CREDIT: Duration = Duration::from_millis(100);
/// How long a slice of time is, in which samples are taken or not.
const SLICE: Duration = Duration::from_millis(10);
/// How long samples may wait to be read.
const PASS: Duration = Duration::from_millis(5);
/// How often pages are looked at that came, and the share is chosen anew.
const CHECK: Duration = Duration::from_secs(1);
/// A check may take one part in so many of the time.
const CHECKS: u32 = 50;
/// The mappings are read again for an address that lies in none, but no more often. So long its
/// sample waits.
const REFRESH: Duration = Duration::from_millis(20);
/// Bytes of samples that wait. Chosen: with the rings the tool stays below 200 MB.
const MOST_QUEUED: usize = 32 << 20;
/// For so long samples are taken before the rings are read again. Chosen: 300 faults at memory's
/// speed, half a ring.
const TURN: Duration = Duration::from_millis(1);
/// A stack's red zone, and how far below its pointer a thread may touch it.
const BELOW: u64 = 256 << 10;
/// A page without a sample belongs to a page with one if it lies at most so many pages behind it.
const NEAR: u64 = 8 * PAGES;
/// The most pages that are remembered. Then the share is halved, and half of the pages are
/// forgotten.
const MOST_PAGES: usize = 1 << 20;

/// Pages that came: what they are, by the number of the first.
#[derive(Debug, Clone, Copy)]
struct Came {
    site: u32,
    pages: u32,
    weight: f32,
}

/// Watches a process.
#[derive(Debug)]
pub struct Growth {
    pid: Pid,
    threads: perf::Threads,
    /// Which Python functions fault, if the process has some and the rights suffice.
    python: Option<Faults>,
    pagemap: Pagemap,
    mappings: Vec<Mapping>,
    stacks_of_threads: Vec<(u64, u64)>,
    refreshed: Instant,
    /// The same as samples tell the time.
    refreshed_at: u64,
    refresh_cost: Duration,
    /// Samples that wait for the mappings, each with the faults that it stands for.
    queue: VecDeque<(Sample, f64)>,
    /// Their bytes.
    queued: usize,
    /// Whether some could have been taken if there had been time.
    has_more: bool,
    baseline: Pages,
    baseline_bytes: u64,
    came: HashMap<u64, Came>,
    sites: Sites,
    share: f64,
    /// Whether there was a time in which not all faults were sampled.
    was_partial: bool,
    slice: Instant,
    checked: Instant,
    /// Seconds that samples may take before only a share of them is taken.
    credit: f64,
    /// What checks take.
    check_cost: Duration,
    samples: u64,
    samples_before: u64,
    spent_before: Duration,
    lost: u64,
    /// Samples that were lost when pages without a sample were looked for last.
    lost_before: u64,
    /// Pages that got their stack from the page before.
    filled: u64,
    random: fastrand::Rng,
    is_over: bool,
}

/// A set of pages: bits by huge page.
#[derive(Debug, Default)]
struct Pages(HashMap<u64, [u64; (PAGES / 64) as usize]>);

impl Pages {
    fn add(&mut self, page: u64) {
        let bits = self.0.entry(page / PAGES).or_default();
        bits[(page % PAGES / 64) as usize] |= 1 << (page % 64);
    }

    fn has(&self, page: u64) -> bool {
        let bits = self.0.get(&(page / PAGES));
        bits.is_some_and(|bits| bits[(page % PAGES / 64) as usize] & 1 << (page % 64) != 0)
    }
}

impl Growth {
    /// Begins.
    pub fn begin(pid: Pid) -> io::Result<Growth> {
        let python = Faults::of(pid);
        let program = python.as_ref().map(Faults::program);
        let mut threads = perf::Threads::page_faults(pid, program)?;
        let pagemap = Pagemap::open(pid)?;
        // Before the baseline is read: a page that comes meanwhile is in both, and then it is not
        // growth.
        threads.switch(true)?;
        let now = Instant::now();
        let mut growth = Growth {
            pid,
            threads,
            pagemap,
            mappings: Vec::new(),
            stacks_of_threads: Vec::new(),
            refreshed: now,
            refreshed_at: 0,
            refresh_cost: Duration::ZERO,
            queue: VecDeque::new(),
            queued: 0,
            has_more: false,
            baseline: Pages::default(),
            baseline_bytes: 0,
            came: HashMap::new(),
            sites: Sites::of(pid, python.as_ref().map(Faults::interpreter)),
            python,
            share: 1.0,
            was_partial: false,
            slice: now,
            checked: now,
            credit: CREDIT.as_secs_f64(),
            check_cost: Duration::ZERO,
            samples: 0,
            samples_before: 0,
            spent_before: spent(pid),
            lost: 0,
            lost_before: 0,
            filled: 0,
            random: fastrand::Rng::new(),
            is_over: false,
        };
        growth.refresh();
        let mut pages = Pages::default();
        growth.resident(|page| pages.add(page))?;
        growth.baseline_bytes = PAGE
            * pages
                .0
                .values()
                .flatten()
                .map(|bits| u64::from(bits.count_ones()))
                .sum::<u64>();
        growth.baseline = pages;
        Ok(growth)
    }

    /// Waits for samples.
    pub fn wait(&self) {
        if !self.has_more {
            self.threads.wait(PASS);
        }
    }

    /// Reads the samples that there are. Call it after each [`Growth::wait`].
    pub fn pass(&mut self) -> Vec<Change> {
        let mut samples = Vec::new();
        self.is_over |= !self.threads.drain(&mut samples);
        if let Some(python) = &mut self.python {
            python.tell(&mut samples);
        }
        let weight = 1.0 / self.share;
        self.samples += samples.len() as u64;
        for sample in samples {
            // A tool that falls behind loses samples, and does not grow.
            if self.queued > 2 * MOST_QUEUED {
                self.lost += 1;
                continue;
            }
            self.queued += size(&sample);
            self.queue.push_back((sample, weight));
        }
        let mut changes = Vec::new();
        self.take_queue(TURN, &mut changes);
        self.lost += self.threads.take_lost();
        let wait = CHECK.max(self.check_cost * CHECKS);
        if self.checked.elapsed() >= wait {
            self.check(&mut changes);
            if self.lost > self.lost_before {
                self.fill(&mut changes);
            }
            self.choose();
            // Threads that end meanwhile are no error.
            let _ = self.threads.find();
        }
        if self.share < 1.0 && self.slice.elapsed() >= SLICE {
            self.slice = Instant::now();
            let on = self.random.f64() < self.share;
            self.is_over |= self.threads.switch(on).is_err();
        }
        changes
    }

    /// Ends it: a last pass and a last look at the pages.
    pub fn end(&mut self) -> Vec<Change> {
        let _ = self.threads.switch(false);
        self.checked = Instant::now();
        self.refresh();
        let mut changes = self.pass();
        self.take_queue(Duration::MAX, &mut changes);
        self.check(&mut changes);
        self.fill(&mut changes);
        changes
    }

    /// Whether the process became another program.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The stacks, with what came under each and is still there.
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// Samples that were taken, and those that were lost because they came too fast.
    pub fn samples(&self) -> (u64, u64) {
        (self.samples, self.lost)
    }

    /// Bytes that came without a sample, and count for the stack of the page before.
    pub fn filled(&self) -> u64 {
        self.filled * PAGE
    }

    /// The share of the time in which samples are taken now, if that was not always all of it.
    pub fn share(&self) -> Option<f64> {
        self.was_partial.then_some(self.share)
    }

    /// Whether faults of the kernel on the process's behalf are seen.
    pub fn sees_kernel(&self) -> bool {
        self.threads.sees_kernel()
    }

    /// By how many bytes the heap is larger now than at the beginning. Pages of the baseline that
    /// went are not counted.
    pub fn total(&mut self) -> io::Result<u64> {
        self.refresh();
        let mut fresh = 0;
        self.resident(|page| fresh += u64::from(!self.baseline.has(page)))?;
        Ok(fresh * PAGE)
    }

    /// Resident bytes of the heap at the beginning.
    pub fn baseline(&self) -> u64 {
        self.baseline_bytes
    }

    /// Tells the number of each page of the heap that is in memory or swapped out.
    fn resident(&self, mut tell: impl FnMut(u64)) -> io::Result<()> {
        for mapping in self.mappings.iter().filter(|mapping| may_be_heap(mapping)) {
            let looked = self.pagemap.used(mapping.start, mapping.end, |start, end| {
                let pages = start / PAGE..end / PAGE;
                pages
                    .filter(|page| !self.is_stack(page * PAGE))
                    .for_each(&mut tell);
            });
            // It may have gone meanwhile.
            if let Err(error) = looked {
                if Stat::read(self.pid).map_or(true, |stat| stat.is_dead()) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes samples in order, for so long, and up to one whose mapping is not known and may not be
    /// asked for yet.
    fn take_queue(&mut self, limit: Duration, changes: &mut Vec<Change>) {
        let begun = Instant::now();
        self.has_more = false;
        while let Some((sample, _)) = self.queue.front() {
            if begun.elapsed() >= limit {
                self.has_more = true;
                return;
            }
            // What was unknown when the mappings were read later is gone.
            if !self.is_known(sample.address) && sample.time >= self.refreshed_at {
                let wait = REFRESH.max(self.refresh_cost * CHECKS);
                if self.refreshed.elapsed() >= wait {
                    self.refresh();
                } else if self.queued <= MOST_QUEUED {
                    return;
                }
            }
            if let Some((sample, weight)) = self.queue.pop_front() {
                self.queued -= size(&sample);
                self.take(sample, weight, changes);
            }
        }
    }

    fn take(&mut self, sample: Sample, weight: f64, changes: &mut Vec<Change>) {
        let Some(stack) = sample.stack else { return };
        let page = sample.address / PAGE;
        if self.baseline.has(page) || !self.is_heap(sample.address, &stack) {
            return;
        }
        let (first, pages) = self.extent(page);
        let known = self.came.get(&first);
        // A fault within a huge page that came already: another thread was as fast.
        if pages > 1 && known.is_some_and(|known| u64::from(known.pages) == pages) {
            return;
        }
        let site = self.sites.number(&stack);
        let came = Came {
            site: site as u32,
            pages: pages as u32,
            weight: weight as f32,
        };
        for page in first..first + pages {
            // It was given back, and came again.
            if let Some(before) = self.came.remove(&page) {
                self.count(before, -1.0);
                changes.push(Change::Gone {
                    time: sample.time,
                    address: page * PAGE,
                });
            }
        }
        self.came.insert(first, came);
        self.count(came, 1.0);
        changes.push(Change::Grown(Grown {
            time: sample.time,
            thread: sample.thread,
            address: first * PAGE,
            bytes: pages * PAGE,
            site,
            weight,
        }));
    }

    fn count(&mut self, came: Came, sign: f64) {
        let bytes = (u64::from(came.pages) * PAGE) as f64 * f64::from(came.weight);
        self.sites.add(came.site as usize, sign * bytes);
    }

    /// The first page, and how many came: 512 if the page is part of a huge one.
    fn extent(&self, page: u64) -> (u64, u64) {
        let first = page / PAGES * PAGES;
        let ends = [(first + PAGES) * PAGE];
        let held = self.pagemap.held(first * PAGE, &ends);
        let is_huge = held.is_some_and(|held| held.first().is_some_and(|held| held.huge == HUGE));
        // A huge page that the kernel made of pages of the baseline came one by one.
        let is_fresh = (first..first + PAGES).all(|page| !self.baseline.has(page));
        match is_huge && is_fresh {
            true => (first, PAGES),
            false => (page, 1),
        }
    }

    fn is_heap(&self, address: u64, stack: &CopiedStack) -> bool {
        let pointer = stack.registers.stack;
        let Some(mapping) = mappings::at(&self.mappings, address) else {
            return false;
        };
        // A thread's own stack grows downwards. A fiber's stack lies in a block, and is heap.
        let is_near =
            (pointer.saturating_sub(BELOW)..pointer.saturating_add(BELOW)).contains(&address);
        may_be_heap(mapping) && !(self.is_stack(address) || is_near && mapping.contains(pointer))
    }

    /// Whether it is known what lies there. What was reserved without access when the mappings were
    /// read is the heap's by now, if there was a fault.
    fn is_known(&self, address: u64) -> bool {
        let found = mappings::at(&self.mappings, address);
        found.is_some_and(|mapping| mapping.writable || mapping.inode != 0)
    }

    fn is_stack(&self, address: u64) -> bool {
        let behind = self
            .stacks_of_threads
            .partition_point(|(start, _)| *start <= address);
        behind > 0 && address < self.stacks_of_threads[behind - 1].1
    }

    fn refresh(&mut self) {
        let begun = Instant::now();
        self.refreshed_at = crate::rings::now();
        if let Ok(mappings) = mappings::read_names(self.pid) {
            self.stacks_of_threads = stacks::Threads::of(self.pid).stacks(&mappings).ranges;
            self.mappings = mappings;
        }
        self.refreshed = Instant::now();
        self.refresh_cost = begun.elapsed();
    }

    /// Which pages that came are there no more.
    fn check(&mut self, changes: &mut Vec<Change>) {
        let begun = Instant::now();
        let mut blocks: HashMap<u64, [u64; (PAGES / 64) as usize]> = HashMap::new();
        let pagemap = &self.pagemap;
        let mut gone = Vec::new();
        for (page, came) in &self.came {
            let bits = blocks.entry(page / PAGES).or_insert_with(|| {
                let mut bits = [0; (PAGES / 64) as usize];
                let mut at = 0;
                let first = page / PAGES * PAGES;
                let _ = pagemap.look(first, PAGES, |is_resident| {
                    bits[at / 64] |= u64::from(is_resident) << (at % 64);
                    at += 1;
                });
                bits
            });
            let is_there = match came.pages {
                1 => bits[(page % PAGES / 64) as usize] & 1 << (page % 64) != 0,
                _ => bits.iter().any(|bits| *bits != 0),
            };
            if !is_there {
                gone.push(*page);
            }
        }
        gone.sort_unstable();
        let time = crate::rings::now();
        for page in gone {
            if let Some(came) = self.came.remove(&page) {
                self.count(came, -1.0);
                changes.push(Change::Gone {
                    time,
                    address: page * PAGE,
                });
            }
        }
        self.checked = Instant::now();
        self.check_cost = begun.elapsed();
    }

    /// Gives pages that came without a sample to the stack of the page before them: samples come
    /// too fast in a burst, in which memory is taken in the order of addresses. While not all
    /// faults are sampled, pages without a sample are what the others stand for.
    fn fill(&mut self, changes: &mut Vec<Change>) {
        // Where none was lost, pages without a sample came without a fault (MADV_POPULATE_WRITE):
        // nobody knows under which stack.
        let lost = self.lost - std::mem::replace(&mut self.lost_before, self.lost);
        if self.was_partial || lost == 0 {
            return;
        }
        let begun = Instant::now();
        self.refresh();
        let mut known: Vec<(u64, Came)> = self
            .came
            .iter()
            .map(|(page, came)| (*page, *came))
            .collect();
        known.sort_unstable_by_key(|(page, _)| *page);
        let mut known = known.into_iter().peekable();
        let mut last: Option<(u64, Came)> = None;
        let mut found: Vec<(u64, u32)> = Vec::new();
        let looked = self.resident(|page| {
            while let Some(next) = known.next_if(|(at, _)| *at <= page) {
                last = Some(next);
            }
            if self.baseline.has(page) {
                return;
            }
            if let Some((at, came)) = last {
                let behind = at + u64::from(came.pages);
                if page >= behind && page < behind + NEAR {
                    found.push((page, came.site));
                }
            }
        });
        let time = crate::rings::now();
        if looked.is_err() {
            found.clear();
        }
        for (page, site) in found {
            let came = Came {
                site,
                pages: 1,
                weight: 1.0,
            };
            self.came.insert(page, came);
            self.count(came, 1.0);
            self.filled += 1;
            changes.push(Change::Grown(Grown {
                time,
                thread: self.pid,
                address: page * PAGE,
                bytes: PAGE,
                site: site as usize,
                weight: 1.0,
            }));
        }
        self.check_cost += begun.elapsed();
    }

    /// Chooses the share of the time in which samples are taken.
    fn choose(&mut self) {
        let spent = spent(self.pid);
        let samples = self.samples + self.lost - self.samples_before;
        let took = SAMPLE * u32::try_from(samples).unwrap_or(u32::MAX);
        let own = spent.saturating_sub(self.spent_before).max(CHECK / LEAST);
        (self.spent_before, self.samples_before) = (spent, self.samples + self.lost);
        let allowed = (own / SHARE).as_secs_f64();
        let credit = self.credit + allowed - took.as_secs_f64();
        self.credit = credit.min(CREDIT.as_secs_f64());
        let next = match took.as_secs_f64() {
            _ if self.credit >= 0.0 => 1.0,
            took if took > 0.0 => (self.share * allowed / took).min(2.0 * self.share),
            _ => 2.0 * self.share,
        };
        let next = match self.came.len() >= MOST_PAGES {
            true => next.min(self.share / 2.0),
            false => next,
        };
        self.share = next.clamp(1e-4, 1.0);
        self.was_partial |= self.share < 1.0;
        if self.share >= 1.0 {
            self.is_over |= self.threads.switch(true).is_err();
        }
    }
}

fn size(sample: &Sample) -> usize {
    let stack = sample.stack.as_ref();
    let of_stack = |stack: &CopiedStack| {
        stack.bytes.len() + size_of::<calls::Frame>() * stack.python.frames.len()
    };
    size_of::<Sample>() + stack.map_or(0, of_stack)
}

/// The processor time of a process.
fn spent(pid: Pid) -> Duration {
    let ticks = Stat::read(pid).map_or(0, |stat| stat.cpu_ticks);
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

fn may_be_heap(mapping: &Mapping) -> bool {
    mapping.writable
        && !mapping.shared
        && mapping.inode == 0
        && (mapping.name.is_empty()
            || mapping.name == "[heap]"
            || mapping.name.starts_with("[anon:"))
}
