//! Ctrl-C and its like: noticed between and during trials, never in the middle of writing a file.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether somebody asked to stop.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// From now on SIGINT, SIGTERM and SIGHUP are noted instead of ending the process. A second
    /// SIGINT ends it at once: an impatient user is right.
    pub fn on_signals() -> io::Result<Stop> {
        let stop = Stop::default();
        let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let code = 128 + signal;
            // Registered first, so that it sees `armed` as the previous signal left it.
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&armed))?;
            signal_hook::flag::register(signal, Arc::clone(&armed))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&stop.signal), signal as usize)?;
        }
        Ok(stop)
    }

    /// The signal that came, if one did.
    pub fn signal(&self) -> Option<u8> {
        // Relaxed: the flag carries no data besides itself.
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            number => Some(number as u8),
        }
    }
}
