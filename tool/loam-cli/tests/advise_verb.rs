//! `loam advise`: a line to copy, "nothing helps", and no advice from a replay that is not known to be the program.

mod common;
#[path = "common/recorded.rs"]
mod recorded;

use common::{loam_in, record_orders};

#[test]
fn advice_is_a_line_to_copy_or_that_nothing_helps_or_refused() {
    if !common::can_replay_on_loam() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    record_orders(dir, "orders", &["-O1"]);
    let advise = |allocators: &str| {
        let arguments = ["advise", "orders.trace", "--trials", "2", "--allocators"];
        let ran = loam_in(dir, &[&arguments[..], &[allocators]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    };

    let ran = advise("system");
    assert!(ran.out.contains("Nothing helps"), "{ran:?}");
    assert!(ran.out.contains("system (recorded)"), "{ran:?}");

    // Whether time is saved surely depends on the machine; one of the two answers comes.
    let ran = advise("system,mine=loam");
    let advised = ran.out.contains("loam run -- ./orders");
    assert!(advised || ran.out.contains("Nothing helps"), "{ran:?}");

    let mut program = recorded::Program::record(&dir.join("short.trace"));
    program.allocate(0, 400);
    program.end();
    let ran = loam_in(dir, &["advise", "short.trace", "--allocators", "system"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("no advice is drawn"), "{ran:?}");
}
