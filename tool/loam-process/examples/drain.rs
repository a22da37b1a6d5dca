//! What the tool does with an event between a ring and the file, for a profiler: the events of a
//! trace are put into a ring as the recorder puts them there, and drained, followed and written.
//! Only `drained()` is of interest.
//!
//!     valgrind --tool=callgrind --toggle-collect='*drained*' \
//!         target/release/examples/drain FILE.trace
//!
//! One ring of one thread: of a trace of many threads the order is kept, and the threads are not.

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::time::{clock_gettime, ClockId};

use loam_format::trace::{Event, Header, Item, Items, Process, Stream, Wanted, Writer};
use loam_process::rings::{Batch, Blocks, Clock, Image, MAGIC, VERSION};

const RING: u64 = 1024 * 1024;
const SLOT: u64 = 4_096;
const BEGIN: u64 = 4_096 + 65_536 * 128;
/// Ticks of a nanosecond.
const TICKS: u64 = 3;

struct Ring {
    file: File,
    head: u64,
    since_time: u64,
}

impl Ring {
    fn unit(&mut self, word0: u64, word1: u64) {
        let bytes = [word0.to_le_bytes(), word1.to_le_bytes()].concat();
        let at = BEGIN + self.head % RING;
        self.file.write_all_at(&bytes, at).expect("the ring");
        self.head += 16;
        self.since_time += 16;
    }

    fn put(&mut self, time: u64, event: Event) {
        let stamp = (time + 1_000) * TICKS;
        if self.since_time >= 4_096 || self.head == 0 {
            self.unit(1 << 48, stamp);
            self.unit(time + 1_000, 1 << 32 | 1);
            self.since_time = 0;
        }
        let (word, size) = match event {
            Event::Allocate {
                family,
                address,
                size,
                ..
            } => (2 << 48 | (family as u64) << 53 | address, size),
            Event::Free {
                family,
                address,
                size,
                ..
            } => (3 << 48 | (family as u64) << 53 | address, size),
            Event::ResizeFrom { address, .. } => (4 << 48 | address, 0),
            Event::ResizeTo { address, size } => (5 << 48 | address, size),
            _ => return,
        };
        self.unit(word, stamp << 32 | size & 0xffff_ffff);
    }

    fn publish(&self) {
        let head = self.head.to_le_bytes();
        self.file.write_all_at(&head, SLOT + 8).expect("the slot");
    }
}

#[inline(never)]
fn drained(
    image: &mut Image,
    clock: &mut Clock,
    blocks: &mut Blocks,
    out: &mut Writer<File>,
) -> u64 {
    let mut events = 0;
    loop {
        let mut batch = Batch::default();
        let pass = image.pass(clock, true, &mut batch).expect("the ring");
        blocks.follow(&batch, &[]);
        events += batch.len() as u64;
        out.push_from(Stream(0), &mut batch).expect("the trace");
        if !pass.has_more {
            return events;
        }
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock");
    time.into()
}

fn main() {
    let path = std::env::args().nth(1).expect("a trace");
    let folder = tempfile::tempdir().expect("a folder");
    let mut file = File::create(folder.path().join("1.0")).expect("a ring");
    file.set_len(BEGIN + RING).expect("a ring");
    let mut control = vec![0; 1_416];
    control[..8].copy_from_slice(&MAGIC.to_le_bytes());
    control[8..12].copy_from_slice(&VERSION.to_le_bytes());
    control[64..68].copy_from_slice(&1_u32.to_le_bytes()); // slots_made
    file.write_all(&control).expect("a ring");
    file.seek(SeekFrom::Start(SLOT)).expect("a ring");
    let mut slot = vec![0; 32];
    slot[0] = 1;
    slot[16..24].copy_from_slice(&BEGIN.to_le_bytes());
    slot[24..32].copy_from_slice(&RING.to_le_bytes());
    file.write_all(&slot).expect("a ring");
    let mut image = Image::open(&folder.path().join("1.0"))
        .expect("a ring")
        .expect("a ring");
    let mut ring = Ring {
        file,
        head: 0,
        since_time: 0,
    };
    let (mut clock, mut blocks) = (Clock::new(0, 3e9), Blocks::default());
    let header = Header {
        clock: loam_format::trace::Clock {
            unit_ns: 1_024,
            ..Default::default()
        },
        ..Header::default()
    };
    let out = File::create(folder.path().join("out.trace")).expect("a trace");
    let mut out = Writer::new(out, &header).expect("a trace");
    out.process(&Process::default()).expect("a trace");
    let (mut events, mut spent) = (0, Duration::ZERO);
    let trace = BufReader::new(File::open(path).expect("the trace"));
    for item in Items::new(trace, Wanted::ALL).expect("a trace") {
        if let (_, Item::Event(_, record)) = item.expect("a whole trace") {
            ring.put(record.time, record.event);
            // A pass of half a millisecond.
            if ring.head % (RING / 4) < 32 && ring.since_time > 32 {
                ring.publish();
                let begin = processor_time();
                events += drained(&mut image, &mut clock, &mut blocks, &mut out);
                spent += processor_time() - begin;
            }
        }
    }
    ring.publish();
    events += drained(&mut image, &mut clock, &mut blocks, &mut out);
    let (_, statistics) = out.finish().expect("a trace");
    let each = statistics.event_bytes as f64 / statistics.events as f64;
    let nanoseconds = spent.as_nanos() as f64 / events as f64;
    println!("{events} events, {each:.2} bytes and about {nanoseconds:.1} ns an event");
}
