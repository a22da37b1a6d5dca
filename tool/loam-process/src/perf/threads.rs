//! An event in every thread of a process, also of those that begin later.
//!
//! The kernel lets an inherited event write into a ring only if the event belongs to one processor.
//! So there is an event for each thread and processor, and a ring for each processor.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::time::Duration;

use perf_event_open_sys::bindings::{self as perf, perf_event_attr};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

use super::sample::{self, Sample, Told};
use super::system::{self, Event, Ring};
use crate::process::Pid;

/// Bytes of all rings. Chosen: the tool stays below 200 MB on any number of processors.
const ALL_RINGS: usize = 64 << 20;
/// Bytes of a ring, at most and at least. Half a MiB is what the kernel allows everybody
/// (`perf_event_mlock_kb`).
const LONGEST: usize = 16 << 20;
const SHORTEST: usize = 128 << 10;
/// A ring of which this part is full wakes the reader.
const FULL: u32 = 4;
/// Bytes of a stack that are copied. Chosen: what most programs have; deeper frames are missing.
const STACK: u32 = 24 << 10;
/// The same in the smallest rings.
const SHORT_STACK: u32 = 8 << 10;

/// Page faults of a process.
#[derive(Debug)]
pub struct Threads {
    pid: Pid,
    rings: Vec<(i32, Event, Ring)>,
    events: Vec<Event>,
    /// Threads that have an event or inherited one.
    known: HashSet<Pid>,
    attributes: perf_event_attr,
    lost: u64,
    is_on: bool,
    /// Whether faults of the kernel on the process's behalf are seen: `read()` into a fresh buffer.
    sees_kernel: bool,
    /// A program that runs at each fault, if there is one.
    program: Option<i32>,
}

impl Threads {
    /// Begins to watch page faults, which are off at first. `program`: the descriptor of one that
    /// runs at each.
    pub fn page_faults(pid: Pid, program: Option<i32>) -> io::Result<Threads> {
        raise_limit();
        let mut attributes = attributes();
        let first = first_thread(pid)?;
        let sees_kernel = match system::open(&mut attributes, first, -1) {
            Ok(_) => true,
            Err(error) if is_refused(&error) => {
                attributes.set_exclude_kernel(1);
                attributes.set_exclude_hv(1);
                system::open(&mut attributes, first, -1)?;
                false
            }
            Err(error) => return Err(error),
        };
        let mut threads = Threads {
            pid,
            rings: Vec::new(),
            events: Vec::new(),
            known: HashSet::new(),
            attributes,
            lost: 0,
            is_on: false,
            sees_kernel,
            program,
        };
        threads.map_rings()?;
        threads.find()?;
        Ok(threads)
    }

    /// Whether faults of the kernel on the process's behalf are seen.
    pub fn sees_kernel(&self) -> bool {
        self.sees_kernel
    }

    /// Samples that were lost, since the last question.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// A ring for each processor. An event in this thread that counts nothing holds it: a thread of
    /// the process may end.
    fn map_rings(&mut self) -> io::Result<()> {
        let cpus = cpus();
        let share = ALL_RINGS / cpus.len().next_power_of_two();
        let mut size = share.clamp(2 * SHORTEST, LONGEST);
        for cpu in cpus {
            let mut idle = perf_event_attr {
                type_: perf::PERF_TYPE_SOFTWARE,
                config: u64::from(perf::PERF_COUNT_SW_DUMMY),
                ..Default::default()
            };
            idle.set_exclude_kernel(1);
            idle.set_exclude_hv(1);
            idle.set_use_clockid(1);
            idle.clockid = 1;
            idle.set_watermark(1);
            idle.__bindgen_anon_2.wakeup_watermark = size as u32 / FULL;
            let event = match system::open(&mut idle, 0, cpu) {
                Ok(event) => event,
                // A processor that is switched off.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => continue,
                Err(error) => return Err(error),
            };
            let ring = loop {
                match Ring::of(&event, size) {
                    Ok(ring) => break ring,
                    Err(error) if is_refused(&error) && size > SHORTEST => size /= 2,
                    Err(error) => return Err(error),
                }
            };
            self.rings.push((cpu, event, ring));
        }
        if size < LONGEST / 16 {
            self.attributes.sample_stack_user = SHORT_STACK;
        }
        Ok(())
    }

    /// Gives an event to threads that have none: at first all, later those that began while nobody
    /// looked.
    pub fn find(&mut self) -> io::Result<()> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid))?;
        let all: HashSet<Pid> = tasks
            .flatten()
            .filter_map(|task| task.file_name().to_str()?.parse().ok())
            .collect();
        self.known.retain(|thread| all.contains(thread));
        let fresh: Vec<Pid> = all.difference(&self.known).copied().collect();
        for thread in fresh {
            match self.watch(thread) {
                Ok(()) => {}
                // It has just ended.
                Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn watch(&mut self, thread: Pid) -> io::Result<()> {
        for (cpu, holder, _) in &self.rings {
            let event = system::open(&mut self.attributes, thread, *cpu)?;
            event.write_into(holder)?;
            // Without it samples have no Python frames.
            self.program = self.program.filter(|program| event.run(*program).is_ok());
            if self.is_on {
                event.enable()?;
            }
            self.events.push(event);
        }
        self.known.insert(thread);
        Ok(())
    }

    /// Lets the events sample, or stops them.
    pub fn switch(&mut self, on: bool) -> io::Result<()> {
        if self.is_on != on {
            self.is_on = on;
            self.events.iter().try_for_each(|event| match on {
                true => event.enable(),
                false => event.disable(),
            })?;
        }
        Ok(())
    }

    /// Waits until a ring begins to be full, and at most so long.
    pub fn wait(&self, limit: Duration) {
        let mut files: Vec<PollFd<'_>> = self
            .rings
            .iter()
            .map(|(_, holder, _)| PollFd::new(holder.file(), PollFlags::IN))
            .collect();
        let limit = Timespec::try_from(limit).ok();
        // A signal ends it too.
        let _ = poll(&mut files, limit.as_ref());
    }

    /// Tells the samples that there are, in the order of time; false: the process became another
    /// program.
    pub fn drain(&mut self, samples: &mut Vec<Sample>) -> bool {
        let mut is_same = true;
        let pid = self.pid;
        for (_, _, ring) in &mut self.rings {
            ring.drain(|raw| match sample::read(&raw) {
                // Children inherit the event too, in kernels before 5.13.
                Some(Told::Sample(sample)) if sample.process == pid => samples.push(sample),
                Some(Told::Lost(count)) => self.lost = self.lost.saturating_add(count),
                Some(Told::Began(process, thread)) if process == pid => {
                    self.known.insert(thread);
                }
                Some(Told::Became(process)) if process == pid => is_same = false,
                _ => {}
            });
        }
        samples.sort_by_key(|sample| sample.time);
        is_same
    }
}

fn attributes() -> perf_event_attr {
    let mut attributes = perf_event_attr {
        type_: perf::PERF_TYPE_SOFTWARE,
        config: u64::from(perf::PERF_COUNT_SW_PAGE_FAULTS),
        sample_type: sample::PARTS,
        sample_regs_user: sample::REGISTERS,
        sample_stack_user: STACK,
        clockid: 1, // CLOCK_MONOTONIC
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.set_disabled(1);
    attributes.set_inherit(1);
    attributes.set_task(1);
    attributes.set_comm(1);
    attributes.set_comm_exec(1);
    attributes.set_use_clockid(1);
    attributes
}

fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(nix::libc::EACCES | nix::libc::EPERM | nix::libc::ENOMEM)
    )
}

fn first_thread(pid: Pid) -> io::Result<Pid> {
    fs::metadata(format!("/proc/{pid}/task/{pid}")).map(|_| pid)
}

/// The numbers of the processors that are switched on.
pub(super) fn cpus() -> Vec<i32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let mut all = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
            all.extend(first..=last.min(first + 8_191));
        }
    }
    if all.is_empty() {
        all.push(0);
    }
    all
}

/// A program of many threads on many processors needs many descriptors. What may be had, is taken.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
}
