//! The tables of a trace: a struct for the rows of each, and the walk that produces the rows.

use anyhow::Result;
use serde::Serialize;

use loam_format::plain;
use loam_format::results::Results;
use loam_format::trace::{Ended, Event, Item, Record, Wanted};
use loam_lab::experiments::replay::Replayed;
use loam_lab::replay::{lineage, ReplayError, Survey};
use loam_lab::traces::{blocks, marks, samples, stacks, summary};
use loam_process::symbols::Symbols;

use super::profile;
use super::rows::{Kind, Row, Sink};

/// The kind of a column, by the type of its field.
trait Typed {
    const KIND: Kind;
}

macro_rules! typed {
    ($($type:ty: $kind:ident,)*) => {
        $(impl Typed for $type { const KIND: Kind = Kind::$kind; })*
    };
}

typed! { u32: Whole, u64: Whole, f64: Real, &str: Text, String: Text, bool: Truth, }

impl<T: Typed> Typed for Option<T> {
    const KIND: Kind = T::KIND;
}

/// Declares the rows of a table.
macro_rules! row {
    ($(#[$outer:meta])* $name:ident of $table:literal {
        $($(#[$inner:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$outer])*
        #[derive(Debug, Default, Serialize)]
        pub struct $name { $($(#[$inner])* pub $field: $type,)* }

        impl Row for $name {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [(&'static str, Kind)] =
                &[$((stringify!($field), <$type as Typed>::KIND),)*];
        }
    };
}

row! {
    /// An event. Columns that do not apply to it are empty.
    EventRow of "events" {
        /// Number of the process in the trace. It means the same in every table.
        process: u32,
        /// Its number in the process.
        number: u64,
        /// Nanoseconds since the recording began. It means the same in every table.
        time: u64,
        /// Number of the thread in the process.
        thread: u32,
        /// What happened.
        event: &'static str,
        /// The function that was called.
        family: Option<&'static str>,
        /// The block.
        address: Option<u64>,
        /// Bytes.
        size: Option<u64>,
        /// The requested alignment.
        alignment: Option<u64>,
        /// Its resident pages, if a look counted them.
        touched_pages: Option<u64>,
        /// For dropped events their number, for a fork the child's process.
        count: Option<u64>,
    }
}

row! {
    /// A look at a process from outside.
    SampleRow of "samples" {
        /// The process.
        process: u32,
        /// The time of the look.
        time: Option<u64>,
        /// Events of the process before it.
        event: Option<u64>,
        /// Bytes that were requested and not freed.
        live: u64,
        /// RssAnon.
        resident_anonymous: Option<u64>,
        /// RssFile.
        resident_file: Option<u64>,
        /// RssShmem.
        resident_shared: Option<u64>,
        /// Resident bytes of the heap.
        resident_heap: Option<u64>,
        /// VmSwap.
        swapped: Option<u64>,
        /// AnonHugePages.
        huge: Option<u64>,
        /// LazyFree.
        lazily_freed: Option<u64>,
        /// Minor faults since the process's start.
        minor_faults: Option<u64>,
        /// Major faults since the process's start.
        major_faults: Option<u64>,
        /// Time in user mode since the process's start, in nanoseconds.
        user_time: Option<u64>,
        /// Time in the system since the process's start, in nanoseconds.
        system_time: Option<u64>,
        /// Threads.
        threads: Option<u64>,
        /// Mappings.
        mappings: Option<u64>,
    }
}

row! {
    /// A block's life. A resize ends a row and begins another one for the same block.
    BlockRow of "blocks" {
        /// The process.
        process: u32,
        /// Its number in the process.
        block: u64,
        /// Its address.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// The requested alignment; 0: none.
        alignment: u64,
        /// The function that allocated it.
        family: &'static str,
        /// The thread that allocated it.
        thread: u32,
        /// The time of its allocation.
        begin: u64,
        /// The time of its end; none: it lived to the end.
        end: Option<u64>,
        /// The function that ended it; `resize`, or `lost` if its end was not recorded.
        ended_by: Option<&'static str>,
        /// The thread that ended it.
        end_thread: Option<u32>,
        /// Its resident pages, if a look counted them.
        touched_pages: Option<u64>,
    }
}

row! {
    /// A process.
    ProcessRow of "processes" {
        /// The process.
        process: u32,
        /// Its number in the system.
        pid: u32,
        /// The process that forked, or that this one replaced.
        parent: Option<u32>,
        /// When recording began, RFC 3339.
        started: String,
        /// Its program's file.
        path: String,
        /// The recorded command.
        command: String,
        /// The allocator that it ran on.
        allocator: String,
        /// Its version, if it is known.
        allocator_version: Option<String>,
        /// How it ended, if the trace says so.
        ended: Option<String>,
        /// From its first to its last event, in nanoseconds.
        nanoseconds: u64,
        /// Events.
        events: u64,
        /// Threads that had events.
        threads: u64,
        /// Blocks handed out.
        allocations: u64,
        /// Blocks freed.
        frees: u64,
        /// Frees by another thread than the one that the block was handed to.
        frees_of_others: u64,
        /// Resizes.
        resizes: u64,
        /// Bytes handed out in all.
        allocated_bytes: u64,
        /// The most bytes that lived at once.
        peak_bytes: u64,
        /// Blocks that lived at that moment.
        peak_blocks: u64,
        /// Bytes that live at the end.
        end_bytes: u64,
        /// Blocks that live at the end.
        end_blocks: u64,
        /// Events that were not recorded or can not be read.
        missing: u64,
    }
}

row! {
    /// Blocks of like size.
    SizeRow of "sizes" {
        /// The process.
        process: u32,
        /// Bytes of the largest block of the class.
        up_to: u64,
        /// Blocks handed out.
        allocations: u64,
        /// Bytes of these blocks.
        allocated_bytes: u64,
        /// Blocks that lived at the peak.
        peak_blocks: u64,
        /// Bytes of these blocks.
        peak_bytes: u64,
    }
}

row! {
    /// A thread. At most the hundred threads with the most events are listed.
    ThreadRow of "threads" {
        /// The process.
        process: u32,
        /// Its number in the process.
        thread: u32,
        /// Blocks handed out to it, and resizes.
        allocations: u64,
        /// Bytes of these blocks.
        allocated_bytes: u64,
        /// Blocks that it freed.
        frees: u64,
        /// Of these, blocks that were handed to another thread.
        frees_of_others: u64,
    }
}

row! {
    /// A moment that the program marked with a name.
    MarkRow of "marks" {
        /// The process.
        process: u32,
        /// The time of the mark.
        time: u64,
        /// Events of the process before it.
        event: u64,
        /// The thread that set the mark.
        thread: u32,
        /// The name.
        name: String,
    }
}

row! {
    /// A stack of sampled blocks, with estimates.
    StackRow of "stacks" {
        /// The process.
        process: u32,
        /// Its functions from the outermost to the innermost, with `;` between them.
        stack: String,
        /// Sampled blocks.
        samples: u64,
        /// Estimated blocks of the stack.
        allocated_blocks: f64,
        /// Estimated bytes of these blocks.
        allocated_bytes: f64,
        /// Estimated blocks that lived at the peak.
        peak_blocks: f64,
        /// Estimated bytes of these blocks.
        peak_bytes: f64,
    }
}

row! {
    /// A trial of the trace under an allocator.
    ReplayRow of "replays" {
        /// The process.
        process: u32,
        /// The allocator's label.
        allocator: String,
        /// Its settings: `NAME=VALUE`, separated by blanks.
        settings: String,
        /// Whether the trace was recorded on it.
        recorded: bool,
        /// The trial's round.
        round: u32,
        /// Whether other work kept the machine busy.
        noisy: bool,
        /// The largest resident memory.
        peak: Option<f64>,
        /// Average resident memory over the recording's time.
        average: Option<f64>,
        /// Resident memory after the last event.
        at_end: Option<f64>,
        /// Time of all operations.
        seconds: Option<f64>,
        /// Processor time of all threads.
        processor_seconds: Option<f64>,
        /// Page faults.
        faults: Option<f64>,
        /// Percent of the recording's time; 0: without pauses.
        speed_percent: u64,
        /// The error of the replay at the peak, as a share.
        error_at_peak: Option<f64>,
        /// The error of the replay on average, as a share.
        error_on_average: Option<f64>,
        /// Whether both errors are small enough to trust the replay; none: not known.
        reproduces: Option<bool>,
        /// The machine's processor.
        cpu: String,
        /// Processors that the trial could use.
        cores: u64,
    }
}

impl ReplayRow {
    /// The row of a trial in a results file.
    pub fn of(trial: Replayed, results: &Results) -> ReplayRow {
        ReplayRow {
            process: trial.process,
            allocator: trial.allocator,
            settings: trial.settings,
            recorded: trial.is_recorded,
            round: trial.round,
            noisy: trial.noisy,
            peak: trial.peak,
            average: trial.average,
            at_end: trial.end,
            seconds: trial.seconds,
            processor_seconds: trial.processor_seconds,
            faults: trial.faults,
            speed_percent: trial.speed_percent,
            error_at_peak: trial.error.map(|error| error.at_peak),
            error_on_average: trial.error.map(|error| error.on_average),
            reproduces: trial.error.map(|error| error.reproduces),
            cpu: results.machine.cpu.clone(),
            cores: results.machine.cores as u64,
        }
    }
}

/// The error that a walk gets if a row could not be written.
fn as_walked(source: std::io::Error) -> ReplayError {
    ReplayError::Io {
        path: "the table".into(),
        source,
    }
}

/// Writes the events of a process, or of all processes.
pub fn events(survey: &Survey, process: Option<u32>, out: &mut impl Sink) -> Result<()> {
    let wanted = Wanted {
        events: true,
        tables: false,
    };
    let mut items = lineage::open(&survey.path, wanted)?;
    if let Some(process) = process {
        items = items.only(process);
    }
    for item in items {
        if let (process, Item::Event(number, record)) = item? {
            out.row(&EventRow::of(process, number, &record))?;
        }
    }
    Ok(())
}

/// Writes the samples of a process.
pub fn samples(survey: &Survey, process: u32, out: &mut impl Sink) -> Result<()> {
    Ok(samples::each(survey, process, |sample, live| {
        let row = SampleRow {
            process,
            time: sample.time,
            event: sample.event,
            live,
            resident_anonymous: sample.resident_anonymous,
            resident_file: sample.resident_file,
            resident_shared: sample.resident_shared,
            resident_heap: sample.resident_heap,
            swapped: sample.swapped,
            huge: sample.huge,
            lazily_freed: sample.lazily_freed,
            minor_faults: sample.minor_faults,
            major_faults: sample.major_faults,
            user_time: sample.user_time,
            system_time: sample.system_time,
            threads: sample.threads,
            mappings: sample.mappings,
        };
        out.row(&row).map_err(as_walked)
    })?)
}

/// Writes the blocks of a process.
pub fn blocks(survey: &Survey, process: u32, out: &mut impl Sink) -> Result<()> {
    Ok(blocks::each(survey, process, |life| {
        let row = BlockRow {
            process,
            block: life.block,
            address: life.address,
            size: life.size,
            alignment: life.alignment,
            family: life.family,
            thread: life.thread,
            begin: life.begin,
            end: life.end,
            ended_by: life.ended_by,
            end_thread: life.end_thread,
            touched_pages: life.touched_pages,
        };
        out.row(&row).map_err(as_walked)
    })?)
}

/// A process's figures.
pub fn process(survey: &Survey, figures: &summary::Summary) -> ProcessRow {
    let known = &survey.processes[&figures.process];
    let text = |text: &str| plain::line(text).into_owned();
    ProcessRow {
        process: figures.process,
        pid: known.process.pid,
        parent: known.process.parent,
        started: survey.header.started.clone(),
        path: text(&known.process.program),
        command: text(&plain::command(&survey.header.command)),
        allocator: text(&known.process.allocator),
        allocator_version: known.process.allocator_version.clone(),
        ended: known.end.as_ref().and_then(|end| match end.ended {
            Ended::Code(code) => Some(format!("code {code}")),
            Ended::Signal(signal) => Some(format!("signal {signal}")),
            Ended::Exec => Some("exec".to_owned()),
            Ended::Running => Some("runs on".to_owned()),
            Ended::Unknown => None,
        }),
        nanoseconds: figures.nanoseconds,
        events: figures.events,
        threads: known.threads,
        allocations: figures.allocations,
        frees: figures.frees,
        frees_of_others: figures.frees_of_others,
        resizes: figures.resizes,
        allocated_bytes: figures.allocated_bytes,
        peak_bytes: figures.peak_bytes,
        peak_blocks: figures.peak_blocks,
        end_bytes: figures.end_bytes,
        end_blocks: figures.end_blocks,
        missing: figures.missing + figures.repairs.dropped,
    }
}

/// A process's sizes.
pub fn sizes(figures: &summary::Summary) -> impl Iterator<Item = SizeRow> + '_ {
    figures.sizes.iter().map(|class| SizeRow {
        process: figures.process,
        up_to: class.up_to,
        allocations: class.allocations,
        allocated_bytes: class.allocated_bytes,
        peak_blocks: class.peak_blocks,
        peak_bytes: class.peak_bytes,
    })
}

/// A process's threads.
pub fn threads(figures: &summary::Summary) -> impl Iterator<Item = ThreadRow> + '_ {
    figures.threads.iter().map(|thread| ThreadRow {
        process: figures.process,
        thread: thread.thread,
        allocations: thread.allocations,
        allocated_bytes: thread.bytes,
        frees: thread.frees,
        frees_of_others: thread.frees_of_others,
    })
}

/// Writes a process's marks.
pub fn marks(survey: &Survey, process: u32, out: &mut impl Sink) -> Result<()> {
    for mark in marks::of(survey, process)? {
        out.row(&MarkRow {
            process,
            time: mark.time,
            event: mark.event,
            thread: mark.thread,
            name: mark.name,
        })?;
    }
    Ok(())
}

/// Writes a process's stacks, if it has any. Returns the doubts about the functions' names.
pub fn stacks(survey: &Survey, process: u32, out: &mut impl Sink) -> Result<Vec<String>> {
    let Some(stacks) = stacks::of(survey, process)? else {
        return Ok(Vec::new());
    };
    let mut symbols = Symbols::default();
    for site in &stacks.sites {
        out.row(&StackRow {
            process,
            stack: profile::joined(&stacks, site, &mut symbols),
            samples: site.allocated.samples,
            allocated_blocks: site.allocated.blocks,
            allocated_bytes: site.allocated.bytes,
            peak_blocks: site.peak.blocks,
            peak_bytes: site.peak.bytes,
        })?;
    }
    Ok(symbols.doubts())
}

impl EventRow {
    fn of(process: u32, number: u64, record: &Record) -> EventRow {
        let row = EventRow {
            process,
            number,
            time: record.time,
            thread: record.thread,
            ..EventRow::default()
        };
        match record.event {
            Event::Allocate {
                family,
                address,
                size,
                alignment,
            } => EventRow {
                event: if address == 0 {
                    "allocate-failed"
                } else {
                    "allocate"
                },
                family: Some(family.name()),
                address: Some(address),
                size: Some(size),
                alignment: family.is_aligned().then_some(alignment),
                ..row
            },
            Event::Free {
                family,
                address,
                size,
                touched,
            } => EventRow {
                event: "free",
                family: Some(family.name()),
                address: Some(address),
                size: family.is_sized().then_some(size),
                touched_pages: touched,
                ..row
            },
            Event::ResizeFrom { address, touched } => EventRow {
                event: "resize-from",
                address: Some(address),
                touched_pages: touched,
                ..row
            },
            Event::ResizeTo { address, size } => EventRow {
                event: if address == 0 {
                    "resize-failed"
                } else {
                    "resize-to"
                },
                address: Some(address),
                size: Some(size),
                ..row
            },
            Event::Existing { address, size } => EventRow {
                event: "existing",
                address: Some(address),
                size: Some(size),
                ..row
            },
            Event::ThreadBegins => EventRow {
                event: "thread-begins",
                ..row
            },
            Event::ThreadEnds => EventRow {
                event: "thread-ends",
                ..row
            },
            Event::Fork { child } => EventRow {
                event: "fork",
                count: Some(child.into()),
                ..row
            },
            Event::Exec => EventRow {
                event: "exec",
                ..row
            },
            Event::Dropped { count } => EventRow {
                event: "dropped",
                count: Some(count),
                ..row
            },
            Event::Trim { keep } => EventRow {
                event: "trim",
                size: Some(keep),
                ..row
            },
        }
    }
}
