//! How far a recording has come, on standard error while that is a terminal.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use loam_format::units;
use loam_record::board::Board;

use crate::output;

/// How often the line changes.
const EVERY: Duration = Duration::from_millis(500);

/// A line that changes, or nothing.
pub struct Progress {
    bar: Option<ProgressBar>,
    shown: Instant,
    events: u64,
}

impl Progress {
    /// Begins.
    pub fn begin() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_draw_target(ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{elapsed} {msg}");
            bar.set_style(style.expect("the template is constant"));
            bar
        });
        Progress {
            bar,
            shown: Instant::now(),
            events: 0,
        }
    }

    /// Shows what there is by now.
    pub fn show(&mut self, board: &Board) {
        let Some(bar) = &self.bar else { return };
        let elapsed = self.shown.elapsed();
        if elapsed < EVERY {
            return;
        }
        let events = board.events.load(Ordering::Relaxed);
        let rate = (events - self.events) as f64 / elapsed.as_secs_f64();
        let size = units::bytes(board.bytes.load(Ordering::Relaxed) as f64);
        bar.set_message(format!(
            "recording: {events} events, {rate:.0} a second, {size}"
        ));
        bar.tick();
        (self.events, self.shown) = (events, Instant::now());
    }

    /// A warning meanwhile.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::print_warning(text)),
            None => output::print_warning(text),
        }
    }

    /// What happens meanwhile as it should.
    pub fn tell(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::say(text)),
            None => output::say(text),
        }
    }

    /// Takes the line away.
    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
