//! A trace's tables for other programs. One row struct a table, written by serde: CSV and JSON lines have the same
//! columns.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use loam_format::trace::{Event, Item, Record, Sample, Wanted};
use loam_lab::replay::{self, lineage, ReplayError};
use loam_lab::traces::blocks;

use super::args::{ExportOptions, Format, Table};
use super::profile;
use crate::exit::Exit;
use crate::output;

/// Writes rows.
enum Rows<W: Write> {
    Csv(Box<csv::Writer<W>>),
    Jsonl(W),
}

impl<W: Write> Rows<W> {
    fn new(format: Format, out: W) -> Rows<W> {
        match format {
            Format::Csv => Rows::Csv(Box::new(csv::Writer::from_writer(out))),
            _ => Rows::Jsonl(out),
        }
    }

    fn row(&mut self, row: &impl Serialize) -> io::Result<()> {
        match self {
            Rows::Csv(writer) => writer
                .serialize(row)
                .map_err(|error| match error.into_kind() {
                    csv::ErrorKind::Io(error) => error,
                    other => io::Error::other(format!("{other:?}")),
                }),
            Rows::Jsonl(out) => {
                serde_json::to_writer(&mut *out, row).map_err(io::Error::from)?;
                out.write_all(b"\n")
            }
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Rows::Csv(mut writer) => writer.flush(),
            Rows::Jsonl(mut out) => out.flush(),
        }
    }
}

/// Writes the table.
pub fn run(options: &ExportOptions) -> Result<Exit> {
    // A trace that can not be read must not leave an empty file.
    drop(lineage::open(&options.trace, Wanted::ALL)?);
    if matches!(options.format, Format::Collapsed | Format::Pprof) {
        profile::require_stacks(&options.trace)?;
    }
    match &options.output {
        Some(path) => {
            let told = || format!("{} can not be written", output::path(path));
            let file = File::create(path).with_context(told)?;
            write(options, BufWriter::new(file)).with_context(told)?;
        }
        None => write(options, BufWriter::new(io::stdout().lock()))?,
    }
    Ok(Exit::Done)
}

fn write(options: &ExportOptions, out: impl Write) -> Result<()> {
    if matches!(options.format, Format::Collapsed | Format::Pprof) {
        return profile::write(options, out);
    }
    let mut rows = Rows::new(options.format, out);
    match options.table {
        Table::Blocks => {
            let survey = replay::survey(&options.trace)?;
            let stream = survey.choose(options.process)?;
            let mut failed = None;
            let walked = blocks::each(&survey, stream, |life| {
                rows.row(life).map_err(|source| {
                    failed = Some(());
                    ReplayError::Io {
                        path: "the table".into(),
                        source,
                    }
                })
            });
            // The reader's going away is told by the error itself, not by one around it.
            match (walked, failed) {
                (Err(ReplayError::Io { source, .. }), Some(())) => return Err(source.into()),
                (walked, _) => walked?,
            }
        }
        Table::Events | Table::Samples => {
            let wanted = Wanted {
                events: options.table == Table::Events,
                tables: options.table == Table::Samples,
            };
            let mut items = lineage::open(&options.trace, wanted)?;
            if let Some(process) = options.process {
                items = items.only(process);
            }
            for item in items.by_ref() {
                match item? {
                    (process, Item::Event(number, record)) => {
                        rows.row(&EventRow::of(process, number, &record))?;
                    }
                    (process, Item::Sample(sample)) if options.table == Table::Samples => {
                        rows.row(&SampleRow::of(process, &sample))?;
                    }
                    _ => {}
                }
            }
            for damage in items.damage() {
                output::print_warning(&damage.to_string());
            }
        }
    }
    rows.finish()?;
    Ok(())
}

/// An event as a row: columns that it does not have are empty.
#[derive(Debug, Default, Serialize)]
struct EventRow {
    process: u32,
    number: u64,
    time: u64,
    thread: u32,
    event: &'static str,
    family: Option<&'static str>,
    address: Option<u64>,
    size: Option<u64>,
    alignment: Option<u64>,
    touched_pages: Option<u64>,
    count: Option<u64>,
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

/// A sample as a row.
#[derive(Debug, Serialize)]
struct SampleRow {
    process: u32,
    time: Option<u64>,
    event: Option<u64>,
    resident_anonymous: Option<u64>,
    resident_file: Option<u64>,
    resident_shared: Option<u64>,
    resident_heap: Option<u64>,
    swapped: Option<u64>,
    huge: Option<u64>,
    lazily_freed: Option<u64>,
    minor_faults: Option<u64>,
    major_faults: Option<u64>,
    user_time: Option<u64>,
    system_time: Option<u64>,
    threads: Option<u64>,
    mappings: Option<u64>,
}

impl SampleRow {
    fn of(process: u32, sample: &Sample) -> SampleRow {
        SampleRow {
            process,
            time: sample.time,
            event: sample.event,
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
        }
    }
}
