//! Cut files, flipped bits, wrong lengths, random events: the reader never panics, uses no more
//! memory than the limits allow, and still reads the sound parts.

use proptest::prelude::*;

use super::*;

fn sample_trace() -> Vec<u8> {
    written(&Header::default(), |writer| {
        let stream = writer.process(&Process::default()).unwrap();
        for round in 0..4u64 {
            for mut record in every_event() {
                record.time += round * 2_000_000_000;
                writer.push(stream, &record).unwrap();
            }
            writer.sample(stream, Sample::default()).unwrap();
            writer.mark(stream, Mark::default()).unwrap();
            writer.frame(stream, Frame::default()).unwrap();
            writer.stack(stream, Stack::default()).unwrap();
            writer.flush().unwrap();
        }
        writer.end(stream, End::default()).unwrap();
    })
}

/// Reads as far as possible.
fn read(bytes: &[u8]) -> Result<(usize, u64, u64), ReadError> {
    let mut items = Items::new(bytes, Wanted::ALL)?;
    let mut events = 0;
    for item in items.by_ref() {
        events += usize::from(matches!(item?.1, Item::Event(..)));
    }
    Ok((events, items.damaged(), items.missing()))
}

#[test]
fn a_trace_that_is_cut_anywhere_reads_to_its_last_whole_chunk() {
    let whole = sample_trace();
    let all = read(&whole).unwrap().0;
    let mut last = 0;
    for length in 0..whole.len() {
        match read(&whole[..length]) {
            Ok((events, damaged, _)) => {
                assert!(events >= last && events <= all && damaged <= 1);
                last = events;
            }
            Err(ReadError::Empty | ReadError::CutHead(_) | ReadError::NoHeader(_)) => {
                assert_eq!(last, 0)
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(last, all);
}

#[test]
fn a_flipped_bit_costs_its_chunk_and_is_named() {
    let whole = sample_trace();
    let mut reader = Reader::new(&whole[..]).unwrap();
    let mut chunks = Vec::new();
    while let Some((chunk, _)) = reader.next_chunk().unwrap() {
        chunks.push(chunk);
    }
    let all = read(&whole).unwrap().0;
    let second = chunks
        .iter()
        .filter(|chunk| chunk.kind == ChunkKind::Events)
        .nth(1)
        .unwrap();
    for byte in chunk::CHUNK_HEAD as u64..second.bytes {
        let mut bytes = whole.clone();
        bytes[(second.offset + byte) as usize] ^= 1 << (byte % 8);
        let (events, damaged, missing) = read(&bytes).unwrap();
        assert_eq!((events, damaged), (all - second.rows as usize, 1));
        assert_eq!(missing, u64::from(second.rows));
        let mut items = Items::new(&bytes[..], Wanted::ALL).unwrap();
        items.by_ref().for_each(|item| drop(item.unwrap()));
        let said = items.damage()[0].to_string();
        assert!(
            said.contains(&second.offset.to_string()) && said.contains("checksum"),
            "{said}"
        );
    }
}

#[test]
fn a_newer_version_and_other_files_are_refused_in_words() {
    let mut bytes = sample_trace();
    bytes[8] = 3;
    let said = Reader::new(&bytes[..]).unwrap_err().to_string();
    assert!(
        said.contains("version 3") && said.contains("reads version 2"),
        "{said}"
    );
    let said = Reader::new(&b"PK\x03\x04 a zip file of some kind"[..])
        .unwrap_err()
        .to_string();
    assert!(said.contains("no trace") && said.contains("PK"), "{said}");
    assert!(matches!(Reader::new(&b""[..]), Err(ReadError::Empty)));
    let mut lying = sample_trace();
    lying[FILE_HEAD + 8..FILE_HEAD + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    let said = Items::new(&lying[..], Wanted::ALL).unwrap_err().to_string();
    assert!(said.contains("byte 16"), "{said}");
}

fn arbitrary_event() -> impl Strategy<Value = Event> {
    let address = prop_oneof![
        0u64..4_096,
        any::<u64>(),
        (0u64..64).prop_map(|at| 0x7f00_0000_0000 + at * 48)
    ];
    let size = prop_oneof![0u64..300, any::<u64>()];
    let touched = prop_oneof![Just(None), any::<u64>().prop_map(Some)];
    (0..14u8, address, size, touched, any::<u64>()).prop_map(
        |(kind, address, size, touched, more)| match kind {
            0..=4 => {
                let family = AllocFamily::ALL[more as usize % 8];
                let alignment = if family.is_aligned() {
                    size.rotate_left(7)
                } else {
                    0
                };
                Event::Allocate {
                    family,
                    address,
                    size,
                    alignment,
                }
            }
            5..=8 => {
                let family = FreeFamily::ALL[more as usize % 6];
                let size = if family.is_sized() { size } else { 0 };
                Event::Free {
                    family,
                    address,
                    size,
                    touched,
                }
            }
            9 => Event::ResizeFrom { address, touched },
            10 => Event::ResizeTo { address, size },
            11 => Event::Existing { address, size },
            12 => [Event::ThreadBegins, Event::ThreadEnds, Event::Exec][more as usize % 3],
            _ if more % 3 == 0 => Event::Trim { keep: more },
            _ if more % 3 == 1 => Event::Fork { child: more as u32 },
            _ => Event::Dropped { count: more },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn events_of_any_kind_come_back(
        all in proptest::collection::vec((arbitrary_event(), 0..5u32, 0..5_000_000u64), 0..400),
    ) {
        let mut time = 0;
        let records: Vec<Record> = all.into_iter().map(|(event, thread, gap)| {
            time += gap & !1_023;
            Record { time, thread, event }
        }).collect();
        let bytes = written(&Header::default(), |writer| {
            let stream = writer.process(&Process::default()).unwrap();
            records.iter().for_each(|record| writer.push(stream, record).unwrap());
        });
        let read: Vec<Record> = items(&bytes).0.into_iter().filter_map(|(_, item)| match item {
            Item::Event(_, record) => Some(record),
            _ => None,
        }).collect();
        let expected: Vec<Record> = records.iter().map(|record| match record.event {
            // A block can not be at address 0.
            Event::Existing { address: 0, .. } => *record,
            _ => *record,
        }).collect();
        prop_assert_eq!(&read, &expected);
        let mut ordered = Ordered::new();
        let mut acts = Vec::new();
        read.iter().for_each(|record| ordered.push(record, &mut acts));
        ordered.finish(&mut acts);
        // Every block that began has ended, was lost, or lives.
        let begun = acts.iter().filter(|act| matches!(act.action, Action::Begin { .. })).count();
        let ended = acts.iter().filter(|act| {
            matches!(act.action, Action::End { .. } | Action::Gone { .. })
        }).count();
        prop_assert_eq!(begun, ended + ordered.live().count());
    }

    #[test]
    fn random_bytes_behind_a_header_do_no_harm(
        tail in proptest::collection::vec(any::<u8>(), 0..2_000),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8u8), 0..6),
    ) {
        let mut bytes = sample_trace();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        bytes.extend(tail);
        let _ = read(&bytes);
    }

    /// The checksums are right and the payloads are not. A faulty writer or an attacker makes such
    /// files.
    #[test]
    fn payloads_with_right_checksums_do_no_harm(
        payload in proptest::collection::vec(any::<u8>(), 0..600),
        kind in 1..11usize,
        rows in prop_oneof![0..40u32, Just(MAX_ROWS)],
        zeros in any::<bool>(),
    ) {
        let mut sealer = chunk::Sealer::new().unwrap();
        let payload = if zeros { vec![0; payload.len()] } else { payload };
        let kind = ChunkKind::ALL[kind - 1];
        let sealed = sealer.seal(kind, 0, rows, &payload).unwrap();
        let bytes = [&written(&Header::default(), |_| {})[..], sealed].concat();
        let _ = read(&bytes);
    }

    #[test]
    fn columns_of_random_bytes_do_no_harm(
        columns in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 9..10),
        rows in 0..60u32,
    ) {
        let mut payload = vec![0, 0];
        for column in &columns {
            varint::put(&mut payload, column.len() as u64);
            payload.extend_from_slice(column);
        }
        let mut out = Vec::new();
        let _ = decode::Decoder::default().decode(&payload, rows, 1_024, &mut out);
    }
}
