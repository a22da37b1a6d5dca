//! The first look at a trace. It finds its processes, how many events each has, and what is
//! damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use loam_format::trace::{Batch, End, Ended, Event, Header, How, Item, Process, Sample, Wanted};
use loam_format::words;

use super::{lineage, ReplayError};

/// The most samples that are kept of a process. If there are more, every second one is dropped; the
/// largest is always kept.
const MOST_SAMPLES: usize = 2_000;

/// A process of a trace.
#[derive(Debug, Clone, Default)]
pub struct ProcessSurvey {
    /// Its description in the trace.
    pub process: Process,
    /// How it ended, if the trace says.
    pub end: Option<End>,
    /// Its events.
    pub events: u64,
    /// Bytes that it requested.
    pub requested: u64,
    /// Events that were not recorded.
    pub dropped: u64,
    /// Threads that had events.
    pub threads: u64,
    /// Times of its first and last event, in nanoseconds.
    pub first_time: u64,
    /// Time of the last event.
    pub last_time: u64,
    /// Samples of the process, thinned.
    pub samples: Vec<Sample>,
    /// How many samples it has.
    pub sample_count: u64,
}

impl ProcessSurvey {
    /// That the trace ends before the program did, and why, if it says so.
    pub fn cut(&self) -> Option<String> {
        let end = self.end.as_ref()?;
        let reason = end
            .reason
            .as_deref()
            .filter(|_| end.ended == Ended::Running)?;
        Some(format!(
            "the recording ended before the program did, and no figure has what came later: {}",
            loam_format::plain::line(reason)
        ))
    }

    /// Events that were written and can not be read.
    pub fn unreadable(&self) -> u64 {
        let written = self.end.as_ref().map_or(0, |end| end.events);
        written.saturating_sub(self.events)
    }

    /// The time up to which the process was recorded, in nanoseconds. It may do nothing after its
    /// last event, and holds its memory then.
    pub fn until(&self) -> u64 {
        let sample = self.samples.iter().filter_map(|sample| sample.time).max();
        let end = self.end.as_ref().map_or(0, |end| end.at);
        self.last_time.max(end).max(sample.unwrap_or(0))
    }

    /// The processor time that the last sample found, in seconds.
    pub fn processor_seconds(&self) -> Option<f64> {
        let nanoseconds = |sample: &Sample| Some(sample.user_time? + sample.system_time?);
        let last = self.samples.iter().filter_map(nanoseconds).max()?;
        (last > 0).then_some(last as f64 * 1e-9)
    }
}

/// What a first pass finds.
#[derive(Debug)]
pub struct Survey {
    /// The trace.
    pub path: PathBuf,
    /// What was recorded.
    pub header: Header,
    /// Its processes, by stream.
    pub processes: BTreeMap<u32, ProcessSurvey>,
    /// What could not be read, in words.
    pub damage: Vec<String>,
    /// Events in chunks that could not be read.
    pub missing: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

impl Survey {
    /// Why the file has less of these streams than was recorded. A whole trace has no faults.
    pub fn faults(&self, streams: &[u32]) -> Vec<String> {
        let known = |stream: &u32| Some((*stream, self.processes.get(stream)?));
        let of_stream = |(stream, process): (u32, &ProcessSurvey)| match &process.end {
            None => Some(format!(
                "process {stream} has no end: the recording was cut off, and no figure has what \
                 came later"
            )),
            Some(end) => (process.unreadable() > 0).then(|| {
                format!(
                    "of the {} events of process {stream}, only {} can be read",
                    end.events, process.events
                )
            }),
        };
        let streams = streams.iter().filter_map(known).filter_map(of_stream);
        self.damage.iter().cloned().chain(streams).collect()
    }

    /// What a reader of a stream's figures should know first: what the file lacks, and that the
    /// recording ended before the program did.
    pub fn warnings(&self, stream: u32) -> Vec<String> {
        let mut warnings = self.faults(&[stream]);
        warnings.extend(self.processes.get(&stream).and_then(ProcessSurvey::cut));
        warnings
    }

    /// The stream that this one was forked from, if both are the same program.
    pub fn forked_from(&self, stream: u32) -> Option<u32> {
        let process = &self.processes.get(&stream)?.process;
        (process.how == How::Fork).then_some(process.parent)?
    }

    /// The stream to look at: the requested number, else that of the process that requested the
    /// most bytes. A service may run below a shell that has more events.
    pub fn choose(&self, wanted: Option<u32>) -> Result<u32, ReplayError> {
        match wanted {
            Some(wanted) if self.processes.contains_key(&wanted) => Ok(wanted),
            Some(wanted) => {
                let known: Vec<String> = self.processes.keys().map(u32::to_string).collect();
                Err(ReplayError::NoProcess {
                    path: self.path.clone(),
                    wanted,
                    known: words::list(&known),
                })
            }
            None => {
                let largest = self.processes.iter().max_by_key(|(stream, process)| {
                    (
                        process.requested,
                        process.events,
                        std::cmp::Reverse(**stream),
                    )
                });
                largest
                    .filter(|(_, process)| process.events > 0)
                    .map(|(stream, _)| *stream)
                    .ok_or_else(|| self.no_events())
            }
        }
    }

    fn no_events(&self) -> ReplayError {
        let path = self.path.clone();
        let was_cut = || {
            let mut processes = self.processes.values();
            let is_whole = !self.processes.is_empty() && processes.all(|one| one.end.is_some());
            (!is_whole).then(|| format!("the file ends at byte {}, before its events", self.bytes))
        };
        match self.damage.first().cloned().or_else(was_cut) {
            Some(why) => ReplayError::Unreadable { path, why },
            None => ReplayError::NoEvents(path),
        }
    }
}

/// Reads a trace once that has all blocks of its program, and not only a sample of them.
pub fn survey_of_all(path: &Path) -> Result<Survey, ReplayError> {
    let survey = survey(path)?;
    match survey.header.sampled.as_str() {
        "" => Ok(survey),
        sampled => Err(ReplayError::Sampled {
            path: path.to_owned(),
            sampled: loam_format::plain::line(sampled).into_owned(),
        }),
    }
}

/// Reads a trace once.
pub fn survey(path: &Path) -> Result<Survey, ReplayError> {
    lineage::require_file(path)?;
    let mut items = lineage::open(path, Wanted::ALL)?;
    let mut processes: BTreeMap<u32, ProcessSurvey> = BTreeMap::new();
    let mut threads: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    while let Some(batch) = items.next_batch().map_err(|source| ReplayError::Read {
        path: path.to_owned(),
        source,
    })? {
        match batch {
            Batch::Events(stream, _, records) => {
                let process = processes.entry(stream).or_default();
                let seen = threads.entry(stream).or_default();
                if let (0, Some(first)) = (process.events, records.first()) {
                    process.first_time = first.time;
                }
                let mut last = None;
                for record in records {
                    process.last_time = process.last_time.max(record.time);
                    match record.event {
                        Event::Dropped { count } => process.dropped += count,
                        Event::Allocate { size, .. }
                        | Event::ResizeTo { size, .. }
                        | Event::Existing { size, .. } => {
                            process.requested = process.requested.saturating_add(size);
                        }
                        _ => {}
                    }
                    if last != Some(record.thread) {
                        seen.insert(record.thread);
                        last = Some(record.thread);
                    }
                }
                process.events += records.len() as u64;
            }
            Batch::Item(stream, item) => {
                let process = processes.entry(stream).or_default();
                match *item {
                    Item::Process(known) => process.process = known,
                    Item::End(end) => process.end = Some(end),
                    Item::Sample(sample) => add(process, sample),
                    _ => {}
                }
            }
        }
    }
    for (stream, seen) in threads {
        if let Some(process) = processes.get_mut(&stream) {
            process.threads = seen.len() as u64;
        }
    }
    Ok(Survey {
        path: path.to_owned(),
        header: items.header().clone(),
        processes,
        damage: items.damage().iter().map(ToString::to_string).collect(),
        missing: items.missing(),
        bytes: items.offset(),
    })
}

fn add(process: &mut ProcessSurvey, sample: Sample) {
    process.sample_count += 1;
    process.samples.push(sample);
    if process.samples.len() <= MOST_SAMPLES {
        return;
    }
    // Samples with the heap's own memory are rarer and are dropped last. The largest is always
    // kept.
    let weight = |sample: &Sample| (sample.resident_heap, sample.resident_anonymous);
    let peak = process
        .samples
        .iter()
        .max_by_key(|sample| weight(sample))
        .cloned();
    let told = process
        .samples
        .iter()
        .filter(|sample| sample.resident_heap.is_some());
    let keep_told = told.count() < MOST_SAMPLES / 2;
    let mut odd = false;
    process.samples.retain(|sample| {
        odd = !odd;
        odd || (keep_told && sample.resident_heap.is_some()) || Some(sample) == peak.as_ref()
    });
}
