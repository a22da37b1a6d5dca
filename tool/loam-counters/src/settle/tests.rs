//! Copies of records, while their owner writes between any two pieces.

use std::cell::RefCell;

use loam_format::counters::copies::Place;
use loam_format::counters::directory::{Field, Kind};

use super::*;

/// Memory with an owner that acts before each piece is read.
struct Busy<F> {
    bytes: RefCell<Vec<u8>>,
    owner: RefCell<F>,
}

const START: u64 = 0x1000;

/// As many tries as for one look, without a limit of time: the tests are about the order of steps,
/// not about the speed of the machine.
const UNHURRIED: Patience = Patience {
    tries: 64,
    time: Duration::from_secs(3600),
    nap: Duration::ZERO,
};

impl<F: FnMut(&mut Vec<u8>)> Memory for Busy<F> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut bytes = self.bytes.borrow_mut();
        (self.owner.borrow_mut())(&mut bytes);
        let length = buffer.len();
        let at = address.checked_sub(START).map(|at| at as usize);
        let piece = at.and_then(|at| bytes.get(at..at.checked_add(length)?));
        buffer.copy_from_slice(piece.ok_or(ReadError::Unmapped { address, length })?);
        Ok(())
    }
}

fn busy<F: FnMut(&mut Vec<u8>)>(words: &[u64], owner: F) -> Busy<F> {
    Busy {
        bytes: RefCell::new(words.iter().flat_map(|word| word.to_le_bytes()).collect()),
        owner: RefCell::new(owner),
    }
}

/// Records of 32 bytes: lock word, acquisitions, and two words that are always equal under the
/// lock.
fn table(lock: Option<u64>) -> Table {
    let field = |name: &str, offset, width| Field {
        name: name.to_owned(),
        offset,
        width,
        count: 1,
    };
    Table {
        name: "bin".to_owned(),
        kind: Kind::Array,
        parent: None,
        address: START,
        stride: 32,
        count: 4,
        link: None,
        lock,
        fields: vec![
            field("lock_acquisitions", 8, 8),
            field("one", 16, 8),
            field("two", 24, 8),
        ],
        ranges: vec![(0, 4), (8, 32)],
        low: 0,
        high: 32,
    }
}

fn places(count: u64) -> Vec<Place> {
    (0..count)
        .map(|number| (START + 32 * number, 0, number))
        .collect()
}

fn set(bytes: &mut [u8], word: usize, value: u64) {
    bytes[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
}

fn word(copies: &Copies, table: &Table, record: usize, word: usize) -> u64 {
    let bytes = copies.bytes(table, &copies.records[record]);
    u64::from_le_bytes(bytes[8 * word..8 * word + 8].try_into().unwrap())
}

/// The owner's steps at a record's first word: takes the lock, counts, writes one word, writes the
/// other, frees the lock; one step for each call.
fn step(bytes: &mut [u8], first: usize, step: usize) {
    let round = 1 + step as u64 / 5;
    match step % 5 {
        0 => set(bytes, first, 1),
        1 => set(bytes, first + 1, round),
        2 => set(bytes, first + 2, round),
        3 => set(bytes, first + 3, round),
        _ => set(bytes, first, 0),
    }
}

#[test]
fn a_copy_that_is_taken_is_of_one_moment_whenever_the_owner_writes() {
    // The owner makes `pace` steps between pieces, and stops after `writes` of them.
    for pace in 1..7 {
        for writes in 0..40 {
            let mut done = 0;
            let memory = busy(&[0; 4], |bytes| {
                for _ in 0..pace {
                    if done < writes {
                        step(bytes, 0, done);
                        done += 1;
                    }
                }
            });
            let table = table(Some(0));
            let mut copies = Copies::plan(&table, &places(1));
            let settled = copies.settle(&table, 0, &memory, UNHURRIED).unwrap();
            if settled {
                assert_eq!(
                    word(&copies, &table, 0, 2),
                    word(&copies, &table, 0, 3),
                    "{pace} {writes}"
                );
                assert_eq!(word(&copies, &table, 0, 0), 0);
            }
            // If the owner stops and leaves the lock free, the record is read.
            assert_eq!(settled, writes % 5 == 0, "{pace} {writes}");
        }
    }
}

#[test]
fn only_the_record_that_is_written_to_all_the_time_is_torn() {
    let mut count = 0;
    let mut words = [0; 16];
    words[6] = 7;
    let memory = busy(&words, |bytes| {
        count += 1;
        set(bytes, 13, count);
    });
    let table = table(Some(0));
    let mut copies = Copies::plan(&table, &places(4));
    assert!(!copies.settle(&table, 0, &memory, Patience::LIVE).unwrap());
    assert_eq!(word(&copies, &table, 1, 2), 7);
}

#[test]
fn what_stands_under_another_lock_is_of_one_moment_between_two_looks_at_it() {
    // The lock is in the first record. The owner writes the words of the second record under it.
    let mut settled_count = 0;
    for pace in 1..7 {
        for writes in 0..60 {
            let mut done = 0;
            let memory = busy(&[0; 8], |bytes| {
                for _ in 0..pace {
                    if done < writes {
                        let round = 1 + done as u64 / 5;
                        match done % 5 {
                            2 => set(bytes, 6, round),
                            3 => set(bytes, 7, round),
                            _ => step(bytes, 0, done),
                        }
                        done += 1;
                    }
                }
            });
            let head = table(Some(0));
            let seal = Seal::of(&head).unwrap();
            // Two pieces, so that the owner acts between them.
            let mut inner = table(None);
            inner.ranges = vec![(16, 24), (24, 32)];
            let mut copies = Copies::plan(&inner, &[(START + 32, 0, 0)]);
            copies.read_around();
            let settled = copies.bracket(&inner, &seal, &memory, UNHURRIED).unwrap();
            if settled {
                assert_eq!(
                    word(&copies, &inner, 0, 2),
                    word(&copies, &inner, 0, 3),
                    "{pace} {writes}"
                );
                settled_count += 1;
            } else {
                assert_ne!(writes % 5, 0, "{pace} {writes}");
            }
        }
    }
    assert!(settled_count > 60);
}

#[test]
fn what_lies_between_records_is_read_around_where_it_can_not_be_read_along() {
    struct Gapped;
    impl Memory for Gapped {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
            let (from, to) = (address % 64, address % 64 + buffer.len() as u64);
            if to > 32 || (from < 8 && to > 4) {
                let length = buffer.len();
                return Err(ReadError::Unmapped { address, length });
            }
            buffer.fill((address / 64) as u8);
            Ok(())
        }
    }
    let table = table(None);
    let places: Vec<Place> = (0..200).map(|number| (64 * number, 0, number)).collect();
    let mut copies = Copies::plan(&table, &places);
    assert_eq!(
        copies.spots(&table, 0, 200).len(),
        1,
        "one piece, if it can be read"
    );
    copies.read(&table, &Gapped).unwrap();
    assert_eq!(copies.spots(&table, 0, 200).len(), 400);
    for (number, record) in copies.records.iter().enumerate() {
        assert_eq!(copies.bytes(&table, record)[8..32], [number as u8; 24]);
    }
}

#[test]
fn records_far_apart_and_records_that_overlap_are_each_whole() {
    let words: Vec<u64> = (0..4096).collect();
    let memory = busy(&words, |_| {});
    let table = table(None);
    let places = [
        (START + 32, 0, 0),
        (START + 8192, 0, 1),
        (START + 8, 1, 0),
        (START + 16, 1, 1),
    ];
    let mut copies = Copies::plan(&table, &places);
    copies.read(&table, &memory).unwrap();
    let found: Vec<u64> = (0..4)
        .map(|record| word(&copies, &table, record, 2))
        .collect();
    assert_eq!(found, [6, 1026, 3, 4]);
}
