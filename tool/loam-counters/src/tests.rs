//! The reader against artificial processes: small ones with known sums, newer and older ones,
//! hostile ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use loam_format::counters::directory::{Directory, DirectoryError};
use loam_format::memory::{Memory, ReadError};

use crate::{read_memory, CountersError, Passes, Snapshot};

mod bins;
mod cost;

const BLOCK: u64 = 0x10000;

/// Memory that a test writes piece by piece.
#[derive(Debug, Clone, Default)]
struct Pretended {
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl Memory for Pretended {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = buffer.len();
        let unmapped = ReadError::Unmapped { address, length };
        let piece = self.pieces.range(..=address).next_back();
        let (start, bytes) = piece.ok_or(unmapped.clone())?;
        let offset = (address - start) as usize;
        let end = offset.checked_add(length).ok_or(unmapped.clone())?;
        buffer.copy_from_slice(bytes.get(offset..end).ok_or(unmapped)?);
        Ok(())
    }
}

/// A directory under construction.
#[derive(Debug, Clone)]
struct Process {
    memory: Pretended,
    tables: Vec<Vec<u8>>,
    fields: Vec<Vec<u8>>,
    version: u32,
}

struct Shape {
    kind: u32,
    parent: u32,
    address: u64,
    stride: u32,
    count: u32,
    link: u32,
    lock: u32,
}

const NONE: u32 = u32::MAX;
const PLAIN: Shape = Shape {
    kind: 1,
    parent: NONE,
    address: 0,
    stride: 0,
    count: 1,
    link: NONE,
    lock: NONE,
};

fn padded(text: &str, length: usize) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(length, 0);
    bytes
}

impl Process {
    fn new() -> Process {
        Process {
            memory: Pretended::default(),
            tables: Vec::new(),
            fields: Vec::new(),
            version: 1,
        }
    }

    /// Adds a table with fields of 8 bytes each, one after the other.
    fn table(&mut self, name: &str, shape: Shape, fields: &[(&str, u32)]) -> u32 {
        let number = self.tables.len() as u32;
        let mut table = padded(name, 24);
        table.extend(shape.kind.to_le_bytes());
        table.extend(shape.parent.to_le_bytes());
        table.extend(shape.address.to_le_bytes());
        for value in [shape.stride, shape.count, shape.link, shape.lock] {
            table.extend(value.to_le_bytes());
        }
        table.extend([0; 8]);
        self.tables.push(table);
        for (field, offset) in fields {
            self.field(field, number, *offset, 8, 1);
        }
        number
    }

    fn field(&mut self, name: &str, table: u32, offset: u32, width: u32, count: u32) {
        let mut field = padded(name, 24);
        for value in [table, offset, width, count] {
            field.extend(value.to_le_bytes());
        }
        field.extend([0; 8]);
        self.fields.push(field);
    }

    fn words(&mut self, address: u64, words: &[u64]) {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.pieces.insert(address, bytes);
    }

    fn memory(&self) -> Pretended {
        let mut block = b"LOAMCNTR".to_vec();
        let size = 128 + 64 * self.tables.len() + 48 * self.fields.len();
        let counts = [self.tables.len() as u32, 48, self.fields.len() as u32, 0];
        for value in [self.version, 128, size as u32, 64]
            .into_iter()
            .chain(counts)
        {
            block.extend(value.to_le_bytes());
        }
        block.extend(BLOCK.to_le_bytes());
        block.extend(padded("9.8.7", 32));
        block.extend([0; 48]);
        block.extend(self.tables.iter().chain(&self.fields).flatten());
        let mut memory = self.memory.clone();
        memory.pieces.insert(BLOCK, block);
        memory
    }
}

/// Two classes, two threads, one large block, one region with a block of pages.
fn process() -> Process {
    let mut process = Process::new();
    let at = |address| Shape { address, ..PLAIN };
    process.table(
        "constant",
        at(0x20000),
        &[
            ("page_bytes", 0),
            ("block_bytes", 8),
            ("map_bytes_per_block", 16),
            ("span_record_bytes", 24),
            ("magazine_limit", 32),
            ("frees_per_look", 40),
        ],
    );
    process.words(0x20000, &[4096, 2 << 20, 4096, 64, 100, 1000]);
    let array = |address, stride, count| Shape {
        kind: 2,
        address,
        stride,
        count,
        ..PLAIN
    };
    process.table(
        "class",
        array(0x21000, 24, 3),
        &[("bytes", 0), ("pages", 8), ("slots", 16)],
    );
    process.words(0x21000, &[0, 0, 0, 100, 1, 40, 2000, 2, 4]);
    let locked = |shape| Shape { lock: 0, ..shape };
    process.table(
        "bin",
        locked(array(0x22000, 64, 3)),
        &[
            ("lock_acquisitions", 8),
            ("lock_contentions", 16),
            ("spans", 24),
            ("free_slots", 32),
            ("queued", 40),
            ("unbacked_pages", 48),
            ("taken", 56),
            // No slots: this is the word of the lock, which belongs to no counter.
            ("absent_slots", 0),
            ("absent_pages", 0),
        ],
    );
    let mut words = vec![0; 8];
    words.extend([0, 50, 5, 3, 20, 2, 0, 120]);
    words.extend([0, 60, 6, 2, 1, 0, 1, 8]);
    process.words(0x22000, &words);
    let list = Shape {
        kind: 3,
        address: 0x23000,
        count: 100,
        link: 0,
        ..PLAIN
    };
    let cache = process.table(
        "cache",
        list,
        &[
            ("refills", 8),
            ("flushes", 16),
            ("pushed", 24),
            ("until_look", 32),
        ],
    );
    let magazines = Shape {
        kind: 4,
        parent: cache,
        address: 40,
        stride: 16,
        count: 3,
        ..PLAIN
    };
    process.table("magazine", magazines, &[("head", 0), ("base", 8)]);
    process.words(0x23000, &[0x24000]);
    process.words(
        0x24000,
        &[0x25000, 7, 1, 0, 990, 0, 0, 0x1050, 0x1000, 0x2010, 0x2000],
    );
    // Its second magazine is being replaced and seems to hold more than any magazine may.
    process.words(
        0x25000,
        &[0, 3, 0, 4, 1000, 0, 0, 0x1008, 0x1000, 0x9000, 0x2000],
    );
    process.table(
        "registry",
        at(0x26000),
        &[
            ("threads", 0),
            ("refills", 8),
            ("flushes", 16),
            ("pushed", 24),
        ],
    );
    process.words(0x26000, &[2, 90, 9, 0]);
    process.table(
        "page_heap",
        locked(at(0x27000)),
        &[
            ("lock_acquisitions", 8),
            ("reserved_blocks", 16),
            ("committed_blocks", 24),
            ("used_pages", 32),
            ("parked_pages", 40),
            ("dirty_pages", 48),
            ("large_blocks", 56),
            ("large_pages", 64),
            ("large_requested", 72),
            ("lock_contentions", 80),
        ],
    );
    process.words(0x27000, &[0, 70, 512, 1, 17 + 3, 0, 5, 1, 10, 40000, 1]);
    process.table(
        "page_shard",
        locked(array(0x27800, 32, 2)),
        &[
            ("lock_acquisitions", 8),
            ("lock_contentions", 16),
            ("parked_pages", 24),
        ],
    );
    process.words(0x27800, &[0, 4, 0, 0, 0, 5, 2, 3]);
    let huge = process.table(
        "huge",
        at(0x28000),
        &[("blocks", 0), ("mapped", 8), ("requested", 16)],
    );
    process.words(0x28000, &[1, 64 << 20, 60 << 20, 1, 0x29000]);
    let places = Shape {
        kind: 5,
        parent: huge,
        address: 32,
        stride: 16,
        count: 1 << 20,
        link: 24,
        ..PLAIN
    };
    process.table("huge_block", places, &[("address", 0), ("mapped", 8)]);
    process.words(0x29000, &[0x7000_0000, 64 << 20, 0, 0]);
    let regions = Shape {
        kind: 3,
        address: 0x2a000,
        count: 8,
        link: 0,
        ..PLAIN
    };
    let region = process.table(
        "region",
        regions,
        // The last one lies where a second extent would end, but there is no second extent.
        &[
            ("base", 8),
            ("extents", 16),
            ("spans_used", 24),
            ("records_purged", 72),
        ],
    );
    process.words(0x2a000, &[0x2b000]);
    let nested = |address, stride, count| Shape {
        kind: 4,
        parent: region,
        address,
        stride,
        count,
        ..PLAIN
    };
    process.table(
        "extent",
        nested(32, 24, 2),
        &[
            ("first_block", 0),
            ("block_count", 8),
            ("committed_blocks", 16),
        ],
    );
    let block = process.table("block", nested(80, 128, 512), &[]);
    process.field("free", block, 0, 8, 8);
    process.field("backed", block, 64, 8, 8);
    let mut words = vec![0, 0x4000_0000, 1, 5, 0, 512, 1, 0, 0, 128];
    words.extend([0b111_1100, 0, 0, 0, 0, 0, 0, 0]);
    words.extend([0b001_1101, 0, 0, 0, 0, 0, 0, 0]);
    process.words(0x2b000, &words);
    process.table("metadata", at(0x2c000), &[("used", 0)]);
    process.words(0x2c000, &[10000]);
    process.table("remote_pool", at(0x2d000), &[]);
    process.table("sampler", at(0x2d000), &[("rate", 0)]);
    process.words(0x2d000, &[0]);
    process
}

fn read(process: &Process) -> Snapshot {
    read_memory(&process.memory(), BLOCK, Passes::Compared).unwrap()
}

#[test]
fn a_small_process_is_read_to_the_last_block() {
    let found = read(&process());
    let whole = |id| found.process.whole(id);
    // Class 100: 120 slots, 20 free, 10 + 1 in magazines and 2 queued. Class 2000: 8, 1 free, 2
    // held.
    assert_eq!(whole("live_small_bytes"), 87 * 100 + 5 * 2000);
    assert_eq!(whole("cached_bytes"), 13 * 100 + 2 * 2000);
    assert_eq!(
        (whole("cached_blocks"), whole("largest_cache_depth")),
        (15, 13)
    );
    assert_eq!(whole("span_free_bytes"), 20 * 100 + 2000);
    assert_eq!(whole("span_tail_bytes"), 3 * 96 + 2 * 192);
    assert_eq!(whole("live_large_bytes"), 40960);
    assert_eq!(whole("live_huge_bytes"), 64 << 20);
    assert_eq!(whole("large_rounding_bytes"), 960 + (4 << 20));
    assert_eq!(whole("unbacked_bytes"), 4096);
    assert_eq!(whole("used_bytes"), 17 * 4096 + (64 << 20));
    // Three of them wait in a shard.
    assert_eq!(whole("dirty_bytes"), (5 + 3) * 4096);
    assert_eq!(whole("parked_bytes"), 3 * 4096);
    assert_eq!(whole("metadata_bytes"), 10000 + 4096 + 5 * 64 - 128);
    assert_eq!(whole("cache_misses"), 100);
    assert_eq!(whole("cache_frees"), 4 + 10);
    assert_eq!(
        (whole("lock_acquisitions"), whole("lock_contentions")),
        (189, 14)
    );
    // Free and backed: pages 2-4. Free and not backed: 5-6, and the region's 511 other blocks.
    assert_eq!(whole("largest_free_run_bytes"), 3 * 4096);
    assert_eq!(whole("free_list_length"), 1 + 1);
    assert_eq!(whole("uncommitted_ranges"), 1 + 1);
    assert_eq!(found.histograms["free_runs"], [0, 1]);
    assert!(
        found.consistent && found.notes.is_empty(),
        "{:?}",
        found.notes
    );
    assert_eq!(
        (found.library.as_str(), found.process.get("allocs")),
        ("9.8.7", None)
    );
    assert_eq!(
        found.block_ranges,
        [(0x4000_0000, 0x4020_0000), (0x7000_0000, 0x7400_0000)]
    );
    assert_eq!(found.reserved_ranges, [(0x4020_0000, 0x8000_0000)]);
    let contended: Vec<_> = found
        .locks
        .iter()
        .map(|lock| (lock.name.as_str(), lock.waited))
        .collect();
    assert_eq!(
        contended,
        [
            ("class-100", 5),
            ("class-2000", 6),
            ("page_heap", 1),
            ("page-shard-0", 0),
            ("page-shard-1", 2)
        ]
    );
}

#[test]
fn used_is_live_cached_free_and_tails() {
    let heap = &read(&process()).heaps[0];
    let whole = |id| heap.values.whole(id);
    assert_eq!(
        whole("used_bytes"),
        whole("live_bytes")
            + whole("cached_bytes")
            + whole("span_free_bytes")
            + whole("span_tail_bytes")
    );
}

#[test]
fn a_newer_library_shows_what_is_known_and_an_incompatible_one_says_so() {
    let mut newer = process();
    let unknown = newer.table(
        "zones",
        Shape {
            address: 0x30000,
            ..PLAIN
        },
        &[("zone", 0)],
    );
    newer.words(0x30000, &[1]);
    newer.field("colour", unknown, 8, 3, 1); // no such width: passed over
    newer.table("odd", Shape { kind: 77, ..PLAIN }, &[]);
    let found = read(&newer);
    assert_eq!(found.process.whole("live_large_bytes"), 40960);
    assert!(
        found.notes[0].contains("zones") && found.notes[0].contains("older"),
        "{:?}",
        found.notes
    );
    newer.version = 2;
    let error = read_memory(&newer.memory(), BLOCK, Passes::One).unwrap_err();
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn an_older_library_lacks_counters_and_not_the_rest() {
    let mut older = process();
    older.tables.retain(|table| !table.starts_with(b"metadata"));
    let found = read(&older);
    assert_eq!(found.process.get("metadata_bytes"), None);
    assert_eq!(found.process.whole("live_large_bytes"), 40960);
    assert!(
        found.notes.iter().any(|note| note.contains("metadata")),
        "{:?}",
        found.notes
    );
}

#[test]
fn the_wrong_address_is_found_out() {
    let memory = process().memory();
    let error = Directory::read(&memory, 0x20000).unwrap_err();
    assert!(matches!(
        error,
        DirectoryError::Read(_) | DirectoryError::NotThere
    ));
    let mut moved = memory.clone();
    let block = moved.pieces[&BLOCK].clone();
    moved.pieces.insert(0x50000, block);
    assert_eq!(
        Directory::read(&moved, 0x50000),
        Err(DirectoryError::NotThere)
    );
}

#[test]
fn lists_that_bite_their_tail_end() {
    let mut process = process();
    process.words(0x25000, &[0x24000, 3, 0, 0, 1000, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&process).process.whole("cache_misses"), 100);
}

#[test]
fn a_table_that_is_gone_costs_only_itself() {
    let mut process = process();
    process.memory.pieces.remove(&0x2b000);
    let found = read(&process);
    assert_eq!(found.process.whole("live_large_bytes"), 40960);
    assert!(
        !found.consistent && found.notes[0].contains("region"),
        "{:?}",
        found.notes
    );
}

/// Memory in which the page heap's record differs at each reading.
struct Restless(Pretended, AtomicU64);

impl Memory for Restless {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.0.read(address, buffer)?;
        if (0x27000..0x27100).contains(&address) && buffer.len() > 4 {
            buffer[1] = self.1.fetch_add(1, Ordering::Relaxed) as u8;
        }
        Ok(())
    }
}

#[test]
fn a_record_that_changes_all_the_time_is_taken_and_said_to_be_torn() {
    let memory = Restless(process().memory(), AtomicU64::new(0));
    let found = read_memory(&memory, BLOCK, Passes::Compared).unwrap();
    assert_eq!(found.process.whole("live_large_bytes"), 40960);
    assert!(
        !found.consistent && found.notes[0].contains("page_heap"),
        "{:?}",
        found.notes
    );
}

/// Garbage leads to figures or to an error, soon, and never to a panic.
fn survive(memory: &Pretended) {
    match read_memory(memory, BLOCK, Passes::One) {
        Ok(snapshot) => {
            serde_json::to_string(&snapshot).unwrap();
        }
        Err(CountersError::Directory(_)) => {}
        Err(other) => panic!("{other}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn torn_bytes_are_survived(
        changes in proptest::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u64>(), 0..4u8),
            1..12,
        ),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut memory = process().memory();
        let starts: Vec<u64> = memory.pieces.keys().copied().collect();
        for (piece, place, value, width) in changes {
            let bytes = memory.pieces.get_mut(piece.get(&starts)).unwrap();
            let width = 1usize << width;
            let place = place.index(bytes.len().saturating_sub(width).max(1));
            let end = (place + width).min(bytes.len());
            bytes[place..end].copy_from_slice(&value.to_le_bytes()[..end - place]);
        }
        if cuts {
            let bytes = memory.pieces.get_mut(cut.get(&starts)).unwrap();
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        survive(&memory);
    }

    #[test]
    fn random_tables_are_survived(
        tables in proptest::collection::vec(
            (
                0..7u32, 0..9u32, any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>(),
                any::<u32>(),
            ),
            0..9,
        ),
        fields in proptest::collection::vec(
            (0..10u32, any::<u32>(), 0..10u32, any::<u32>()),
            0..40,
        ),
        noise in proptest::collection::vec(any::<u64>(), 64),
    ) {
        let names = [
            "bin", "class", "cache", "magazine", "page_heap", "page_shard", "region", "extent",
            "block", "huge_block",
        ];
        let mut process = Process::new();
        process.words(0x40000, &noise);
        for (number, table) in tables.into_iter().enumerate() {
            let (kind, parent, address, stride, count, link, lock) = table;
            let address = 0x40000 + address % 512;
            let shape = Shape {
                kind,
                parent,
                address,
                stride: stride % 64,
                count: count % 3000,
                link: link % 64,
                lock: lock % 64,
            };
            process.table(names[number], shape, &[("head", 0)]);
        }
        for (table, offset, width, count) in fields {
            process.field("free", table, offset % 300, width, count % 70);
        }
        survive(&process.memory());
    }
}

/// Memory in which everything is readable, and all claims are as large as possible.
struct Endless(Pretended);

impl Memory for Endless {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        if self.0.read(address, buffer).is_err() {
            buffer.fill(0x5a);
        }
        Ok(())
    }
}

#[test]
fn endless_claims_come_to_an_end() {
    let mut process = Process::new();
    let endless = |kind, parent| Shape {
        kind,
        parent,
        address: 0x30000,
        stride: 0,
        count: u32::MAX,
        link: 8,
        lock: 16,
    };
    let bin = process.table("bin", endless(2, NONE), &[("spans", 0)]);
    process.field("occupancy", bin, 0, 8, 30000);
    let list = process.table("cache", endless(3, NONE), &[("refills", 0)]);
    process.table("magazine", endless(4, list), &[("head", 0)]);
    process.table("huge_block", endless(5, list), &[("address", 0)]);
    let began = std::time::Instant::now();
    let _ = read_memory(&Endless(process.memory()), BLOCK, Passes::One);
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

/// The golden files that the C++ tests write. Every figure in them must be found in the image.
#[test]
fn the_golden_files_say_what_their_images_do() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/golden");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "image")
        {
            continue;
        }
        let text = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
        let image = super::image::open(&path).unwrap();
        let found = read_memory(&image, image.block, Passes::Compared).unwrap();
        let wrong = differences(&expected, &found);
        assert!(
            wrong.is_empty(),
            "{}:\n{}",
            path.display(),
            wrong.join("\n")
        );
        seen += 1;
    }
    assert!(seen > 0);
}

/// The differences between the golden file and the reader's figures.
fn differences(expected: &serde_json::Value, found: &Snapshot) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut compare = |what: String, expected: &serde_json::Value, found: Option<f64>| {
        let is_same = match (expected.as_f64(), found) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-5 * a.abs().max(1.0),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            wrong.push(format!("{what}: {expected} expected, {found:?} found"));
        }
    };
    for (id, value) in expected["counters"].as_object().unwrap() {
        compare(id.clone(), value, found.process.real(id));
    }
    for class in expected["classes"].as_array().unwrap() {
        let bytes = class["class_bytes"].as_u64().unwrap();
        let own = found.heaps[0]
            .classes
            .iter()
            .find(|own| own.block_bytes == bytes);
        for (id, value) in class.as_object().unwrap() {
            // Classes that were never used are left out.
            let Some(own) = own else {
                let unused = id == "class_bytes"
                    || id == "occupancy"
                    || !value.as_f64().is_some_and(|v| v > 0.0);
                assert!(unused || id.starts_with("class_lock"), "{id} of {bytes}");
                continue;
            };
            if let Some(bars) = value.as_array() {
                for (place, bar) in bars.iter().enumerate() {
                    let own = own.occupancy.get(place).map(|count| *count as f64);
                    compare(format!("{bytes} {id} {place}"), bar, own);
                }
            } else if id != "class_lock_acquisitions" {
                compare(format!("{bytes} {id}"), value, own.values.real(id));
            }
        }
    }
    for lock in expected["locks"].as_array().unwrap() {
        let name = lock["name"].as_str().unwrap();
        let own = found.locks.iter().find(|own| own.name == name);
        compare(
            format!("{name} waited"),
            &lock["lock_waited"],
            own.map(|own| own.waited as f64),
        );
        compare(
            format!("{name} refused"),
            &lock["lock_refused"],
            own.map(|own| own.refused as f64),
        );
    }
    for heap in expected["heaps"].as_array().unwrap() {
        let name = heap["name"].as_str().unwrap();
        let own = found.heap(name).unwrap();
        for (id, value) in heap["counters"].as_object().unwrap() {
            if id != "lock_acquisitions" {
                compare(format!("{name} {id}"), value, own.values.real(id));
            }
        }
    }
    for (id, bars) in expected["histograms"].as_object().unwrap() {
        let own = found.histograms.get(id).cloned().unwrap_or_default();
        let bars: Vec<u64> = bars
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|bar| bar.as_u64())
            .collect();
        if bars != own {
            wrong.push(format!("{id}: {bars:?} expected, {own:?} found"));
        }
    }
    wrong
}

#[test]
fn a_published_image_serves_while_it_is_fresh_and_the_right_ones() {
    let golden =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/golden/idle.image");
    let mut bytes = std::fs::read(golden).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("4711.image");
    let mut write = |pid: u64, age: std::time::Duration, generation: u64| {
        let now = std::time::SystemTime::now() - age;
        let taken = now
            .duration_since(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        bytes[16..24].copy_from_slice(&generation.to_le_bytes());
        bytes[32..40].copy_from_slice(&pid.to_le_bytes());
        bytes[40..48].copy_from_slice(&(taken.as_nanos() as u64).to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        super::published::from_image(&path, 4711)
    };
    let second = std::time::Duration::from_secs(1);
    let found = write(4711, second, 2).unwrap();
    assert!(found.process.whole("live_bytes") > 0);
    // The image may come from an older library; then another note says so.
    assert!(found.notes.iter().any(|note| note.contains("publishes")));
    assert_eq!(write(4712, second, 2), None, "somebody else's");
    assert_eq!(write(4711, 60 * second, 2), None, "left behind");
    assert_eq!(write(4711, second, 3), None, "never done");
}

// loam issue 37, C16: killed processes leave their images behind.
#[test]
fn images_that_no_process_holds_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let held = std::fs::File::create(dir.path().join("999999999.image")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for name in [
        "1.image",
        "4711.image.new",
        "notes.image",
        "4711.txt",
        ".image",
    ] {
        std::fs::write(dir.path().join(name), "left").unwrap();
    }
    std::os::unix::fs::symlink("notes.image", dir.path().join("2.image")).unwrap();
    let folder = std::fs::File::open(dir.path()).unwrap().into();
    super::published::sweep(&folder);
    let mut left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(
        left,
        [
            ".image",
            "2.image",
            "4711.txt",
            "999999999.image",
            "notes.image"
        ]
    );
    drop(held);
    super::published::sweep(&folder);
    assert!(!dir.path().join("999999999.image").exists());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn truncated_and_damaged_images_are_survived(
        end in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        word in any::<u64>(),
    ) {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../formats/golden/busy.image");
        let mut bytes = std::fs::read(golden).unwrap();
        let at = place.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        bytes.truncate(end.index(bytes.len()) + 1);
        if let Ok(image) = loam_format::counters::image::Image::of(bytes) {
            let _ = read_memory(&image, image.block, Passes::One);
        }
    }
}
