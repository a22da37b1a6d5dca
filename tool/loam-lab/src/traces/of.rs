//! Which bytes of a stack are counted.

use super::stacks::{Estimate, Site};

/// Bytes of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Bytes that were live at the peak.
    Peak,
    /// All bytes that were allocated.
    Allocated,
    /// Bytes that were live at the end.
    End,
}

impl Of {
    /// The bytes of a stack.
    pub fn estimate(self, site: &Site) -> Estimate {
        match self {
            Of::Peak => site.peak,
            Of::Allocated => site.allocated,
            Of::End => site.end,
        }
    }

    /// What they are, for people.
    pub fn text(self) -> &'static str {
        match self {
            Of::Peak => "live at the peak",
            Of::Allocated => "allocated",
            Of::End => "live at the end",
        }
    }
}
