//! Notices Ctrl-C and similar signals, and the end of the progress's terminal or pipe. This is
//! checked between and during trials, never in the middle of writing a file.

use std::io;

use loam_lab::measure;
use loam_process::ending::{Ending, Watch};

use crate::exit::leave;

/// Whether measuring is to stop.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    ending: Ending,
}

impl Stop {
    /// From now on a signal is recorded instead of ending the process. So is the end of the
    /// terminal or pipe that gets progress and results. A second signal ends the process at once:
    /// an impatient user is right.
    pub fn when_asked() -> io::Result<Stop> {
        let ending = Watch::in_good_order(&[rustix::stdio::stdout(), rustix::stdio::stderr()])
            .begin(leave)?;
        Ok(Stop { ending })
    }
}

impl measure::Stop for Stop {
    fn signal(&self) -> Option<u8> {
        self.ending.reason().map(|reason| reason.signal())
    }
}
