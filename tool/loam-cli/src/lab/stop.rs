//! Ctrl-C and its like, and that nobody sees the progress any more: noticed between and during trials, never in the middle of
//! writing a file.

use std::io;

use loam_lab::measure;

use crate::ending::{Ending, Stream, Watch};

/// Whether measuring is to stop.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    ending: Ending,
}

impl Stop {
    /// From now on a signal is noted instead of ending the process, and so is the end of the terminal, or of the pipe, that
    /// progress and results go to. A second signal ends the process at once: an impatient user is right.
    pub fn when_asked() -> io::Result<Stop> {
        let ending = Watch::in_good_order(&[Stream::Out, Stream::Error]).begin()?;
        Ok(Stop { ending })
    }
}

impl measure::Stop for Stop {
    fn signal(&self) -> Option<u8> {
        self.ending.reason().map(|reason| reason.signal())
    }
}
