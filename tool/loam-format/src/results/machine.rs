//! The machine of the measurement, as far as it explains figures.

use serde::{Deserialize, Serialize};

use crate::units::bytes;
use crate::words;

/// What is known about a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel name and release.
    pub kernel: String,
    /// Architecture.
    pub architecture: String,
    /// Name of the distribution.
    pub system: String,
    /// Processor model.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Size of a page.
    pub page_bytes: u64,
    /// /sys/kernel/mm/transparent_hugepage/enabled
    pub transparent_hugepages: String,
    /// /proc/sys/vm/overcommit_memory
    pub overcommit: String,
    /// Whether it is a virtual machine.
    pub virtual_machine: bool,
    /// The load average before the first trial.
    pub load_average: f64,
    /// Resident memory of this tool before the first trial; children are started from it.
    pub launcher_resident_bytes: u64,
}

impl Machine {
    /// Whether trials on both machines can be compared in one row: the hardware, system and
    /// settings must be the same. Their load does not matter.
    pub fn is_like(&self, other: &Machine) -> bool {
        let still = |one: &Machine| Machine {
            load_average: 0.0,
            launcher_resident_bytes: 0,
            ..one.clone()
        };
        still(self) == still(other)
    }

    /// One line for tables.
    pub fn summary(&self) -> String {
        let cores = words::count(self.cores, "core");
        format!(
            "{}, {cores}, {} of memory, {}, {}",
            self.cpu,
            bytes(self.memory_bytes as f64),
            self.system,
            self.kernel
        )
    }
}
