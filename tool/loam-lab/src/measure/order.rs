//! The order in which trials run.
//!
//! Neighbouring rounds run in opposite order, so that a drift of the machine within a round cancels
//! out. Every second round the start moves on by one, so that no allocator always follows the same
//! neighbour: A B C, C B A, B C A, A C B, C A B, B A C, and so on. The experiments of a round
//! alternate in the same way, because two of them may be compared with each other (`gate`).

use loam_format::results::{Case, ExperimentRecord, Results};

use crate::measure::Step;

/// Every planned step that is not in the results yet, in order.
pub fn steps(results: &Results) -> Vec<Step> {
    let mut steps = Vec::new();
    let rounds = results.options.rounds;
    for round in 0..rounds {
        let mut experiments: Vec<&ExperimentRecord> = results.experiments.iter().collect();
        if round % 2 == 1 {
            experiments.reverse();
        }
        for experiment in experiments {
            let mut cases: Vec<Step> = Vec::new();
            for case in experiment.cases.iter().filter(|case| round < case.rounds) {
                for allocator in shuffled(&case.allocators, round) {
                    let is_done = results
                        .trials
                        .iter()
                        .any(|t| t.is_at(&experiment.name, &case.name, &allocator, round));
                    if !is_done {
                        cases.push(step(experiment, case, allocator, round, false));
                    }
                }
            }
            let is_cold = !steps.iter().any(|s: &Step| s.experiment == experiment.name);
            if let Some(first) = cases.first().filter(|_| is_cold).cloned() {
                steps.push(warm_up(experiment, first));
            }
            steps.extend(cases);
        }
    }
    steps
}

/// One uncounted trial brings the program, its input and the library into the page cache.
fn warm_up(experiment: &ExperimentRecord, first: Step) -> Step {
    let case = experiment.cases.first().cloned().unwrap_or(first.case);
    let allocator = case.allocators.first().cloned().unwrap_or(first.allocator);
    Step {
        case,
        allocator,
        round: 0,
        warm_up: true,
        ..first
    }
}

fn step(
    experiment: &ExperimentRecord,
    case: &Case,
    allocator: String,
    round: u32,
    warm_up: bool,
) -> Step {
    Step {
        experiment: experiment.name.clone(),
        workload: experiment.workload.clone(),
        case: case.clone(),
        allocator,
        round,
        warm_up,
    }
}

/// The order of a round.
pub fn shuffled<T: Clone>(all: &[T], round: u32) -> Vec<T> {
    let mut order = all.to_vec();
    if order.is_empty() {
        return order;
    }
    let count = order.len();
    order.rotate_left((round as usize / 2) % count);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(count: usize, round: u32) -> String {
        let names: Vec<String> = ["A", "B", "C", "D"][..count]
            .iter()
            .map(|n| (*n).to_owned())
            .collect();
        shuffled(&names, round).concat()
    }

    #[test]
    fn two_allocators_run_a_b_b_a() {
        let rounds: String = (0..4).map(|round| order(2, round)).collect();
        assert_eq!(rounds, "ABBABAAB");
    }

    #[test]
    fn rounds_are_reversed_and_rotated() {
        let rounds: Vec<String> = (0..6).map(|round| order(3, round)).collect();
        assert_eq!(rounds, ["ABC", "CBA", "BCA", "ACB", "CAB", "BAC"]);
    }

    #[test]
    fn everyone_is_first_equally_often() {
        let firsts: String = (0..8).map(|round| order(4, round).remove(0)).collect();
        for name in ["A", "B", "C", "D"] {
            assert_eq!(firsts.matches(name).count(), 2, "{firsts}");
        }
    }
}
