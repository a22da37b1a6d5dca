//! Bytes per event, on streams with a known predictability. The limits are a little above the
//! measured figures, so that a more costly encoding fails; `-- --nocapture sizes` prints the
//! figures by column.

use std::collections::HashMap;

use super::*;

/// A heap that hands out addresses as a thread-caching allocator does: first the block of the class
/// that the thread freed last, else the next slot of the thread's span.
#[derive(Default)]
struct Heap {
    freed: HashMap<(u32, u64), Vec<u64>>,
    spans: HashMap<(u32, u64), (u64, u64)>,
    fresh: u64,
}

impl Heap {
    fn class(size: u64) -> u64 {
        size.max(1).div_ceil(16) * 16
    }

    fn allocate(&mut self, thread: u32, size: u64) -> u64 {
        let class = Heap::class(size);
        if let Some(address) = self.freed.entry((thread, class)).or_default().pop() {
            return address;
        }
        let (next, end) = self.spans.entry((thread, class)).or_default();
        if *next + class > *end {
            let length = (class * 8).max(65_536);
            *next = 0x7f12_3400_0000 + self.fresh;
            *end = *next + length;
            self.fresh += length;
        }
        *next += class;
        *next - class
    }

    fn free(&mut self, thread: u32, size: u64, address: u64) {
        let class = Heap::class(size);
        self.freed.entry((thread, class)).or_default().push(address);
    }
}

/// A program on that heap. It writes its events.
struct Program {
    heap: Heap,
    random: u64,
    records: Vec<Record>,
}

impl Program {
    fn new() -> Program {
        Program {
            heap: Heap::default(),
            random: 1,
            records: Vec::new(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % below
    }

    /// Typical sizes of programs: few different ones, most of them small.
    fn size(&mut self) -> u64 {
        const SIZES: [u64; 12] = [16, 24, 24, 32, 32, 40, 48, 64, 72, 96, 128, 1_040];
        match self.random(20) {
            at @ 0..12 => SIZES[at as usize],
            12..18 => 16 + self.random(200),
            _ => 256 + self.random(4_000),
        }
    }

    fn put(&mut self, thread: u32, event: Event) {
        // Events are about forty nanoseconds apart.
        let time = self.records.last().map_or(0, |record| record.time) + 20 + self.random(40);
        self.records.push(Record {
            time,
            thread,
            event,
        });
    }

    fn allocate(&mut self, thread: u32) -> (u64, u64) {
        let size = self.size();
        let address = self.heap.allocate(thread, size);
        let family = AllocFamily::Malloc;
        let event = Event::Allocate {
            family,
            address,
            size,
            alignment: 0,
        };
        self.put(thread, event);
        (address, size)
    }

    fn free(&mut self, thread: u32, (address, size): (u64, u64)) {
        self.heap.free(thread, size, address);
        let family = FreeFamily::Free;
        let event = Event::Free {
            family,
            address,
            size: 0,
            touched: None,
        };
        self.put(thread, event);
    }
}

const EVENTS: usize = 1_000_000;

fn fifo(program: &mut Program) {
    let mut queue = std::collections::VecDeque::new();
    while program.records.len() < EVENTS {
        queue.push_back(program.allocate(0));
        if queue.len() > 1_000 {
            let block = queue.pop_front().unwrap();
            program.free(0, block);
        }
    }
}

fn lifo(program: &mut Program) {
    let mut stack = Vec::new();
    while program.records.len() < EVENTS {
        if program.random(2) == 0 || stack.is_empty() {
            stack.push(program.allocate(0));
        } else {
            let block = stack.pop().unwrap();
            program.free(0, block);
        }
    }
}

/// `live` blocks are allocated and freed in random order by `threads` threads.
fn random_lifetimes(program: &mut Program, live: u64, threads: u64) {
    let mut blocks = Vec::new();
    let mut thread = 0;
    while program.records.len() < EVENTS {
        if program.random(30) == 0 {
            thread = program.random(threads) as u32;
        }
        if (blocks.len() as u64) < live {
            blocks.push(program.allocate(thread));
        } else {
            let at = program.random(live) as usize;
            let block = blocks.swap_remove(at);
            program.free(thread, block);
        }
    }
}

fn teardown(program: &mut Program) {
    let blocks: Vec<_> = (0..EVENTS / 2).map(|_| program.allocate(0)).collect();
    blocks.into_iter().for_each(|block| program.free(0, block));
}

#[test]
fn an_event_takes_at_most_the_bytes_that_the_format_promises() {
    let mut said = Vec::new();
    let mut measure = |name: &str, most: f64, run: &dyn Fn(&mut Program)| {
        let mut program = Program::new();
        run(&mut program);
        let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
        let stream = writer.process(&Process::default()).unwrap();
        let begun = std::time::Instant::now();
        for record in &program.records {
            writer.push(stream, record).unwrap();
        }
        writer.flush().unwrap();
        let nanoseconds = begun.elapsed().as_nanos() as f64 / program.records.len() as f64;
        let statistics = writer.statistics().clone();
        let each = |bytes: u64| bytes as f64 / statistics.events as f64;
        let (bytes, _) = writer.finish().unwrap();
        let all = each(statistics.event_bytes);
        let columns: Vec<String> = statistics
            .by_column()
            .filter(|column| column.bytes > 0)
            .map(|column| format!("{} {:.2}", column.column.name(), each(column.bytes)))
            .collect();
        println!(
            "{name:<22} {all:>5.2} B  {nanoseconds:>4.0} ns  raw: {}",
            columns.join(", ")
        );
        if all > most {
            said.push(format!(
                "{name}: {all:.2} B an event, at most {most} expected"
            ));
        }
        let read = Items::new(&bytes[..], Wanted::ALL).unwrap();
        let events = read.filter(|item| matches!(item, Ok((_, Item::Event(..)))));
        assert_eq!(events.count(), program.records.len());
    };
    measure("fifo", 2.5, &fifo);
    measure("lifo", 1.5, &lifo);
    measure("random, 1,000 live", 3.2, &|p| {
        random_lifetimes(p, 1_000, 1)
    });
    measure("random, 100,000 live", 4.0, &|p| {
        random_lifetimes(p, 100_000, 1)
    });
    measure("8 threads, 10,000 live", 4.0, &|p| {
        random_lifetimes(p, 10_000, 8)
    });
    measure("teardown", 4.0, &teardown);
    assert!(said.is_empty(), "{said:?}");
}
