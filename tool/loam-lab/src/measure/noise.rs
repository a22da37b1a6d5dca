//! Measures the other load on the machine while a trial ran.
//!
//! The load has two shares of all processors' time: the time that the hypervisor gave to other
//! virtual machines (steal), and the time that other processes used. Either disturbs a measurement,
//! and the measurement itself shows neither.

use procfs::{CurrentSI, KernelStats};

/// More steal than this makes a trial noisy.
pub const MOST_STEAL: f64 = 0.01;
/// Load of other processes above this share makes a trial noisy.
pub const MOST_OTHER_LOAD: f64 = 0.15;

/// Processor time used so far, in ticks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    total: u64,
    busy: u64,
    steal: u64,
    /// Processor time of this process and its finished children.
    own: u64,
}

/// The disturbances of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Noise {
    /// Share that other virtual machines took.
    pub steal: f64,
    /// Share that other processes used.
    pub other_load: f64,
}

impl Sample {
    /// The counters as they are now; zeros if the system does not report them.
    pub fn now() -> Sample {
        let Ok(stats) = KernelStats::current() else {
            return Sample::default();
        };
        let cpu = stats.total;
        let (irq, softirq) = (cpu.irq.unwrap_or(0), cpu.softirq.unwrap_or(0));
        let steal = cpu.steal.unwrap_or(0);
        let busy = cpu.user + cpu.nice + cpu.system + irq + softirq;
        let own = procfs::process::Process::myself()
            .and_then(|me| me.stat())
            .map_or(0, |stat| {
                let children = (stat.cutime + stat.cstime).max(0) as u64;
                stat.utime + stat.stime + children
            });
        let total = busy + steal + cpu.idle + cpu.iowait.unwrap_or(0);
        Sample {
            total,
            busy,
            steal,
            own,
        }
    }

    /// The load since an earlier sample.
    pub fn since(&self, before: &Sample) -> Noise {
        let total = self.total.saturating_sub(before.total);
        if total == 0 {
            return Noise::default();
        }
        let busy = self.busy.saturating_sub(before.busy);
        let others = busy.saturating_sub(self.own.saturating_sub(before.own));
        Noise {
            steal: self.steal.saturating_sub(before.steal) as f64 / total as f64,
            other_load: others as f64 / total as f64,
        }
    }
}

impl Noise {
    /// Whether the trial is noisy.
    pub fn is_too_much(&self) -> bool {
        self.steal > MOST_STEAL || self.other_load > MOST_OTHER_LOAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_used_ourselves_is_no_noise() {
        let before = Sample {
            total: 1000,
            busy: 500,
            steal: 0,
            own: 100,
        };
        let after = Sample {
            total: 1200,
            busy: 600,
            steal: 0,
            own: 195,
        };
        let noise = after.since(&before);
        assert_eq!(
            noise,
            Noise {
                steal: 0.0,
                other_load: 5.0 / 200.0
            }
        );
        assert!(!noise.is_too_much());
    }

    #[test]
    fn steal_and_other_processes_are_noise() {
        let before = Sample {
            total: 1000,
            busy: 500,
            steal: 10,
            own: 100,
        };
        let stolen = Sample {
            total: 1200,
            busy: 600,
            steal: 13,
            own: 200,
        };
        assert!(stolen.since(&before).is_too_much());
        let shared = Sample {
            total: 1200,
            busy: 650,
            steal: 10,
            own: 200,
        };
        assert!(shared.since(&before).is_too_much());
        assert_eq!(before.since(&before), Noise::default());
    }
}
