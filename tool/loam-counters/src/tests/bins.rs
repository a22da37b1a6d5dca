//! Classes whose spans lie in several bins, or are partial.
use super::*;

#[test]
fn a_class_has_what_all_its_bins_have() {
    let mut process = process();
    let shape = Shape {
        kind: 2,
        address: 0x22800,
        stride: 64,
        count: 6,
        lock: 0,
        ..PLAIN
    };
    process.table(
        "more_bin",
        shape,
        &[
            ("lock_acquisitions", 8),
            ("lock_contentions", 16),
            ("spans", 24),
            ("free_slots", 32),
            ("queued", 40),
            ("unbacked_pages", 48),
            ("taken", 56),
        ],
    );
    // Two more each: of class 0, of class 100, of class 2000.
    let mut words = vec![0; 16];
    words.extend([0, 7, 1, 1, 10, 1, 0, 31]);
    words.extend([0, 0, 0, 0, 0, 0, 0, 0]);
    words.extend([0, 0, 0, 0, 0, 0, 0, 0]);
    words.extend([0, 3, 2, 1, 4, 0, 1, 0]);
    process.words(0x22800, &words);
    let found = read(&process);
    let alone = read(&self::process());
    let more = |id| found.process.whole(id) - alone.process.whole(id);
    // Of class 100 a span with 30 slots out, one of which is queued; of class 2000 an empty one.
    assert_eq!(more("live_small_bytes"), 29 * 100);
    assert_eq!(more("cached_blocks"), 1);
    assert_eq!(more("spans"), 2);
    assert_eq!(more("span_free_bytes"), 10 * 100 + 4 * 2000);
    assert_eq!(more("unbacked_bytes"), 4096);
    assert_eq!(more("refilled_blocks"), 31);
    let lock = |snapshot: &Snapshot, name: &str| {
        let lock = snapshot.locks.iter().find(|lock| lock.name == name);
        lock.map(|lock| (lock.taken, lock.waited)).expect("named")
    };
    assert_eq!(lock(&found, "class-100"), (57, 6));
    assert_eq!(lock(&found, "class-2000"), (63, 8));
    assert_eq!(found.locks.len(), alone.locks.len());
}

#[test]
fn absent_slots_of_partial_spans_are_nobodys() {
    let mut process = process();
    let shape = Shape {
        kind: 2,
        address: 0x22800,
        stride: 64,
        count: 3,
        ..PLAIN
    };
    process.table(
        "more_bin",
        shape,
        &[
            ("spans", 24),
            ("free_slots", 32),
            ("absent_slots", 40),
            ("absent_pages", 48),
        ],
    );
    // Of class 2000 a span of two pages, of which the second one and two of its four slots are absent, and one is free.
    let mut words = vec![0; 16];
    words.extend([0, 0, 0, 1, 1, 2, 1, 0]);
    process.words(0x22800, &words);
    let found = read(&process);
    let alone = read(&self::process());
    let more = |id| found.process.whole(id) - alone.process.whole(id);
    assert_eq!(more("live_small_blocks"), 1);
    assert_eq!(more("span_free_bytes"), 2000);
    assert_eq!(more("span_tail_bytes"), 4096 - 2 * 2000);
}
