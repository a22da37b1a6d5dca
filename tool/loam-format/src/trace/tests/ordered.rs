//! Blocks that events begin and end, in possible and impossible orders.

use super::*;

fn allocate(address: u64, size: u64) -> Event {
    Event::Allocate {
        family: AllocFamily::Malloc,
        address,
        size,
        alignment: 0,
    }
}

fn free(address: u64) -> Event {
    Event::Free {
        family: FreeFamily::Free,
        address,
        size: 0,
        touched: None,
    }
}

/// Follows the events of the threads, a microsecond apart, and returns the actions in short.
fn follow(events: &[(u32, Event)]) -> (Vec<String>, Ordered) {
    let mut ordered = Ordered::new();
    let mut acts = Vec::new();
    for (at, (thread, event)) in events.iter().enumerate() {
        let record = Record {
            time: 1_000 * at as u64,
            thread: *thread,
            event: *event,
        };
        ordered.push(&record, &mut acts);
    }
    ordered.finish(&mut acts);
    let short = acts.iter().map(|act| match act.action {
        Action::Begin { block, .. } => format!("{}+{}", act.thread, block.id),
        Action::End { block, .. } => format!("{}-{}", act.thread, block.id),
        Action::Gone { block } => format!("gone {}", block.id),
        Action::Resize { before, after, .. } => {
            assert_eq!(before.id, after.id);
            format!(
                "{}~{}:{}>{}",
                act.thread, before.id, before.size, after.size
            )
        }
        Action::Failed { size } => format!("failed {size}"),
        _ => "other".into(),
    });
    (short.collect(), ordered)
}

#[test]
fn blocks_begin_and_end() {
    let events = [
        (0, allocate(16, 1)),
        (0, allocate(32, 2)),
        (1, free(16)),
        (0, free(32)),
    ];
    let (acts, ordered) = follow(&events);
    assert_eq!(acts, ["0+0", "0+1", "1-0", "0-1"]);
    assert_eq!(ordered.repairs(), Repairs::default());
}

#[test]
fn a_free_that_comes_before_its_allocation_waits_for_it() {
    let (acts, ordered) = follow(&[(1, free(16)), (0, allocate(16, 1)), (0, allocate(16, 2))]);
    assert_eq!(acts, ["0+0", "1-0", "0+1"]);
    assert_eq!(ordered.repairs().late_allocations, 1);
    assert_eq!(ordered.repairs().unknown_frees, 0);
}

#[test]
fn an_allocation_of_a_live_address_waits_for_its_free() {
    let events = [
        (0, allocate(16, 1)),
        (1, allocate(16, 2)),
        (0, free(16)),
        (1, free(16)),
    ];
    let (acts, ordered) = follow(&events);
    assert_eq!(acts, ["0+0", "0-0", "1+1", "1-1"]);
    assert_eq!(ordered.repairs().late_frees, 1);
    assert_eq!(ordered.repairs().allocations_over_live, 0);
}

#[test]
fn what_nothing_explains_within_the_window_is_counted() {
    let mut events = vec![(0, free(48)), (0, allocate(16, 1)), (1, allocate(16, 2))];
    events.extend((0..6_000).map(|at| (2, allocate(1 << 20 | at << 6, 8))));
    // This allocation is too late to explain the first free.
    events.push((0, allocate(48, 3)));
    events.push((1, free(16)));
    let (acts, ordered) = follow(&events);
    let repairs = ordered.repairs();
    assert_eq!(
        (repairs.unknown_frees, repairs.allocations_over_live),
        (1, 1)
    );
    assert_eq!((repairs.late_frees, repairs.late_allocations), (0, 0));
    let gone = acts.iter().position(|act| act == "gone 0").unwrap();
    assert_eq!(acts[gone + 1], "1+1");
    assert_eq!(acts.last().unwrap(), "1-1");
    assert!(ordered.live().any(|block| block.address == 48));
    assert!(!ordered.live().any(|block| block.address == 16));
}

#[test]
fn a_resize_keeps_the_block_while_another_thread_takes_its_place() {
    let from = |address| Event::ResizeFrom {
        address,
        touched: None,
    };
    let to = |address, size| Event::ResizeTo { address, size };
    let events = [
        (0, allocate(16, 10)),
        (0, from(16)),
        (1, allocate(16, 99)),
        (0, to(64, 20)),
        (0, from(64)),
        (0, to(0, 1 << 50)),
        (1, free(16)),
        (0, from(64)),
        (0, to(0, 0)),
        (2, from(800)),
        (2, to(816, 5)),
    ];
    let (acts, ordered) = follow(&events);
    let expected = [
        "0+0",
        "1+1",
        "0~0:10>20",
        "failed 1125899906842624",
        "1-1",
        "0-0",
        "2+2",
    ];
    assert_eq!(acts, expected);
    let repairs = ordered.repairs();
    assert_eq!(
        (repairs.unknown_frees, repairs.allocations_over_live),
        (1, 0)
    );
    assert_eq!(ordered.live().count(), 1);
}
