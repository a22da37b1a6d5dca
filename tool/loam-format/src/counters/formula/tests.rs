//! Which texts are formulas, and what their results are.

use super::*;

#[test]
fn every_formula_of_the_list_is_one_and_stands_behind_what_it_needs() {
    let formulas = Formulas::of(&LIST).unwrap();
    for scope in [&formulas.process, &formulas.heap, &formulas.class] {
        assert!(!scope.is_empty());
        let place = |id: &str| scope.iter().position(|derived| derived.id == id);
        for (own, derived) in scope.iter().enumerate() {
            let mut needed = Vec::new();
            derived.formula.counters(&mut needed);
            for id in needed {
                let is_before = place(&id).is_none_or(|place| place < own);
                assert!(is_before, "{} needs {id}", derived.id);
            }
        }
    }
}

#[test]
fn every_counter_says_how_it_comes_about() {
    for counter in &LIST.counters {
        let is_said = counter.derive.is_some() != counter.found.is_some();
        assert!(is_said, "{}: either `derive` or `found`", counter.id);
        let is_of_heaps = counter.scope == Scope::Heap;
        assert!(
            counter.of_process.is_none() || is_of_heaps,
            "{}",
            counter.id
        );
    }
}

#[test]
fn what_is_no_formula_is_named_at_its_place() {
    for (text, rest) in [
        ("", ""),
        ("live_bytes +", ""),
        ("page_heap.nothing", "page_heap.nothing"),
        ("nobody + 1", "nobody + 1"),
        ("(live_bytes", ""),
        ("live_bytes / 2 / 2", "/ 2"),
        ("sum huge.mapped", "sum huge.mapped"),
        (
            "sum (cache.refills + region.extents)",
            "sum (cache.refills + region.extents)",
        ),
        ("99999999999999999999", "99999999999999999999"),
        ("registry.allocs[x]", "]"),
    ] {
        let error = Formula::parse(text, &LIST).unwrap_err();
        assert_eq!(error.rest, rest, "{error}");
    }
}

#[test]
fn numbers_stay_in_their_range_and_the_unknown_stays_unknown() {
    let known = |id: &str| match id {
        "live_bytes" => Some(u64::MAX),
        "used_bytes" => Some(3),
        "backed_bytes" => Some(0),
        _ => None,
    };
    let directory = crate::counters::directory::Directory {
        version: 1,
        library: String::new(),
        tables: Vec::new(),
        refused: Vec::new(),
    };
    let raw = Raw {
        directory: std::sync::Arc::new(directory),
        tables: Vec::new(),
        torn: Vec::new(),
        lost: Vec::new(),
    };
    let ground = Ground {
        known: &known,
        ..Ground::of_records(&raw)
    };
    let value = |text: &str| Formula::parse(text, &LIST).unwrap().value(&ground);
    assert_eq!(
        value("live_bytes + used_bytes"),
        Some(Number::Whole(u64::MAX))
    );
    assert_eq!(
        value("live_bytes * used_bytes"),
        Some(Number::Whole(u64::MAX))
    );
    assert_eq!(value("used_bytes - 5 + 1"), Some(Number::Whole(1)));
    assert_eq!(value("1 + 2 * (used_bytes - 1)"), Some(Number::Whole(5)));
    assert_eq!(value("max(used_bytes, 7)"), Some(Number::Whole(7)));
    assert_eq!(value("used_bytes + free_bytes"), None);
    assert_eq!(value("used_bytes + free_bytes?"), Some(Number::Whole(3)));
    assert_eq!(value("sum cache.refills"), None);
    assert_eq!(value("sum cache.refills?"), Some(Number::Whole(0)));
    assert_eq!(value("used_bytes / 2"), Some(Number::Real(1.5)));
    let none = value("backed_bytes / backed_bytes");
    assert!(matches!(none, Some(Number::Real(none)) if none.is_nan()));
}
