//! The view as the user sees it, drawn on a terminal in memory.

use std::time::{Duration, Instant};

use ratatui::backend::TestBackend;
use ratatui::Terminal;

use loam_counters::live::rows;
use loam_counters::live::state::{Key, Meaning, Place, Sheet, SortKey, State};
use loam_counters::snapshot::{ClassFigures, HeapFigures, LockFigures, Values};
use loam_counters::watch::sampler::{Sample, Tick};
use loam_counters::Snapshot;
use loam_process::process::{Identity, Outline, ProcessKey};
use loam_report::columns;

use crate::top::args::Form;
use crate::top::batch;
use crate::top::draw::{self, axis, spark, Manner};

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
        ..ClassFigures::default()
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

/// The state after two looks, two seconds apart, at a server on Loam and a program on another
/// allocator.
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

#[test]
fn a_wide_name_keeps_its_columns() {
    let mut state = state();
    state.tick.samples[0].identity.name = "名前サーバー長い".to_owned();
    state.tick.samples[1].identity.name = "e\u{301}\u{202e}x".to_owned();
    let lines = screen(&state, 80, 8);
    // A wide character takes two cells, and a text of the screen contains both.
    let sheet = rows::processes(&state);
    for row in &sheet.rows {
        let line = sheet.line(&row.cells, 80);
        assert_eq!(columns::width(&line), 79, "{line}");
        assert!(!line.contains('\u{202e}'), "{line}");
    }
    assert!(
        lines[2].contains("e\u{301}") || lines[3].contains("e\u{301}"),
        "{lines:?}"
    );
}

#[test]
fn names_are_filtered_while_they_are_typed_and_the_order_can_be_reversed() {
    let mut state = state();
    let shown = |state: &State| -> Vec<i32> {
        let processes = state.processes();
        processes.iter().map(|s| s.identity.key.pid).collect()
    };
    press(&mut state, &[Key::Letter('r')]);
    assert_eq!(shown(&state), [4711, 99]);
    press(
        &mut state,
        &[Key::Letter('/'), Key::Letter('S'), Key::Letter('e')],
    );
    assert_eq!(shown(&state), [4711]);
    assert!(screen(&state, 80, 8)[7].contains("Names with: Se_"));
    press(&mut state, &[Key::Letter('q'), Key::Left]);
    assert!(!state.done && shown(&state).is_empty());
    assert!(screen(&state, 80, 8)
        .join("\n")
        .contains("No process has such a name"));
    press(&mut state, &[Key::Erase, Key::Enter]);
    assert_eq!((shown(&state), state.is_typing()), (vec![4711], false));
    press(
        &mut state,
        &[Key::Letter('/'), Key::Letter('x'), Key::Escape],
    );
    assert_eq!(shown(&state), [4711], "what was kept before");
    press(&mut state, &[Key::Letter('/'), Key::Enter]);
    assert_eq!(shown(&state), [4711, 99], "an empty filter shows all");
    press(&mut state, &[Key::Letter('/'), Key::Quit]);
    assert!(state.done);
}

#[test]
fn locks_that_were_never_taken_are_only_counted() {
    let mut state = state();
    let counters = &mut state.tick.samples[0].counters;
    let Ok(Some(snapshot)) = counters else {
        panic!()
    };
    let unused = LockFigures {
        name: "class-96".to_owned(),
        heap: Some(0),
        taken: 0,
        waited: 0,
        refused: 0,
    };
    snapshot.locks.push(unused);
    press(&mut state, &[Key::Down, Key::Enter, Key::Tab, Key::Tab]);
    let text = screen(&state, 80, 24).join("\n");
    assert!(
        text.contains("page_heap") && !text.contains("class-96"),
        "{text}"
    );
    assert!(text.contains("1 lock, never taken, not shown"), "{text}");
}

#[test]
fn the_axis_says_how_long_ago_a_bar_was() {
    let ages: Vec<f64> = (0..40).rev().map(f64::from).collect();
    assert_eq!(
        axis(&ages, 44),
        "    |39 s           |23 s               now|"
    );
    assert_eq!(axis(&ages, 20), "|19 s           now|");
    assert_eq!(axis(&[0.0], 8), "    now|");
    assert_eq!(axis(&ages, 2), "");
}

#[test]
fn records_for_programs_are_json_lines_and_csv_with_plain_bytes() {
    let state = state();
    let now = std::time::SystemTime::UNIX_EPOCH;
    let page = |form, is_first| batch::page(form, &state, now, is_first).unwrap();
    let records: Vec<serde_json::Value> = page(Form::Json, true)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[1]["live_bytes"], 104 * MIB);
    assert_eq!(records[1]["growth_bytes_per_second"], 2 * MIB);
    assert_eq!(records[1]["lock_waits_per_second"], 100.0);
    assert_eq!(records[0]["on_loam"], false);
    assert!(records[0]["live_bytes"].is_null());
    let first = page(Form::Csv, true);
    let mut lines = first.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let fields = records[0].as_object().unwrap();
    assert!(names.iter().eq(fields.keys()), "{names:?}");
    let server: Vec<&str> = lines.nth(1).unwrap().split(',').collect();
    let place = names.iter().position(|name| *name == "resident_bytes");
    assert_eq!(server[place.unwrap()], (160 * MIB).to_string());
    assert_eq!(server.len(), names.len());
    assert_eq!(
        page(Form::Csv, false).lines().count(),
        2,
        "the names come once"
    );
}
