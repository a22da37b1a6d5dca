//! How long the remaining trials will take.
//!
//! The estimate adds up their expected times: the time of the same case under the same allocator if
//! that has run, else the mean of the case, else of the experiment, else of all trials. Before the
//! first trial there is no estimate.

use std::collections::HashMap;

use super::Step;

/// The times of the steps that have run.
#[derive(Debug)]
pub struct Estimate {
    steps: Vec<Key>,
    done: usize,
    durations: HashMap<Key, Vec<f64>>,
}

/// Identifies steps that should take equally long.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    experiment: String,
    case: String,
    allocator: String,
}

impl Key {
    fn of(step: &Step) -> Key {
        Key {
            experiment: step.experiment.clone(),
            case: step.case.name.clone(),
            allocator: step.allocator.clone(),
        }
    }
}

impl Estimate {
    /// Before the first step.
    pub fn new(steps: &[Step]) -> Estimate {
        Estimate {
            steps: steps.iter().map(Key::of).collect(),
            done: 0,
            durations: HashMap::new(),
        }
    }

    /// The number of the present step, from 1.
    pub fn number(&self) -> usize {
        self.done + 1
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// The present step took so long.
    pub fn ended(&mut self, step: &Step, seconds: f64) {
        self.done += 1;
        let known = self.durations.entry(Key::of(step)).or_default();
        known.push(seconds);
    }

    /// The present step was left out.
    pub fn skipped(&mut self) {
        self.done += 1;
    }

    /// The seconds that the remaining steps will take.
    pub fn left(&self) -> Option<f64> {
        let left = self.steps[self.done..].iter();
        left.map(|key| self.expected(key)).sum()
    }

    fn expected(&self, key: &Key) -> Option<f64> {
        let same = |other: &Key| other == key;
        let alike = |other: &Key| other.experiment == key.experiment && other.case == key.case;
        let akin = |other: &Key| other.experiment == key.experiment;
        self.mean(same)
            .or_else(|| self.mean(alike))
            .or_else(|| self.mean(akin))
            .or_else(|| self.mean(|_| true))
    }

    fn mean(&self, wanted: impl Fn(&Key) -> bool) -> Option<f64> {
        let all: Vec<f64> = self
            .durations
            .iter()
            .filter(|(key, _)| wanted(key))
            .flat_map(|(_, seconds)| seconds.iter().copied())
            .collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_format::results::Case;

    fn step(experiment: &str, case: &str, allocator: &str) -> Step {
        Step {
            experiment: experiment.to_owned(),
            workload: "w".into(),
            case: Case {
                name: case.to_owned(),
                arguments: Vec::new(),
                allocators: Vec::new(),
                rounds: 1,
            },
            allocator: allocator.to_owned(),
            round: 0,
            warm_up: false,
        }
    }

    #[test]
    fn what_ran_alike_says_how_long_the_rest_takes() {
        let steps = [
            step("a", "x", "one"),
            step("a", "x", "two"),
            step("a", "y", "one"),
            step("b", "x", "one"),
            step("a", "x", "one"),
        ];
        let mut estimate = Estimate::new(&steps);
        assert_eq!((estimate.left(), estimate.number()), (None, 1));
        estimate.ended(&steps[0], 2.0);
        estimate.ended(&steps[1], 4.0);
        // The mean of the experiment, the mean of all, and what this very step took.
        assert_eq!(estimate.left(), Some(3.0 + 3.0 + 2.0));
        estimate.skipped();
        assert_eq!((estimate.left(), estimate.number()), (Some(5.0), 4));
    }
}
