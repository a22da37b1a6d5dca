//! `loam advise`: a line to copy, "nothing helps", and no advice from a replay that is not known to be the program.

mod common;
#[path = "common/recorded.rs"]
mod recorded;

use std::path::PathBuf;

use common::Ran;

#[test]
fn advice_is_a_line_to_copy_or_that_nothing_helps_or_refused() {
    let loam = PathBuf::from(env!("CARGO_BIN_EXE_loam"));
    let layout = loam_process::layout::Layout::of_executables([loam]);
    let built = layout
        .replayer_candidates()
        .iter()
        .any(|path| path.is_file());
    if !built || common::library().is_none() {
        common::skip("the replayer or the library is not built (`make library`)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let run = |arguments: &[&str]| {
        let mut command = common::loam();
        Ran::of(command.current_dir(dir).args(arguments).output().unwrap())
    };
    let source = common::root().join("examples/gate/orders.c");
    common::compile(&["-O1"], &source, &dir.join("orders"));
    let ran = run(&["record", "--output", "t.trace", "--", "./orders"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");

    let ran = run(&[
        "advise",
        "t.trace",
        "--trials",
        "2",
        "--allocators",
        "system",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("Nothing helps"), "{ran:?}");
    assert!(ran.out.contains("system (recorded)"), "{ran:?}");

    // Whether time is saved surely depends on the machine; one of the two answers comes.
    let ran = run(&[
        "advise",
        "t.trace",
        "--trials",
        "2",
        "--allocators",
        "system,mine=loam",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let advised = ran.out.contains("loam run -- ./orders");
    assert!(advised || ran.out.contains("Nothing helps"), "{ran:?}");

    let mut program = recorded::Program::record(&dir.join("short.trace"));
    program.allocate(0, 400);
    program.end();
    let ran = run(&["advise", "short.trace", "--allocators", "system"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("no advice is drawn"), "{ran:?}");
}
