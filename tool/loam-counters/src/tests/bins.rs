//! Classes with spans in several bins, or with partial spans.
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
    // Two more bins each for class 0, class 100 and class 2000.
    let mut words = vec![0; 16];
    words.extend([0, 7, 1, 1, 10, 1, 0, 31]);
    words.extend([0, 0, 0, 0, 0, 0, 0, 0]);
    words.extend([0, 0, 0, 0, 0, 0, 0, 0]);
    words.extend([0, 3, 2, 1, 4, 0, 1, 0]);
    process.words(0x22800, &words);
    let found = read(&process);
    let alone = read(&self::process());
    let more = |id| found.process.whole(id) - alone.process.whole(id);
    // Class 100 has a span with 30 slots in use, one of them queued. Class 2000 has an empty span.
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
    // Class 2000 has a span of two pages. The second page and two of the span's four slots are
    // absent, and one slot is free.
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
