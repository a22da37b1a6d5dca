//! The view as a stranger sees it, drawn on a terminal in memory.

use std::time::{Duration, Instant};

use ratatui::backend::TestBackend;
use ratatui::Terminal;

use super::args::SortKey;
use super::draw::{self, spark, Manner};
use super::rows;
use super::state::{Key, Meaning, Place, Sheet, State};
use crate::counters::snapshot::{ClassFigures, HeapFigures, LockFigures, Values};
use crate::counters::Snapshot;
use crate::observe::process::{Identity, Outline, ProcessKey};
use crate::watch::sampler::{Sample, Tick};

const MIB: u64 = 1 << 20;

fn values(figures: &[(&'static str, u64)]) -> Values {
    let mut values = Values::default();
    for (id, value) in figures {
        values.set(*id, *value);
    }
    values
}

fn snapshot(waited: u64, live: u64) -> Snapshot {
    let mut process = values(&[
        ("live_bytes", live),
        ("cached_bytes", 2 * MIB),
        ("lock_contentions", waited),
        ("cache_misses", 10 * waited),
        ("cache_frees", 95 * waited),
        ("refilled_blocks", 15 * waited),
        ("returned_blocks", 10 * waited),
        ("cached_blocks", 40),
        ("cache_flushes", 5 * waited),
        ("purge_calls", 3),
    ]);
    process.set_real("free_ratio", 0.254);
    let class = ClassFigures {
        block_bytes: 112,
        values: values(&[
            ("class_live_blocks", 5000),
            ("class_free_blocks", 3000),
            ("class_cached_blocks", 40),
            ("class_spans", 230),
            ("class_lock_contentions", waited),
        ]),
        occupancy: vec![3, 0, 10, 20, 40, 0, 0, 50, 107],
    };
    let heap = |number, name: &str, classes| HeapFigures {
        number,
        name: name.to_owned(),
        values: values(&[
            ("live_bytes", live / 2),
            ("used_bytes", live),
            ("live_blocks", 5000),
        ]),
        classes,
    };
    let lock = |name: &str, waited| LockFigures {
        name: name.to_owned(),
        heap: Some(0),
        taken: 1000,
        waited,
        refused: 7,
    };
    Snapshot {
        library: "0.1.0".to_owned(),
        heaps: vec![
            heap(0, "default", vec![class]),
            heap(4, "sessions", Vec::new()),
        ],
        locks: vec![lock("class-112", waited), lock("page_heap", 0)],
        process,
        ..Snapshot::default()
    }
}

fn sample(pid: i32, name: &str, resident: u64, counters: Option<Snapshot>, at: Instant) -> Sample {
    Sample {
        identity: Identity {
            key: ProcessKey { pid, started: 7 },
            name: name.to_owned(),
            executable: None,
            command: name.to_owned(),
            argument0: name.to_owned(),
            user: 0,
            state: 'S',
            of_the_kernel: false,
        },
        outline: Outline {
            resident,
            ..Outline::default()
        },
        counters: Ok(counters),
        at,
    }
}

/// Two looks, two seconds apart: a server on Loam and a program on something else.
fn state() -> State {
    let mut state = State::new(SortKey::Resident, true);
    let began = Instant::now();
    let looks = [(0, 100, 100 * MIB), (2, 300, 104 * MIB)];
    for (seconds, waited, live) in looks {
        let at = began + Duration::from_secs(seconds);
        let counters = Some(snapshot(waited, live));
        state.take(Tick {
            samples: vec![
                sample(4711, "server", 160 * MIB, counters, at),
                sample(99, "a-program-with-a-long-name", 200 * MIB, None, at),
            ],
            refused: 3,
        });
    }
    state
}

fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let manner = Manner {
        colour: false,
        unicode: false,
    };
    terminal
        .draw(|frame| {
            draw::draw(frame, state, manner);
        })
        .unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row = |y| {
        (0..width)
            .map(|x| buffer[(x, y)].symbol().to_owned())
            .collect::<String>()
    };
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

fn press(state: &mut State, keys: &[Key]) {
    for key in keys {
        let rows: Vec<Meaning> = rows::of(state).rows.iter().map(|row| row.meaning).collect();
        state.press(*key, &rows, 5);
    }
}

#[test]
fn processes_look_like_this_on_80_columns() {
    assert_eq!(
        screen(&state(), 80, 8),
        [
            "loam top  1 process on Loam, 3 of other users not looked into",
            "    PID NAME          RESIDENT     LIVE FREE%   CACHED  GROWTH/S WAITS/S  HITS%",
            "     99 a-program-wit  200 MiB        -     -        -         0       -      -",
            "   4711 server         160 MiB  104 MiB  25.4 2.00 MiB +2.00 MiB     100  >90.0",
            "",
            "",
            "",
            "Enter details  s sort (Resident)  r reverse  / filter  p pause  ? help  q quit",
        ]
    );
}

#[test]
fn enter_goes_deeper_to_a_class_and_escape_comes_back() {
    let mut state = state();
    let key = ProcessKey {
        pid: 4711,
        started: 7,
    };
    press(&mut state, &[Key::Down, Key::Enter]);
    assert_eq!(state.place(), Place::Process(key, Sheet::Heaps));
    let text = screen(&state, 80, 24).join("\n");
    for said in [
        "server (4711)",
        "sessions",
        "refills 1000/s",
        "waits/s",
        "Tab heaps",
    ] {
        assert!(text.contains(said), "{said} in\n{text}");
    }
    press(&mut state, &[Key::Tab, Key::Tab]);
    let text = screen(&state, 80, 24).join("\n");
    assert!(
        text.contains("class-112") && text.contains("30.0"),
        "{text}"
    );
    press(&mut state, &[Key::Tab, Key::Enter, Key::Enter]);
    assert_eq!(state.place(), Place::Class(key, 0, 112));
    let text = screen(&state, 80, 24).join("\n");
    assert!(
        text.contains("heap default > blocks of 112 B") && text.contains("full      107 ###"),
        "{text}"
    );
    press(
        &mut state,
        &[Key::Escape, Key::Escape, Key::Escape, Key::Escape],
    );
    assert_eq!(state.place(), Place::Processes);
    press(&mut state, &[Key::Letter('q')]);
    assert!(state.done);
}

#[test]
fn a_process_that_ends_leaves_a_sentence_and_then_no_row() {
    let mut state = state();
    press(&mut state, &[Key::Down, Key::Enter]);
    state.take(Tick::default());
    let text = screen(&state, 80, 24).join("\n");
    assert!(text.contains("has ended"), "{text}");
    press(&mut state, &[Key::Escape]);
    assert!(screen(&state, 80, 24).join("\n").contains("loam run --"));
}

#[test]
fn every_size_of_terminal_is_drawn_without_a_fault() {
    let mut state = state();
    for keys in [
        &[][..],
        &[Key::Down, Key::Enter],
        &[Key::Enter],
        &[Key::Enter],
        &[Key::Letter('?')],
    ] {
        press(&mut state, keys);
        for (width, height) in [(1, 1), (20, 5), (40, 8), (80, 24), (81, 25), (300, 100)] {
            screen(&state, width, height);
        }
    }
}

#[test]
fn help_names_every_column() {
    let mut state = state();
    press(&mut state, &[Key::Letter('?')]);
    let text = screen(&state, 80, 24).join("\n");
    for column in rows::processes(&state).columns.iter().skip(2) {
        assert!(
            text.contains(column.heading),
            "{} in\n{text}",
            column.heading
        );
    }
}

#[test]
fn sorting_and_pausing_are_keys() {
    let mut state = state();
    let first = |state: &State| state.processes()[0].identity.key.pid;
    assert_eq!(first(&state), 99);
    press(&mut state, &[Key::Letter('s')]);
    assert_eq!((state.sort, first(&state)), (SortKey::Live, 4711));
    press(&mut state, &[Key::Letter('p')]);
    assert!(state.paused && screen(&state, 80, 24)[0].contains("PAUSED"));
}

#[test]
fn sparklines_scale_to_the_largest_and_show_the_smallest() {
    assert_eq!(spark(&[0.0, 0.001, 4.0, 8.0], 6, true), "   ▁▄█");
    assert_eq!(spark(&[1.0; 9], 3, false), "###");
    assert_eq!(spark(&[], 2, true), "  ");
}
