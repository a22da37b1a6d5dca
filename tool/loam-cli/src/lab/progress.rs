//! Shows on standard error how many trials are done, and how long the others will take.
//!
//! On a terminal it is a bar; elsewhere (a log, CI) one line for each trial.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use loam_format::results::{Status, Trial};
use loam_format::{plain, units};
use loam_lab::measure::estimate::Estimate;
use loam_lab::measure::{Progress, Step};

use crate::output;

/// Shows progress.
pub struct Bar {
    bar: Option<ProgressBar>,
    estimate: Estimate,
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
        Bar {
            bar,
            estimate: Estimate::new(steps),
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::say(line)),
            None => output::say(line),
        }
    }
}

impl Progress for Bar {
    fn begin(&mut self, step: &Step) {
        let left = self.estimate.left().map_or(String::new(), |left| {
            format!(", about {} left", units::duration(left))
        });
        let warm_up = if step.warm_up { " (warm-up)" } else { "" };
        let what = format!("{} under {}{warm_up}{left}", name(step), step.allocator);
        match &self.bar {
            Some(bar) => bar.set_message(plain::line(&what).into_owned()),
            None => output::say(&format!(
                "[{}/{}] {what}",
                self.estimate.number(),
                self.estimate.steps()
            )),
        }
    }

    fn end(&mut self, step: &Step, trial: &Trial) {
        self.estimate.ended(step, trial.seconds);
        if !matches!(trial.status, Status::Ok | Status::Unavailable) {
            let reason = trial.reason.as_deref().unwrap_or("no reason known");
            self.say(&format!("failed: {}: {reason}", trial.describe()));
        }
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    fn skip(&mut self, _step: &Step) {
        self.estimate.skipped();
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
