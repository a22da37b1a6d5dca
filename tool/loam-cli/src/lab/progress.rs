//! Shows on standard error how many trials are done, and how long the others will take.
//!
//! On a terminal it is a bar; elsewhere (a log, CI) one line for each trial. The estimate adds up
//! the expected times of the remaining trials: the time of the same case under the same allocator
//! if that has run, else the mean of the experiment, else of all trials. Before the first trial
//! there is no estimate.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use loam_format::results::{Status, Trial};
use loam_format::{plain, units};
use loam_lab::measure::{Progress, Step};

use crate::output;

/// Shows progress.
pub struct Bar {
    bar: Option<ProgressBar>,
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

impl Bar {
    /// A bar before the first step.
    pub fn new(steps: &[Step]) -> Bar {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps.len() as u64);
            bar.set_draw_target(ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {msg}");
            bar.set_style(style.expect("the template is constant"));
            // The interval is long, so that the bar's own work does not affect the measurement.
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        let steps = steps.iter().map(Key::of).collect();
        Bar {
            bar,
            steps,
            done: 0,
            durations: HashMap::new(),
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::say(line)),
            None => output::say(line),
        }
    }

    fn estimate(&self) -> Option<String> {
        let left: Option<f64> = self.steps[self.done..]
            .iter()
            .map(|key| self.expected(key))
            .sum();
        left.map(units::duration)
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

impl Progress for Bar {
    fn begin(&mut self, step: &Step) {
        let left = self
            .estimate()
            .map_or(String::new(), |left| format!(", about {left} left"));
        let warm_up = if step.warm_up { " (warm-up)" } else { "" };
        let what = format!("{} under {}{warm_up}{left}", name(step), step.allocator);
        match &self.bar {
            Some(bar) => bar.set_message(plain::line(&what).into_owned()),
            None => output::say(&format!("[{}/{}] {what}", self.done + 1, self.steps.len())),
        }
    }

    fn end(&mut self, step: &Step, trial: &Trial) {
        self.done += 1;
        self.durations
            .entry(Key::of(step))
            .or_default()
            .push(trial.seconds);
        if !matches!(trial.status, Status::Ok | Status::Unavailable) {
            let reason = trial.reason.as_deref().unwrap_or("no reason known");
            self.say(&format!("failed: {}: {reason}", trial.describe()));
        }
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    fn skip(&mut self, _step: &Step) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn name(step: &Step) -> String {
    if step.case.name == loam_lab::analyse::runs::PLAIN {
        step.experiment.clone()
    } else {
        format!("{} {}", step.experiment, step.case.name)
    }
}
