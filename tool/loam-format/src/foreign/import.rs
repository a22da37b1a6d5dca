//! Calls become a trace: processes become streams, threads are numbered, times begin at 0 and do not go back.

use std::collections::HashMap;
use std::io::Write;

use super::{About, Call, ForeignError, Source, What};
use crate::trace::{End, Ended, Event, Header, Origin, Process, Record, Stream, Writer};

/// Nanoseconds from call to call of a recording that has no times. Chosen: so little that no pause of a replay comes
/// of it.
pub const STEP: u64 = 1_000;

/// What was imported.
#[derive(Debug, Default)]
pub struct Imported {
    /// What the recording says of itself.
    pub about: About,
    /// Events written.
    pub events: u64,
    /// Processes.
    pub processes: u64,
    /// Threads of all of them.
    pub threads: u64,
    /// What is wrong with the recording from here on; the trace has all that came before, and says why it ends.
    pub stopped: Option<ForeignError>,
}

/// A recording of which the first call has been read: what is no recording is known by then.
pub struct Begun<'a> {
    source: Box<dyn Source + 'a>,
    first: Call,
}

impl<'a> Begun<'a> {
    /// Reads up to the first call.
    pub fn new(mut source: Box<dyn Source + 'a>) -> Result<Begun<'a>, ForeignError> {
        let first = source.next()?.ok_or(ForeignError::Empty)?;
        Ok(Begun { source, first })
    }

    /// Writes the trace. `tool` is the version that does so, `file` the recording's name.
    pub fn write<W: Write>(
        mut self,
        tool: &str,
        file: &str,
        out: W,
    ) -> Result<(W, Imported), ForeignError> {
        let about = self.source.about();
        let header = Header {
            tool: tool.to_owned(),
            command: about.command.clone(),
            page_size: about.page_size,
            origin: Some(Origin {
                format: about.format.clone(),
                file: file.to_owned(),
                lost: about.lost.iter().map(|lost| (*lost).to_owned()).collect(),
            }),
            ..Header::default()
        };
        let mut importer = Importer {
            writer: Writer::new(out, &header)?,
            program: about.command.first().cloned().unwrap_or_default(),
            processes: HashMap::new(),
            order: Vec::new(),
            zero: None,
            now: 0,
            imported: Imported {
                about,
                ..Imported::default()
            },
        };
        importer.add(&self.first)?;
        importer.imported.stopped = loop {
            match self.source.next() {
                Ok(Some(call)) => importer.add(&call)?,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        importer.finish()
    }
}

/// A process of the recording.
struct Known {
    stream: Stream,
    /// Numbers in the trace of threads that live.
    threads: HashMap<u64, u32>,
    next: u32,
}

struct Importer<W> {
    writer: Writer<W>,
    program: String,
    processes: HashMap<u64, Known>,
    /// Streams in the order of their first calls.
    order: Vec<Stream>,
    /// The recording's time at the trace's 0.
    zero: Option<u64>,
    now: u64,
    imported: Imported,
}

impl<W: Write> Importer<W> {
    fn add(&mut self, call: &Call) -> Result<(), ForeignError> {
        self.now = match call.time {
            Some(time) => {
                let zero = *self.zero.get_or_insert(time);
                self.now.max(time.saturating_sub(zero))
            }
            None if self.zero.is_none() => self.now + STEP,
            None => self.now,
        };
        let (stream, thread, is_new) = self.thread(call.process, call.thread)?;
        if is_new {
            self.push(stream, thread, Event::ThreadBegins)?;
        }
        match call.what {
            What::Allocate {
                family,
                address,
                size,
                alignment,
            } => {
                let event = Event::Allocate {
                    family,
                    address,
                    size,
                    alignment,
                };
                self.push(stream, thread, event)
            }
            What::Free { family, address } => {
                let event = Event::Free {
                    family,
                    address,
                    size: 0,
                    touched: None,
                };
                self.push(stream, thread, event)
            }
            What::Resize { from, to, size } => {
                let begins = Event::ResizeFrom {
                    address: from,
                    touched: None,
                };
                self.push(stream, thread, begins)?;
                self.push(stream, thread, Event::ResizeTo { address: to, size })
            }
            What::ThreadEnds => {
                if let Some(process) = self.processes.get_mut(&call.process) {
                    process.threads.remove(&call.thread);
                }
                self.push(stream, thread, Event::ThreadEnds)
            }
        }
    }

    /// The stream, the thread's number in it, and whether that begins now.
    fn thread(&mut self, process: u64, thread: u64) -> Result<(Stream, u32, bool), ForeignError> {
        if !self.processes.contains_key(&process) {
            let stream = self.writer.process(&Process {
                pid: u32::try_from(process).unwrap_or(0),
                at: self.now,
                program: self.program.clone(),
                ..Process::default()
            })?;
            self.order.push(stream);
            let known = Known {
                stream,
                threads: HashMap::new(),
                next: 0,
            };
            self.processes.insert(process, known);
            self.imported.processes += 1;
        }
        let known = self
            .processes
            .get_mut(&process)
            .expect("it was there or has been added");
        if let Some(number) = known.threads.get(&thread) {
            return Ok((known.stream, *number, false));
        }
        let number = known.next;
        known.next += 1;
        known.threads.insert(thread, number);
        self.imported.threads += 1;
        Ok((known.stream, number, true))
    }

    fn push(&mut self, stream: Stream, thread: u32, event: Event) -> Result<(), ForeignError> {
        let record = Record {
            time: self.now,
            thread,
            event,
        };
        self.imported.events += 1;
        Ok(self.writer.push(stream, &record)?)
    }

    fn finish(mut self) -> Result<(W, Imported), ForeignError> {
        let stopped = self.imported.stopped.as_ref();
        let reason = stopped.map(|error| format!("the import ended early: {error}"));
        for stream in &self.order {
            let end = End {
                ended: Ended::Unknown,
                at: self.now,
                reason: reason.clone(),
                ..End::default()
            };
            self.writer.end(*stream, end)?;
        }
        let (out, _) = self.writer.finish()?;
        Ok((out, self.imported))
    }
}
