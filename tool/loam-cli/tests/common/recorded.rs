//! Traces of simulated programs: a simulation with a seed writes what a recorder would have
//! written.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use loam_format::trace::{
    AllocFamily, ChunkKind, End, Ended, Event, Frame, FreeFamily, Header, Item, Items, Mark,
    Process, Reader, Record, Sample, Stack, Stream, Touch, Wanted, Writer,
};

pub const PAGE: u64 = 4_096;

/// A live block of a simulated program.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    pub address: u64,
    pub size: u64,
}

/// A program that is being recorded.
pub struct Program {
    writer: Writer<BufWriter<File>>,
    pub stream: Stream,
    pub time: u64,
    /// Nanoseconds between events.
    pub step: u64,
    random: u64,
    freed: HashMap<u64, Vec<u64>>,
    fresh: u64,
    pub events: u64,
    pub allocations: u64,
    pub frees: u64,
    pub live: u64,
    pub peak: u64,
}

pub fn header() -> Header {
    Header {
        tool: "test".into(),
        command: vec!["simulated".into(), "--server".into()],
        architecture: std::env::consts::ARCH.into(),
        page_size: PAGE,
        cores: 2,
        ..Header::default()
    }
}

pub fn process() -> Process {
    Process {
        pid: 4_711,
        program: "/usr/bin/simulated".into(),
        allocator: "system".into(),
        ..Process::default()
    }
}

impl Program {
    pub fn record(path: &Path) -> Program {
        Program::record_as(path, &header(), &process())
    }

    /// Records a program of another machine, or another program.
    pub fn record_as(path: &Path, header: &Header, process: &Process) -> Program {
        let out = BufWriter::new(File::create(path).unwrap());
        let mut writer = Writer::new(out, header).unwrap();
        let stream = writer.process(process).unwrap();
        Program {
            writer,
            stream,
            time: 1_000_000,
            step: 2_000,
            random: 88_172_645_463_325_252,
            freed: HashMap::new(),
            fresh: 0x7f00_0000_0000,
            events: 0,
            allocations: 0,
            frees: 0,
            live: 0,
            peak: 0,
        }
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    pub fn event(&mut self, thread: u32, event: Event) {
        self.time += self.step;
        self.events += 1;
        let record = Record {
            time: self.time,
            thread,
            event,
        };
        self.writer.push(self.stream, &record).unwrap();
    }

    fn place(&mut self, size: u64) -> u64 {
        let room = size.max(1).div_ceil(16) * 16;
        if let Some(address) = self.freed.entry(room).or_default().pop() {
            return address;
        }
        self.fresh += room;
        self.fresh - room
    }

    fn gone(&mut self, block: Block) {
        let room = block.size.max(1).div_ceil(16) * 16;
        self.freed.entry(room).or_default().push(block.address);
        self.live -= block.size;
    }

    pub fn allocate(&mut self, thread: u32, size: u64) -> Block {
        self.allocate_by(thread, size, AllocFamily::Malloc, 0)
    }

    pub fn allocate_by(
        &mut self,
        thread: u32,
        size: u64,
        family: AllocFamily,
        alignment: u64,
    ) -> Block {
        let block = Block {
            address: self.place(size),
            size,
        };
        let event = Event::Allocate {
            family,
            address: block.address,
            size,
            alignment,
        };
        self.event(thread, event);
        self.allocations += 1;
        self.live += size;
        self.peak = self.peak.max(self.live);
        block
    }

    pub fn free(&mut self, thread: u32, block: Block) {
        self.free_touched(thread, block, None);
    }

    pub fn free_touched(&mut self, thread: u32, block: Block, touched: Option<u64>) {
        let event = Event::Free {
            family: FreeFamily::Free,
            address: block.address,
            size: 0,
            touched,
        };
        self.event(thread, event);
        self.frees += 1;
        self.gone(block);
    }

    pub fn resize(&mut self, thread: u32, block: Block, size: u64) -> Block {
        let touched = None;
        let address = block.address;
        self.event(thread, Event::ResizeFrom { address, touched });
        self.gone(block);
        let address = self.place(size);
        self.event(thread, Event::ResizeTo { address, size });
        self.allocations += 1;
        self.live += size;
        self.peak = self.peak.max(self.live);
        Block { address, size }
    }

    pub fn sample(&mut self, resident_heap: Option<u64>) {
        let sample = Sample {
            time: Some(self.time),
            resident_heap,
            ..Sample::default()
        };
        self.writer.sample(self.stream, sample).unwrap();
    }

    /// A look finds this many resident pages of a live block, at the present time.
    pub fn saw(&mut self, block: Block, pages: u64) {
        let touch = Touch {
            time: Some(self.time),
            address: Some(block.address),
            pages: Some(pages),
        };
        self.writer.touch(self.stream, touch).unwrap();
    }

    /// A moment that the program marks.
    pub fn mark(&mut self, name: &str) {
        let mark = Mark {
            time: self.time,
            name: name.to_owned(),
            ..Mark::default()
        };
        self.writer.mark(self.stream, mark).unwrap();
    }

    /// Adds frames. Each frame is called from the one before it.
    pub fn frames(&mut self, addresses: &[u64]) {
        for (number, address) in addresses.iter().enumerate() {
            let frame = Frame {
                number: Some(number as u64),
                caller: (number as u64).checked_sub(1),
                address: Some(*address),
                ..Frame::default()
            };
            self.writer.frame(self.stream, frame).unwrap();
        }
    }

    /// Sets the stack of the last event's block.
    pub fn stack(&mut self, frame: u64) {
        let stack = Stack {
            event: Some(self.events - 1),
            frame: Some(frame),
            cut: Some(0),
            ..Stack::default()
        };
        self.writer.stack(self.stream, stack).unwrap();
    }

    pub fn end(mut self) -> Ran {
        let end = End {
            ended: Ended::Code(0),
            at: self.time,
            ..End::default()
        };
        self.writer.end(self.stream, end).unwrap();
        self.writer.finish().unwrap();
        Ran {
            events: self.events,
            allocations: self.allocations,
            frees: self.frees,
            live: self.live,
            peak: self.peak,
        }
    }
}

/// Figures of a simulated program.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    pub events: u64,
    pub allocations: u64,
    pub frees: u64,
    pub live: u64,
    pub peak: u64,
}

/// Copies a trace up to its first chunk of this kind.
pub fn copy_until(kind: ChunkKind, from: &Path, to: &Path) {
    let bytes = std::fs::read(from).unwrap();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    loop {
        let (chunk, _) = reader.next_chunk().unwrap().expect("has such a chunk");
        if chunk.kind == kind {
            return std::fs::write(to, &bytes[..chunk.offset as usize]).unwrap();
        }
    }
}

/// Copies a trace, and changes events and samples.
pub fn copy(
    from: &Path,
    to: &Path,
    event: impl Fn(Record) -> Option<Record>,
    sample: impl Fn(Sample) -> Option<Sample>,
) {
    let items = Items::new(
        std::io::BufReader::new(File::open(from).unwrap()),
        Wanted::ALL,
    )
    .unwrap();
    let out = BufWriter::new(File::create(to).unwrap());
    let mut writer = Writer::new(out, items.header()).unwrap();
    let mut streams = HashMap::new();
    for item in items {
        let (stream, item) = item.unwrap();
        match item {
            Item::Process(process) => match streams.get(&stream) {
                Some(known) => writer.update(*known, &process).unwrap(),
                None => {
                    streams.insert(stream, writer.process(&process).unwrap());
                }
            },
            Item::Event(_, record) => {
                if let Some(record) = event(record) {
                    writer.push(streams[&stream], &record).unwrap();
                }
            }
            Item::Sample(one) => {
                if let Some(one) = sample(one) {
                    writer.sample(streams[&stream], one).unwrap();
                }
            }
            Item::Mark(mark) => writer.mark(streams[&stream], mark).unwrap(),
            Item::Frame(frame) => writer.frame(streams[&stream], frame).unwrap(),
            Item::Stack(stack) => writer.stack(streams[&stream], stack).unwrap(),
            Item::Touch(touch) => writer.touch(streams[&stream], touch).unwrap(),
            Item::End(end) => writer.end(streams[&stream], end).unwrap(),
        }
    }
    writer.finish().unwrap();
}
