use super::*;

fn row(values: &[(u32, f64, bool)]) -> Row {
    let run = |(round, value, noisy): &(u32, f64, bool)| Run {
        round: *round,
        noisy: *noisy,
        series: Vec::new(),
        start: Map::new(),
        end: Map::from_iter([("figure".to_owned(), Value::from(*value))]),
    };
    let runs = values.iter().map(run).collect();
    let mut row = Row {
        variant: PLAIN.to_owned(),
        allocator: "a".to_owned(),
        runs,
        left_out: Vec::new(),
    };
    leave_out_noisy(&mut row);
    row
}

fn figure(run: &Run) -> Option<f64> {
    run.end["figure"].as_f64()
}

#[test]
fn noisy_runs_do_not_count_where_quiet_ones_are_at_least_half() {
    assert_eq!(
        row(&[(0, 1.0, false), (1, 9.0, true)]).values(figure),
        [1.0]
    );
    let mostly_noisy = row(&[(0, 1.0, false), (1, 8.0, true), (2, 9.0, true)]);
    assert_eq!(mostly_noisy.values(figure), [1.0, 8.0, 9.0]);
    assert_eq!(row(&[(0, 9.0, true)]).values(figure), [9.0]);
}

#[test]
fn ratios_are_formed_within_a_round() {
    let base = row(&[(0, 1.0, false), (1, 10.0, false), (2, 0.0, false)]);
    let other = row(&[
        (1, 20.0, false),
        (0, 3.0, false),
        (2, 5.0, false),
        (7, 1.0, false),
    ]);
    assert_eq!(
        other.ratios(&base, figure),
        [2.0, 3.0],
        "no partner and no zero"
    );
}

#[test]
fn noise_in_different_rounds_does_not_tear_pairs_apart() {
    let base = row(&[(0, 1.0, true), (1, 2.0, false)]);
    let other = row(&[(0, 2.0, false), (1, 4.0, true)]);
    assert_eq!(
        other.ratios(&base, figure),
        [2.0, 2.0],
        "no pair is quiet, so both count"
    );
    let quiet = row(&[(0, 2.0, false), (1, 6.0, false)]);
    assert_eq!(
        quiet.ratios(&base, figure),
        [3.0],
        "half of the pairs are quiet"
    );
}
