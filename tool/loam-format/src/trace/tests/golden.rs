//! The golden file and the declared list agree with the code.

use std::path::PathBuf;

use serde_json::json;

use super::*;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../formats")
}

/// The bytes of the golden file.
fn golden() -> Vec<u8> {
    let header = Header {
        tool: "0.1.0".into(),
        command: vec!["program".into(), "argument".into()],
        directory: "/tmp".into(),
        started: "2026-11-27T00:00:00Z".into(),
        architecture: "x86_64".into(),
        cpu: "a processor".into(),
        cores: 2,
        memory_bytes: 1 << 34,
        kernel: "Linux 6.1".into(),
        page_size: 4_096,
        environment: [("MALLOC_ARENA_MAX".into(), "2".into())].into(),
        clock: Clock {
            source: "tsc".into(),
            ticks_per_second: 2_400_000_000,
            ..Clock::default()
        },
        ..Header::default()
    };
    let module = Module {
        path: "/usr/bin/program".into(),
        build_id: Some("00ff".into()),
        start: 0x5555_0000_0000,
        end: 0x5555_0001_0000,
        ..Module::default()
    };
    let process = Process {
        pid: 7,
        at: 10,
        program: "/usr/bin/program".into(),
        arguments: vec!["program".into(), "argument".into()],
        allocator: "system".into(),
        allocator_version: Some("glibc 2.36".into()),
        modules: vec![module],
        ..Process::default()
    };
    let child = Process {
        pid: 8,
        parent: Some(0),
        how: How::Fork,
        ..process.clone()
    };
    written(&header, |writer| {
        let stream = writer.process(&process).unwrap();
        for record in every_event() {
            writer.push(stream, &record).unwrap();
        }
        let child = writer.process(&child).unwrap();
        for record in &every_event()[..12] {
            writer.push(child, record).unwrap();
        }
        for at in 0..3 {
            let sample = Sample {
                time: Some(at * 100_000_000),
                resident_anonymous: Some(4_096 * (10 + at)),
                resident_heap: (at != 1).then_some(4_096 * at),
                threads: Some(1),
                ..Sample::default()
            };
            writer.sample(stream, sample).unwrap();
        }
        let touch = Touch {
            time: Some(5),
            address: Some(0x7f00_0000_1000),
            pages: Some(1),
        };
        writer.touch(stream, touch).unwrap();
        let end = End {
            ended: Ended::Code(3),
            at: 900_000_000,
            ..End::default()
        };
        writer.end(stream, end.clone()).unwrap();
        let ended = Ended::Signal(9);
        writer.end(child, End { ended, ..end }).unwrap();
    })
}

/// Later additions to the format: stacks, their frames, marks.
fn golden_with_stacks() -> Vec<u8> {
    let header = Header {
        tool: "0.1.0".into(),
        stack_bytes: 512 << 10,
        ..Header::default()
    };
    let module = |path: &str, start| Module {
        path: path.into(),
        build_id: Some("00ff".into()),
        start,
        end: start + 0x1000,
        offset: 0x2000,
        ..Module::default()
    };
    let process = Process {
        pid: 7,
        program: "/usr/bin/program".into(),
        modules: vec![
            module("/usr/bin/program", 0x5555_0000_0000),
            module("/usr/lib/library.so", 0x7fff_0000_0000),
        ],
        ..Process::default()
    };
    let frame = |number, caller, module, address| Frame {
        number: Some(number),
        caller,
        module,
        address: Some(address),
    };
    let stack = |event, frame, cut| Stack {
        event: Some(event),
        frame,
        cut: Some(cut),
        ..Stack::default()
    };
    written(&header, |writer| {
        let stream = writer.process(&process).unwrap();
        let mark = |time, name: &str| Mark {
            time,
            thread: 1,
            name: name.into(),
            ..Mark::default()
        };
        writer.mark(stream, mark(0, "load")).unwrap();
        for record in every_event() {
            writer.push(stream, &record).unwrap();
        }
        writer.mark(stream, mark(70_000, "serve")).unwrap();
        let frames = [
            frame(0, None, Some(0), 0x2040),
            frame(1, Some(0), Some(1), 0x2800),
            frame(2, Some(0), None, 0x7f12_3456_789a),
        ];
        for frame in frames {
            writer.frame(stream, frame).unwrap();
        }
        for stack in [
            stack(2, Some(1), 0),
            stack(3, Some(2), 1),
            stack(4, None, 1),
        ] {
            writer.stack(stream, stack).unwrap();
        }
        writer.end(stream, End::default()).unwrap();
    })
}

/// Version 2: stacks that say what they stand for.
fn golden_with_weights() -> Vec<u8> {
    let header = Header {
        tool: "0.1.0".into(),
        stack_bytes: 1,
        weighted: true,
        ..Header::default()
    };
    written(&header, |writer| {
        let stream = writer.process(&Process::default()).unwrap();
        for record in every_event() {
            writer.push(stream, &record).unwrap();
        }
        for (event, weight) in [(2, Some(1000)), (3, Some(12_500)), (4, None)] {
            let stack = Stack {
                event: Some(event),
                weight,
                ..Stack::default()
            };
            writer.stack(stream, stack).unwrap();
        }
        writer.end(stream, End::default()).unwrap();
    })
}

/// The name of a golden file, and the function that makes it.
type Golden = (&'static str, fn() -> Vec<u8>);

const GOLDEN: [Golden; 3] = [
    ("trace-1", golden),
    ("trace-1-stacks", golden_with_stacks),
    ("trace-2-weights", golden_with_weights),
];

/// The contents of a trace.
fn said(bytes: &[u8]) -> serde_json::Value {
    let mut read = Items::new(bytes, Wanted::ALL).unwrap();
    let header = serde_json::to_value(read.header()).unwrap();
    let items: Vec<_> = read
        .by_ref()
        .map(|item| {
            let (stream, item) = item.unwrap();
            let item = match item {
                Item::Process(process) => json!({ "process": process }),
                Item::Event(number, record) => json!({ "number": number, "event": record }),
                Item::Sample(sample) => json!({ "sample": sample }),
                Item::Touch(touch) => json!({ "touch": touch }),
                Item::Mark(mark) => json!({ "mark": mark }),
                Item::Stack(stack) => json!({ "stack": stack }),
                Item::Frame(frame) => json!({ "frame": frame }),
                Item::End(end) => json!({ "end": end }),
            };
            json!({ "stream": stream, "item": item })
        })
        .collect();
    json!({
        "header": header,
        "items": items,
        "damaged": read.damaged(),
        "missing": read.missing(),
    })
}

/// `cargo test -p loam-format -- --ignored golden` writes the golden files of a new version.
#[test]
#[ignore = "writes the golden files"]
fn the_golden_files_are_written() {
    for (name, make) in GOLDEN {
        let bytes = make();
        let text = serde_json::to_string_pretty(&said(&bytes)).unwrap() + "\n";
        std::fs::write(folder().join(format!("golden/{name}.trace")), bytes).unwrap();
        std::fs::write(folder().join(format!("golden/{name}.json")), text).unwrap();
    }
}

#[test]
fn the_golden_traces_say_what_they_always_said_and_the_writer_still_writes_that() {
    for (name, make) in GOLDEN {
        is_golden(name, make());
    }
}

fn is_golden(name: &str, made: Vec<u8>) {
    let bytes = std::fs::read(folder().join(format!("golden/{name}.trace"))).unwrap();
    let text = std::fs::read_to_string(folder().join(format!("golden/{name}.json"))).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(said(&bytes), expected);
    // The compressed bytes may differ between versions of zstd; the contents may not.
    assert_eq!(said(&made), expected);
    let mut chunks = Vec::new();
    for bytes in [&bytes, &made] {
        let mut reader = Reader::new(&bytes[..]).unwrap();
        let mut payloads = Vec::new();
        while let Some((chunk, payload)) = reader.next_chunk().unwrap() {
            if chunk.kind != ChunkKind::Index {
                payloads.push((chunk.kind, payload.to_vec()));
            }
        }
        chunks.push(payloads);
    }
    assert_eq!(chunks[0], chunks[1]);
}

fn names(list: &toml::Value, table: &str) -> Vec<(String, i64)> {
    let rows = list[table].as_array().unwrap();
    let number = |row: &toml::Value| {
        let found = row.get("number").or(row.get("kind"));
        found.and_then(toml::Value::as_integer).unwrap_or(-1)
    };
    rows.iter()
        .map(|row| (row["name"].as_str().unwrap().to_owned(), number(row)))
        .collect()
}

#[test]
fn the_declared_list_is_what_the_code_does() {
    let text = std::fs::read_to_string(folder().join("trace.toml")).unwrap();
    let list: toml::Value = toml::from_str(&text).unwrap();
    assert_eq!(list["version"].as_integer(), Some(VERSION.into()));
    assert_eq!(list["magic"].as_str().unwrap().as_bytes(), MAGIC);
    assert_eq!(
        list["limits"]["raw_bytes"].as_integer(),
        Some(MAX_RAW as i64)
    );
    assert_eq!(list["limits"]["rows"].as_integer(), Some(MAX_ROWS.into()));
    let chunks = ChunkKind::ALL.map(|kind| (kind.name().to_owned(), kind as i64));
    assert_eq!(names(&list, "chunk"), chunks);
    let columns = Column::ALL.map(|column| (column.name().to_owned(), -1));
    assert_eq!(names(&list, "column"), columns);
    let kinds = [
        ("allocate", columns::ALLOCATE),
        ("free", columns::FREE),
        ("resize-from", columns::FROM),
        ("resize-to", columns::TO),
        ("existing", columns::EXISTING),
        ("thread-begins", columns::BEGINS),
        ("thread-ends", columns::ENDS),
        ("other", columns::OTHER),
    ];
    let kinds = kinds.map(|(name, bits)| (name.to_owned(), i64::from(bits >> 4)));
    assert_eq!(names(&list, "operation"), kinds);
    let details = |name: &str| {
        let rows = list["operation"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["name"].as_str() == Some(name))
            .unwrap();
        let details = row["details"].as_array().unwrap();
        details
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        details("resize-to")[usize::from(columns::IN_PLACE)],
        "in-place"
    );
    assert_eq!(details("other")[usize::from(columns::FORK)], "fork");
    assert_eq!(details("other")[usize::from(columns::EXEC)], "exec");
    assert_eq!(details("other")[usize::from(columns::DROPPED)], "dropped");
    assert_eq!(details("other")[usize::from(columns::TRIM)], "trim");
    let family = |name: &str| {
        let names = list["families"][name].as_array().unwrap();
        names
            .iter()
            .map(|text| text.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let all = AllocFamily::ALL;
    assert_eq!(family("allocate"), all.map(AllocFamily::name));
    let aligned = all.into_iter().filter(|family| family.is_aligned());
    assert_eq!(
        family("aligned"),
        aligned.map(AllocFamily::name).collect::<Vec<_>>()
    );
    assert_eq!(family("free"), FreeFamily::ALL.map(FreeFamily::name));
    let sized = FreeFamily::ALL
        .into_iter()
        .filter(|family| family.is_sized());
    assert_eq!(
        family("sized"),
        sized.map(FreeFamily::name).collect::<Vec<_>>()
    );
    let codes = predict::CODES.map(|(name, number)| (name.to_owned(), number as i64));
    assert_eq!(names(&list, "address_code"), codes);
    let table = |name: &str| {
        let rows = list["table"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["name"].as_str() == Some(name))
            .unwrap();
        let columns = row["columns"].as_array().unwrap();
        columns
            .iter()
            .map(|row| row["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(table("samples"), <Sample as table::Row>::COLUMNS);
    assert_eq!(table("touches"), <Touch as table::Row>::COLUMNS);
    assert_eq!(table("stacks"), <Stack as table::Row>::COLUMNS);
    assert_eq!(table("frames"), <Frame as table::Row>::COLUMNS);
    assert_eq!(table("index"), <table::IndexRow as table::Row>::COLUMNS);
}

/// The bytes in `formats/trace.md`.
#[test]
fn the_example_of_the_documentation_is_right() {
    let event = |time, event| Record {
        time,
        thread: 0,
        event,
    };
    let allocate = |address| Event::Allocate {
        family: AllocFamily::Malloc,
        address,
        size: 24,
        alignment: 0,
    };
    let mut encoder = encode::Encoder::new(1_024);
    encoder.push(&event(0, allocate(0x1000)));
    encoder.push(&event(1_024, allocate(0x1020)));
    let free = Event::Free {
        family: FreeFamily::Free,
        address: 0x1000,
        size: 0,
        touched: None,
    };
    encoder.push(&event(1_024, free));
    let mut bytes = Vec::new();
    encoder.finish(0, &mut bytes);
    let expected: [&[u8]; 10] = [
        &[0, 0],
        &[3, 0x00, 0x00, 0x10],
        &[2, 0x00, 0x03],
        &[3, 0x00, 0x01, 0x00],
        &[2, 0x18, 0x18],
        &[0],
        &[0],
        &[0],
        &[4, 0x07, 0x80, 0x20, 0x02],
        &[1, 0x02],
    ];
    assert_eq!(bytes, expected.concat());
}
