//! Traces as whole files: items that are written can be read back, and hostile bytes do no harm.

mod golden;
mod hostile;
mod ordered;
mod size;

use super::*;

/// A trace in memory.
fn written(header: &Header, write: impl FnOnce(&mut Writer<Vec<u8>>)) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    write(&mut writer);
    writer.finish().unwrap().0
}

/// All items of a trace.
fn items(bytes: &[u8]) -> (Vec<(u32, Item)>, u64, u64) {
    let mut items = Items::new(bytes, Wanted::ALL).unwrap();
    let all = items.by_ref().map(Result::unwrap).collect();
    (all, items.damaged(), items.missing())
}

/// One event of each kind, with ascending times.
fn every_event() -> Vec<Record> {
    let mut events = Vec::new();
    let mut time = 0;
    let mut push = |thread, event| {
        time += 1_024 * 3;
        events.push(Record {
            time,
            thread,
            event,
        });
    };
    push(0, Event::ThreadBegins);
    push(
        0,
        Event::Existing {
            address: 0x7f00_0000_1000,
            size: 100,
        },
    );
    for (at, family) in AllocFamily::ALL.into_iter().enumerate() {
        let alignment = if family.is_aligned() {
            1 << (at * 7)
        } else {
            0
        };
        let address = 0x55aa_0000_0010 + 0x40 * at as u64;
        push(
            at as u32 % 3,
            Event::Allocate {
                family,
                address,
                size: 40 * at as u64,
                alignment,
            },
        );
    }
    for (at, family) in FreeFamily::ALL.into_iter().enumerate() {
        let size = if family.is_sized() { 40 * at as u64 } else { 0 };
        push(
            1,
            Event::Free {
                family,
                address: 0x55aa_0000_0010 + 0x40 * at as u64,
                size,
                touched: (at % 2 == 0).then_some(at as u64),
            },
        );
    }
    let last = 0x55aa_0000_0010 + 0x40 * 7;
    let resizes = [(last, last), (last, 0), (last, 0x55aa_1000_0010)];
    for (address, to) in resizes {
        push(
            2,
            Event::ResizeFrom {
                address,
                touched: None,
            },
        );
        push(
            2,
            Event::ResizeTo {
                address: to,
                size: 9_999,
            },
        );
    }
    push(
        2,
        Event::Allocate {
            family: AllocFamily::Malloc,
            address: 0,
            size: u64::MAX,
            alignment: 0,
        },
    );
    push(
        2,
        Event::Allocate {
            family: AllocFamily::Aligned,
            address: 0x1001,
            size: 1,
            alignment: 3,
        },
    );
    push(
        2,
        Event::Free {
            family: FreeFamily::Free,
            address: 0xdead_beef,
            size: 0,
            touched: Some(1 << 30),
        },
    );
    push(0, Event::Fork { child: 1 });
    push(0, Event::Dropped { count: 77 });
    push(0, Event::Exec);
    push(2, Event::ThreadEnds);
    events
}

#[test]
fn what_is_written_comes_back() {
    let header = Header {
        command: vec!["redis-server".into(), "--port 0".into()],
        page_size: 4_096,
        ..Header::default()
    };
    let process = Process {
        pid: 42,
        program: "/bin/sh".into(),
        ..Process::default()
    };
    let sample = Sample {
        time: Some(5),
        resident_anonymous: Some(1 << 40),
        ..Sample::default()
    };
    let touch = Touch {
        time: Some(6),
        address: Some(0x7000),
        pages: Some(9),
    };
    let end = End {
        ended: Ended::Signal(9),
        reason: Some("killed".into()),
        ..End::default()
    };
    let events = every_event();
    let bytes = written(&header, |writer| {
        let stream = writer.process(&process).unwrap();
        for record in &events {
            writer.push(stream, record).unwrap();
        }
        writer.sample(stream, sample.clone()).unwrap();
        writer.touch(stream, touch.clone()).unwrap();
        writer.end(stream, end.clone()).unwrap();
    });
    let read = Items::new(&bytes[..], Wanted::ALL).unwrap();
    assert_eq!(*read.header(), header);
    let (all, damaged, missing) = items(&bytes);
    assert_eq!((damaged, missing), (0, 0));
    let mut expected = vec![Item::Process(process)];
    let numbered = events.iter().enumerate();
    expected.extend(numbered.map(|(at, record)| Item::Event(at as u64, *record)));
    expected.push(Item::Sample(Sample {
        event: Some(events.len() as u64),
        ..sample
    }));
    expected.push(Item::Touch(touch));
    expected.push(Item::End(End {
        events: events.len() as u64,
        ..end
    }));
    let found: Vec<Item> = all.into_iter().map(|(_, item)| item).collect();
    assert_eq!(found, expected);
}

#[test]
fn each_chunk_stands_alone_and_every_flush_leaves_a_readable_prefix() {
    let events = every_event();
    let mut prefixes = Vec::new();
    let bytes = written(&Header::default(), |writer| {
        let stream = writer.process(&Process::default()).unwrap();
        for record in &events {
            writer.push(stream, record).unwrap();
            writer.flush().unwrap();
            prefixes.push(writer.statistics().file_bytes as usize);
        }
    });
    for (at, prefix) in prefixes.into_iter().enumerate() {
        let (all, damaged, _) = items(&bytes[..prefix]);
        assert_eq!((all.len(), damaged), (at + 2, 0));
        let last = all.last().unwrap();
        assert_eq!(last.1, Item::Event(at as u64, events[at]));
    }
}

#[test]
fn a_bounded_file_is_never_larger_and_ends_with_its_streams() {
    let events = every_event();
    for most in [6_000, 9_000, 20_000] {
        let bytes = written(&Header::default(), |writer| {
            writer.bound(Some(most));
            let stream = writer.process(&Process::default()).unwrap();
            for round in 0..5_000 {
                for record in &events {
                    let time = record.time + round * (1 << 20);
                    writer.push(stream, &Record { time, ..*record }).unwrap();
                }
                writer.flush().unwrap();
            }
            assert!(writer.is_full());
            // What is known of its files at last has no room.
            let modules = (0..9_000).map(|number| Module {
                path: format!("/usr/lib/{:x}.so", u64::pow(number, 4)),
                ..Module::default()
            });
            let known = Process {
                modules: modules.collect(),
                ..Process::default()
            };
            writer.update(stream, &known).unwrap();
            writer.end(stream, End::default()).unwrap();
        });
        assert!(bytes.len() as u64 <= most, "{} of {most}", bytes.len());
        let (all, damaged, missing) = items(&bytes);
        assert_eq!((damaged, missing), (0, 0));
        let Some((_, Item::End(end))) = all.last() else {
            panic!("the stream has no end")
        };
        let kept = all
            .iter()
            .filter(|(_, item)| matches!(item, Item::Event(..)));
        assert_eq!(end.events, kept.count() as u64);
    }
}

#[test]
fn streams_that_have_ended_keep_no_room_of_a_bounded_file() {
    let bytes = written(&Header::default(), |writer| {
        writer.bound(Some(256 << 10));
        for _ in 0..200 {
            let stream = writer.process(&Process::default()).unwrap();
            for record in &every_event() {
                writer.push(stream, record).unwrap();
            }
            writer.end(stream, End::default()).unwrap();
            assert!(!writer.is_full());
        }
    });
    let (all, ..) = items(&bytes);
    let events = all
        .iter()
        .filter(|(_, item)| matches!(item, Item::Event(..)));
    assert_eq!(events.count(), 200 * every_event().len());
}

#[test]
fn a_chunk_of_a_kind_that_is_not_known_is_passed_over() {
    let header = written(&Header::default(), |_| {});
    let mut sealer = chunk::Sealer::new().unwrap();
    let sealed = sealer.seal(ChunkKind::Stacks, 0, 5, b"whatever").unwrap();
    let mut strange = sealed.to_vec();
    strange[0] = 99;
    let mut head = [0; chunk::CHUNK_HEAD];
    head.copy_from_slice(&strange[..chunk::CHUNK_HEAD]);
    let checksum = chunk::ChunkHead::checksum_of(&head, &strange[chunk::CHUNK_HEAD..]);
    strange[20..24].copy_from_slice(&checksum.to_le_bytes());
    let process = sealer
        .seal(ChunkKind::Process, 3, 1, b"{\"pid\":7}")
        .unwrap();
    let bytes = [&header[..], &strange[..], process].concat();
    let (all, damaged, _) = items(&bytes);
    assert_eq!(damaged, 0);
    assert!(matches!(&all[..], [(3, Item::Process(process))] if process.pid == 7));
}

#[test]
fn the_index_names_every_chunk() {
    let events = every_event();
    let bytes = written(&Header::default(), |writer| {
        let stream = writer.process(&Process::default()).unwrap();
        for record in &events {
            writer.push(stream, record).unwrap();
        }
        writer.flush().unwrap();
        writer.push(stream, &events[events.len() - 1]).unwrap();
    });
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut chunks = Vec::new();
    let mut index = Vec::new();
    while let Some((chunk, payload)) = reader.next_chunk().unwrap() {
        if chunk.kind == ChunkKind::Index {
            index = table::decode::<table::IndexRow>(payload, chunk.rows).unwrap();
        } else {
            chunks.push((
                Some(chunk.offset),
                Some(chunk.kind as u64),
                Some(chunk.rows.into()),
            ));
        }
    }
    let listed: Vec<_> = index
        .iter()
        .map(|row| (row.offset, row.kind, row.rows))
        .collect();
    assert_eq!(listed, chunks);
    let firsts: Vec<_> = index.iter().filter_map(|row| row.first_event).collect();
    assert_eq!(firsts, [0, events.len() as u64]);
}

#[test]
fn events_of_a_later_version_are_passed_over() {
    // The payload has two unknown events between two frees of old blocks: one with an extra, one
    // without.
    let mut payload = vec![0, 0];
    let free = columns::FREE;
    let later = columns::OTHER | 9;
    let all: [&[u8]; 9] = [
        &[free, later | columns::FLAG, later, free],
        &[0, 4],
        &[0, 1, 1, 1],
        &[],
        &[],
        &[],
        &[77],
        &[],
        &[0, 32, 0, 32],
    ];
    for column in all {
        varint::put(&mut payload, column.len() as u64);
        payload.extend_from_slice(column);
    }
    let mut read = Vec::new();
    let mut decoder = decode::Decoder::default();
    decoder.decode(&payload, 4, 1, &mut read).unwrap();
    let frees: Vec<_> = read
        .iter()
        .map(|record| match record.event {
            Event::Free { address, .. } => (record.time, address),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(frees, [(0, 16), (3, 32)]);
}
