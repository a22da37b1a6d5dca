//! Touches memory before a trial, so that the trial finds it warm.
//!
//! Where the host takes free memory back from a virtual machine, the first touch of a page may take
//! ten times as long as later ones, and the allocator that runs first would pay for all. So as much
//! memory is touched and given back as earlier trials of the case needed at their peaks. It is
//! touched twice. The second touch shows whether the memory is warm.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use loam_format::results::lines::{self, Line};
use loam_format::results::{Touch, Trial};
use procfs::{Current, Meminfo};

/// A second touch that takes so many times as long as the fastest one of the run found cold memory.
/// Chosen: cold pages take up to ten times as long, and fast ones differ by a third.
const COLD: f64 = 2.0;

/// What trials needed, and what touches took.
#[derive(Debug, Default)]
pub struct Heat {
    /// The highest peak of each experiment's case, in bytes.
    peaks: HashMap<(String, String), u64>,
    /// The fastest second touch, in nanoseconds a page.
    fastest: Option<f64>,
}

impl Heat {
    /// With what a run has measured so far.
    pub fn of(trials: &[Trial]) -> Heat {
        let mut heat = Heat::default();
        trials.iter().for_each(|trial| heat.learn(trial));
        heat
    }

    /// Takes what a trial needed.
    pub fn learn(&mut self, trial: &Trial) {
        let peaks = trial
            .lines
            .iter()
            .filter_map(|line| match lines::parse(line) {
                Ok(Line::Checkpoint(point)) => point.peak_resident_bytes,
                _ => None,
            });
        let peak = peaks.fold(0.0, f64::max) as u64;
        let key = (trial.experiment.clone(), trial.case.clone());
        let known = self.peaks.entry(key).or_default();
        *known = peak.max(*known);
        if let Some(touch) = trial.touch {
            let fastest = self.fastest.get_or_insert(touch.again_ns);
            *fastest = fastest.min(touch.again_ns);
        }
    }

    /// Touches memory for a trial. None if no earlier trial tells how much it needs, as is so for
    /// the warm-up, which warms the memory by itself.
    pub fn touch(&self, experiment: &str, case: &str) -> Option<Touch> {
        let of_case = self.peaks.get(&(experiment.to_owned(), case.to_owned()));
        let of_others = self.peaks.iter().filter(|((of, _), _)| of == experiment);
        let peak = *of_case.or_else(|| of_others.map(|(_, peak)| peak).max())?;
        // The rest of the machine keeps its memory.
        let available = Meminfo::current().ok()?.mem_available?;
        let bytes = peak.min(available / 2) as usize;
        let page = rustix::param::page_size();
        (bytes >= page).then(|| Touch {
            first_ns: touch(bytes, page),
            again_ns: touch(bytes, page),
        })
    }

    /// Whether memory was still cold at the second touch.
    pub fn is_cold(&self, touch: &Touch) -> bool {
        self.fastest
            .is_some_and(|fastest| touch.again_ns > COLD * fastest)
    }
}

/// Nanoseconds a page.
fn touch(bytes: usize, page: usize) -> f64 {
    // The C library maps it, untouched, and gives it back to the system when it goes.
    let mut memory = vec![0_u8; bytes];
    let begun = Instant::now();
    memory.iter_mut().step_by(page).for_each(|byte| *byte = 1);
    black_box(&memory);
    begun.elapsed().as_nanos() as f64 / (bytes / page) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_format::results::Status;
    use serde_json::value::RawValue;

    fn trial(case: &str, peak: u64, again_ns: Option<f64>) -> Trial {
        let line = format!(r#"{{"type":"checkpoint","peak_resident_bytes":{peak}}}"#);
        Trial {
            experiment: "lfh".to_owned(),
            case: case.to_owned(),
            allocator: "loam".to_owned(),
            round: 0,
            position: 0,
            warm_up: false,
            status: Status::Ok,
            reason: None,
            started: String::new(),
            seconds: 1.0,
            preload: "mapped".to_owned(),
            steal: 0.0,
            other_load: 0.0,
            touch: again_ns.map(|again_ns| Touch {
                first_ns: 9_000.0,
                again_ns,
            }),
            noisy: false,
            padding: 0,
            stderr_tail: String::new(),
            lines: vec![RawValue::from_string(line).unwrap()],
        }
    }

    #[test]
    fn as_much_is_touched_as_earlier_trials_needed() {
        assert_eq!(Heat::default().touch("lfh", "a"), None);
        let heat = Heat::of(&[trial("a", 3 << 20, None), trial("a", 2 << 20, None)]);
        assert_eq!(heat.peaks[&("lfh".to_owned(), "a".to_owned())], 3 << 20);
        let touch = heat.touch("lfh", "a").unwrap();
        assert!(touch.first_ns > 0.0 && touch.again_ns > 0.0, "{touch:?}");
        // Another case of the experiment is the best guess.
        assert!(heat.touch("lfh", "b").is_some());
        assert_eq!(heat.touch("sizes", "a"), None);
    }

    #[test]
    fn memory_is_cold_if_the_second_touch_took_long() {
        let trials = [trial("a", 1, Some(300.0)), trial("a", 1, Some(250.0))];
        let heat = Heat::of(&trials);
        let took = |again_ns| Touch {
            first_ns: 9_000.0,
            again_ns,
        };
        assert!(!heat.is_cold(&took(400.0)));
        assert!(heat.is_cold(&took(600.0)));
        assert!(!Heat::default().is_cold(&took(600.0)));
    }
}
