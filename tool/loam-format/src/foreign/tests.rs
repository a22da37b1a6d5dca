//! Each format in a few lines: the resulting trace, and the message if the recording is damaged.

use proptest::prelude::*;

use super::*;
use crate::trace::{Event, Item, Items, Record, Wanted};

/// The records of a trace, by stream, and what was imported.
fn imported(format: Format, bytes: &[u8]) -> (Vec<(u32, Record)>, Imported) {
    let begun = Begun::new(format.open(bytes)).unwrap();
    let (trace, imported) = begun.write("test", "recording", Vec::new(), 1).unwrap();
    let items = Items::new(&trace[..], Wanted::ALL).unwrap();
    assert_eq!(items.header().origin.as_ref().unwrap().file, "recording");
    let records = items.filter_map(|item| match item.unwrap() {
        (stream, Item::Event(_, record)) => Some((stream, record)),
        _ => None,
    });
    (records.collect(), imported)
}

/// The events in short: `thread:event`.
fn short(records: &[(u32, Record)]) -> Vec<String> {
    let of = |record: &Record| {
        let what = match record.event {
            Event::Allocate {
                family,
                address,
                size,
                alignment: 0,
            } => format!("{} {size}={address:#x}", family.name()),
            Event::Allocate {
                family,
                address,
                size,
                alignment,
            } => format!("{} {alignment},{size}={address:#x}", family.name()),
            Event::Free { address, .. } => format!("free {address:#x}"),
            Event::ResizeFrom { address, .. } => format!("from {address:#x}"),
            Event::ResizeTo { address, size } => format!("to {size}={address:#x}"),
            Event::ThreadBegins => "begins".to_owned(),
            Event::ThreadEnds => "ends".to_owned(),
            other => format!("{other:?}"),
        };
        format!("{}:{what}", record.thread)
    };
    records.iter().map(|(_, record)| of(record)).collect()
}

/// The error message, at the first call or later.
fn complaint(format: Format, bytes: &[u8]) -> String {
    match Begun::new(format.open(bytes)) {
        Err(error) => error.to_string(),
        Ok(begun) => {
            let (_, imported) = begun.write("test", "recording", Vec::new(), 1).unwrap();
            imported.stopped.expect("something is wrong").to_string()
        }
    }
}

const HEAPTRACK: &str =
    "v 10400 3\nX ./server --port 8\nI 1000 5e298f\ns 3 abc\na 64 1\n+ 0\na 10 \
    2\n+ 1\nc a\n+ 0\n- 0\n- 0\nR 3e5\n# strings: 1\n";
const RAW: &str =
    "v 10400 3\nx 8 ./server\nX ./server\nI 1000 5e298f\nm 1 -\nt 7f 0\n+ 64 1 a000\n\
                   - b000\nc 14\n- a000\n";

#[test]
fn heaptracks_interpreted_files_have_kinds_and_its_raw_ones_addresses() {
    let (records, found) = imported(Format::Heaptrack, HEAPTRACK.as_bytes());
    let lines = short(&records);
    assert_eq!(lines[0], "0:begins");
    assert_eq!(
        lines[1..],
        [
            "0:malloc 100=0x100000000",
            "0:malloc 16=0x100000070",
            "0:malloc 100=0x100000080",
            "0:free 0x100000080",
            "0:free 0x100000000"
        ]
    );
    assert_eq!(
        records[5].1.time / 1_000_000,
        9,
        "10 ms in units of 1,024 ns"
    );
    assert_eq!(found.about.format, "heaptrack 1.4");
    assert_eq!(found.about.command, ["./server", "--port", "8"]);
    assert_eq!(found.about.page_size, 4_096);

    let (records, found) = imported(Format::Heaptrack, RAW.as_bytes());
    assert_eq!(
        short(&records),
        ["0:begins", "0:malloc 100=0xa000", "0:free 0xa000"]
    );
    assert!(found.about.format.ends_with("raw") && found.about.lost.len() == 5);

    let later = HEAPTRACK.replace("10400 3", "20000 4");
    assert!(complaint(Format::Heaptrack, later.as_bytes()).starts_with("line 1: "));
    let wrong = complaint(
        Format::Heaptrack,
        HEAPTRACK.replace("+ 1", "+ 7").as_bytes(),
    );
    assert!(
        wrong.starts_with("line 8: ") && wrong.contains("`+ 7`"),
        "{wrong}"
    );
}

/// The stacks of a trace, from the innermost place outwards, by the numbers of their events.
fn stacks(bytes: &[u8], stack_bytes: u64) -> Vec<(u64, Vec<String>)> {
    let begun = Begun::new(Format::Heaptrack.open(bytes)).unwrap();
    let written = begun.write("test", "recording", Vec::new(), stack_bytes);
    let (trace, _) = written.unwrap();
    let items = Items::new(&trace[..], Wanted::ALL).unwrap();
    assert_eq!(items.header().stack_bytes, stack_bytes);
    let (mut frames, mut stacks, mut modules) = (Vec::new(), Vec::new(), Vec::new());
    for item in items {
        match item.unwrap().1 {
            Item::Frame(frame) => frames.push(frame),
            Item::Stack(stack) => stacks.push(stack),
            Item::Process(process) => modules = process.modules,
            _ => {}
        }
    }
    let shown = |frame: u64| {
        let frame = &frames[frame as usize];
        let address = frame.address.unwrap();
        let module = frame.module.map(|module| &modules[module as usize]);
        let path = module.map_or("nowhere", |module| &module.path);
        let names = module.map_or(&[][..], |module| &module.names);
        let names = names.iter().filter(|named| named.address == address);
        let names = names.map(|one| format!(" {}:{}", one.name, one.line.unwrap_or(0)));
        format!("{path}+{address:x}{}", names.collect::<String>())
    };
    let places = |mut next: Option<u64>| {
        let mut places = Vec::new();
        while let Some(frame) = next {
            places.push(shown(frame));
            next = frames[frame as usize].caller;
        }
        places
    };
    let stacks = stacks.iter();
    stacks
        .map(|stack| (stack.event.unwrap(), places(stack.frame)))
        .collect()
}

/// Two modules, one of which is mapped elsewhere later, and a program with blanks in its texts.
const RAW_STACKS: &str = "v 10400 3
x a /srv/a ber
X ./a
m 1 -
m 1 x 5000 0 100 200 100
m 4 l.so 9000 0 1000
t 5210 0
t 9010 1
+ 64 2 a000
m 1 -
m 4 l.so 20000 0 1000
t 20010 1
t 9010 3
+ 64 4 b000
+ 64 9 c000
";

const STACKS: &str = "v 10400 3
X ./a
s 6 /srv/a
s 4 main
s 3 a.c
s 8 take one
i 1210 1 2 3 7
t 1 0
i 1310 1 4 3 9 2 3 8
t 2 1
i 1410 1
t 3 2
a 64 3
+ 0
a 10 1
+ 1
";

#[test]
fn heaptracks_calls_become_stacks() {
    let of = |places: &[&str]| -> Vec<String> { places.iter().map(|one| (*one).into()).collect() };
    // The thread's beginning is event 0.
    assert_eq!(
        stacks(RAW_STACKS.as_bytes(), 1),
        [
            (1, of(&["l.so+f", "/srv/a ber+20f"])),
            (2, of(&["nowhere+900f", "l.so+f", "/srv/a ber+20f"])),
            (3, of(&[])),
        ]
    );
    let interpreted = [
        (
            1,
            of(&[
                "/srv/a+1410",
                "/srv/a+1310 take one:9 main:8",
                "/srv/a+1210 main:7",
            ]),
        ),
        (2, of(&["/srv/a+1210 main:7"])),
    ];
    assert_eq!(stacks(STACKS.as_bytes(), 1), interpreted);
    // Old formats had no lengths of texts.
    let old = STACKS.replace("10400 3", "10200 2");
    let old = old.replace("s 6 ", "s ").replace("s 4 ", "s ");
    let old = old.replace("s 3 ", "s ").replace("s 8 ", "s ");
    assert_eq!(stacks(old.as_bytes(), 1), interpreted);
    // A damaged line costs only the stacks through it.
    let damaged = STACKS.replace("i 1310 1", "i nothing");
    assert_eq!(
        stacks(damaged.as_bytes(), 1)[0].1[1],
        "nowhere+0",
        "{damaged}"
    );
    assert_eq!(stacks(STACKS.as_bytes(), 1 << 40), []);
}

#[test]
fn every_block_is_chosen_with_the_chance_of_its_size() {
    let mut text = STACKS.replace("a 64 3\n+ 0\n", "a 1000 3\n");
    text += &"+ 0\n".repeat(4_000);
    let chosen = stacks(text.as_bytes(), 4_096).len();
    // 0x1000 bytes are chosen in 63 of 100 cases.
    assert!((2_400..2_650).contains(&chosen), "{chosen}");
}

const LOG: &str = "5 6 malloc(32)=0x7f90495120e0
5 6 calloc(2,74)=0x7f9049537480
5 7 realloc(0x7f90495120e0,64)=0x7f9049536680
5 6 realloc(0x0,8)=0x7f9049536700
5 6 posix_memalign(256,240)=0x7f9049583300
5 6 jemalloc_stats()
5 6 free((nil))
8 8 free(0x7f9049536680)
5 6 free(0x7f9049536680)
";

#[test]
fn a_log_of_logalloc_has_processes_and_threads() {
    let (records, found) = imported(Format::Logalloc, LOG.as_bytes());
    assert_eq!((found.processes, found.threads), (2, 3));
    let of = |stream: u32| {
        let records: Vec<_> = records
            .iter()
            .filter(|one| one.0 == stream)
            .copied()
            .collect();
        short(&records)
    };
    assert_eq!(
        of(0),
        [
            "0:begins",
            "0:malloc 32=0x7f90495120e0",
            "0:calloc 148=0x7f9049537480",
            "1:begins",
            "1:from 0x7f90495120e0",
            "1:to 64=0x7f9049536680",
            "0:malloc 8=0x7f9049536700",
            "0:aligned 256,240=0x7f9049583300",
            "0:free 0x7f9049536680"
        ]
    );
    assert_eq!(of(1), ["0:begins", "0:free 0x7f9049536680"]);
    let wrong = complaint(
        Format::Logalloc,
        LOG.replace("calloc(2,74)", "calloc(2)").as_bytes(),
    );
    assert!(
        wrong.starts_with("line 2: ") && wrong.contains("MALLOC_LOG"),
        "{wrong}"
    );
}

#[test]
fn a_munged_log_has_numbers_for_blocks() {
    let log =
        "1 1 malloc(32)=#1\n1 1 realloc(#1,64)=#1\n1 1 malloc(32)=#2\n1 1 realloc(#2,99)=#0\n\
               1 1 free(#2)\n1 1 free(#7)\n";
    let (records, _) = imported(Format::Logalloc, log.as_bytes());
    assert_eq!(
        short(&records)[1..],
        [
            "0:malloc 32=0x100000000",
            "0:from 0x100000000",
            "0:to 64=0x100000020",
            "0:malloc 32=0x100000000",
            "0:from 0x100000000",
            "0:to 99=0x0",
            "0:free 0x100000000"
        ]
    );
}

const ANDROID: &str = "186: malloc 0xb6038060 20 1000000 1001000
187: calloc 0xb609f080 32 4 1002000 1003000
187: realloc 0xb609f080 0xb609f080 12 1004000 1005000
187: realloc 0xb7000000 0x0 9 1004000 1005000
186: memalign 0x85423660 16 104 1006000 1007000
186: free 0xb6038060 3000000 3100000
186: free 0x0 3000000 3100000
187: thread_done 0x0 4000000
187: malloc 0xb6038060 8 5000000 5001000
";

#[test]
fn androids_threads_end_and_their_numbers_are_used_again() {
    let (records, found) = imported(Format::MemoryReplay, ANDROID.as_bytes());
    assert_eq!(
        short(&records),
        [
            "0:begins",
            "0:malloc 20=0xb6038060",
            "1:begins",
            "1:calloc 128=0xb609f080",
            "1:from 0xb609f080",
            "1:to 12=0xb609f080",
            "1:malloc 9=0xb7000000",
            "0:aligned 16,104=0x85423660",
            "0:free 0xb6038060",
            "1:ends",
            "2:begins",
            "2:malloc 8=0xb6038060"
        ]
    );
    // A free has the time at which it began; units of 1,024 ns.
    assert_eq!(records[8].1.time, 1_999_000 / 1_024 * 1_024);
    assert!(!found.about.lost.contains(&"times"));
    let old = b"186: malloc 0xb6038060 20\n186: free 0xb6038060\n";
    let (records, found) = imported(Format::MemoryReplay, old);
    assert_eq!(records.len(), 3);
    assert!(found.about.lost.contains(&"times"));
    let wrong = complaint(
        Format::MemoryReplay,
        ANDROID.replace("32 4 ", "32 four ").as_bytes(),
    );
    assert!(
        wrong.starts_with("line 2: ") && wrong.contains("32 four"),
        "{wrong}"
    );
}

/// A record of a binary trace.
fn record(thread: u32, kind: u8, words: [u64; 4]) -> Vec<u8> {
    let mut record = thread.to_le_bytes().to_vec();
    record.extend([kind, 0, 0, 0]);
    words
        .iter()
        .for_each(|word| record.extend(word.to_le_bytes()));
    record.resize(64, 0);
    record
}

fn binary() -> Vec<u8> {
    [
        record(1, 255, [0x1234, 0, 8, 0]),
        record(1, 1, [0, 0xa000, 100, 0]),
        record(2, 2, [0, 0xb000, 64, 0]),
        record(2, 4, [0xb000, 0xc000, 200, 64]),
        record(2, 4, [0, 0xf000, 7, 0]),
        record(1, 8, [0, 0xd000, 240, 256]),
        record(1, 8, [12, 0xe000, 240, 3]),
        record(1, 3, [0xa000, 0, 0, 0]),
        record(1, 3, [0, 0, 0, 0]),
        record(0, 0, [0, 0, 0, 0]),
    ]
    .concat()
}

#[test]
fn a_binary_trace_of_glibcs_utilities_is_read_record_by_record() {
    let (records, _) = imported(Format::Mtrace, &binary());
    assert_eq!(
        short(&records),
        [
            "0:begins",
            "0:malloc 100=0xa000",
            "1:begins",
            "1:calloc 64=0xb000",
            "1:from 0xb000",
            "1:to 200=0xc000",
            "1:malloc 7=0xf000",
            "0:aligned 256,240=0xd000",
            "0:aligned 3,240=0x0",
            "0:free 0xa000"
        ]
    );
    let bytes = binary();
    let wrong = complaint(Format::Mtrace, &bytes[..200]);
    assert!(
        wrong.starts_with("byte 192: the file ends 8 bytes into"),
        "{wrong}"
    );
    let mut unknown = bytes.clone();
    unknown[64 * 3 + 4] = 77;
    assert!(complaint(Format::Mtrace, &unknown).starts_with("byte 192: a record has the type 77"));
    let narrow = [
        record(1, 255, [0x1234, 0, 4, 0]),
        record(1, 1, [0, 8, 8, 0]),
    ]
    .concat();
    assert!(complaint(Format::Mtrace, &narrow).contains("64-bit"));
}

#[test]
fn the_format_is_told_by_the_first_bytes() {
    let starts: [(&[u8], Format); 5] = [
        (HEAPTRACK.as_bytes(), Format::Heaptrack),
        (LOG.as_bytes(), Format::Logalloc),
        (b"1 1 malloc(32)=#1\n", Format::Logalloc),
        (ANDROID.as_bytes(), Format::MemoryReplay),
        (&binary(), Format::Mtrace),
    ];
    for (start, format) in starts {
        assert_eq!(Format::of_start(start), Some(format));
    }
    for start in [&b"#!/bin/sh\n"[..], b"", b"LOAMTRC\n", b"v \n", &[0; 64]] {
        assert_eq!(Format::of_start(start), None);
    }
    assert!(complaint(Format::Logalloc, b"5 6 jemalloc_stats()\n").contains("no allocation"));
}

proptest! {
    #[test]
    fn hostile_bytes_are_an_error_and_no_panic(
        which in 0..4usize,
        good in 0..7usize,
        at in 0..600usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let binary = binary();
        let samples = [
            HEAPTRACK.as_bytes(),
            RAW.as_bytes(),
            STACKS.as_bytes(),
            RAW_STACKS.as_bytes(),
            LOG.as_bytes(),
            ANDROID.as_bytes(),
            &binary,
        ];
        let mut input = samples[good].to_vec();
        let at = at.min(input.len());
        input.splice(at..(at + bytes.len()).min(samples[good].len()).max(at), bytes);
        let begun = Begun::new(Format::ALL[which].open(&input[..]));
        if let Ok(begun) = begun {
            let (trace, found) = begun.write("test", "recording", Vec::new(), 1).unwrap();
            let events = Items::new(&trace[..], Wanted::ALL).unwrap();
            let events = events.filter(|item| matches!(item, Ok((_, Item::Event(..))))).count();
            prop_assert_eq!(events as u64, found.events);
        }
    }
}
