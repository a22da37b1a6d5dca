//! Makes a trace of calls: processes become streams, threads get numbers, times begin at 0 and
//! never decrease.

use std::collections::HashMap;
use std::io::Write;

use super::{About, Call, ForeignError, Source, What};
use crate::trace::{
    chance, End, Ended, Event, Frame, Header, Origin, Process, Record, Stack, Stream, Writer,
};

/// Nanoseconds between calls of a recording without times. Chosen: so few that they never become a
/// pause in a replay.
pub const STEP: u64 = 1_000;

/// The result of an import.
#[derive(Debug, Default)]
pub struct Imported {
    /// The recording's description of itself.
    pub about: About,
    /// Events written.
    pub events: u64,
    /// Processes.
    pub processes: u64,
    /// Threads of all processes.
    pub threads: u64,
    /// The error at which reading stopped. The trace has all calls before it, and gives the error
    /// as the reason of its end.
    pub stopped: Option<ForeignError>,
}

/// A recording whose first call was read. By then it is known to be a recording.
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

    /// Writes the trace. `tool` is the version of the writing tool, `file` the recording's name.
    /// `stack_bytes`: if the recording has stacks, this is the average distance in requested bytes
    /// between two blocks with a stack.
    pub fn write<W: Write>(
        mut self,
        tool: &str,
        file: &str,
        out: W,
        stack_bytes: u64,
    ) -> Result<(W, Imported), ForeignError> {
        let about = self.source.about();
        let stack_bytes = if about.has_stacks { stack_bytes } else { 0 };
        let header = Header {
            tool: tool.to_owned(),
            command: about.command.clone(),
            page_size: about.page_size,
            stack_bytes,
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
            stack_bytes,
            imported: Imported {
                about,
                ..Imported::default()
            },
        };
        importer.add(&self.first, self.source.frames())?;
        importer.imported.stopped = loop {
            match self.source.next() {
                Ok(Some(call)) => importer.add(&call, self.source.frames())?,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        importer.modules(&*self.source)?;
        importer.imported.about = self.source.about();
        importer.finish()
    }
}

/// A process of the recording.
struct Known {
    stream: Stream,
    process: Process,
    /// The trace's numbers of the live threads.
    threads: HashMap<u64, u32>,
    next: u32,
}

struct Importer<W> {
    writer: Writer<W>,
    program: String,
    processes: HashMap<u64, Known>,
    /// Streams in the order of their first calls.
    order: Vec<Stream>,
    /// The recording's time that becomes 0 in the trace.
    zero: Option<u64>,
    now: u64,
    /// Average bytes between two blocks with a stack; 0: no block has one.
    stack_bytes: u64,
    imported: Imported,
}

impl<W: Write> Importer<W> {
    fn add(&mut self, call: &Call, frames: Vec<Frame>) -> Result<(), ForeignError> {
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
        if self.stack_bytes > 0 {
            for frame in frames {
                self.writer.frame(stream, frame)?;
            }
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
                self.stack(stream, size, call.frame)?;
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

    /// The stream, the thread's number in it, and whether the thread is new.
    fn thread(&mut self, process: u64, thread: u64) -> Result<(Stream, u32, bool), ForeignError> {
        if !self.processes.contains_key(&process) {
            let image = Process {
                pid: u32::try_from(process).unwrap_or(0),
                at: self.now,
                program: self.program.clone(),
                ..Process::default()
            };
            let stream = self.writer.process(&image)?;
            self.order.push(stream);
            let known = Known {
                stream,
                process: image,
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

    /// Writes the stack of the block that the next event hands out, if the block is chosen.
    fn stack(&mut self, stream: Stream, size: u64, frame: Option<u64>) -> Result<(), ForeignError> {
        let event = self.writer.events(stream);
        if self.stack_bytes == 0 || uniform(event) >= chance(size, self.stack_bytes) {
            return Ok(());
        }
        let stack = Stack {
            event: Some(event),
            frame,
            cut: Some(frame.is_none().into()),
            ..Stack::default()
        };
        Ok(self.writer.stack(stream, stack)?)
    }

    /// Writes the modules that the frames lie in.
    fn modules(&mut self, source: &dyn Source) -> Result<(), ForeignError> {
        let modules = source.modules();
        if self.stack_bytes == 0 || modules.is_empty() {
            return Ok(());
        }
        for known in self.processes.values_mut() {
            known.process.modules.clone_from(&modules);
            self.writer.update(known.stream, &known.process)?;
        }
        Ok(())
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

/// A number from 0 to 1 that depends only on another number and looks random (splitmix64). The same
/// recording therefore always becomes the same trace.
fn uniform(number: u64) -> f64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
