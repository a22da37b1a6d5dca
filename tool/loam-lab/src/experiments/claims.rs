//! Findings of an article, compared with what was measured here.

/// The verdict on a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The measurement here agrees.
    Confirmed,
    /// The measurement here disagrees.
    Refuted,
    /// The measurement agrees in part, or only for some allocators.
    Mixed,
    /// The case of the finding did not occur in this run.
    Untested,
}

impl Verdict {
    /// The word for the verdict.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Confirmed => "confirmed",
            Verdict::Refuted => "not confirmed",
            Verdict::Mixed => "in part",
            Verdict::Untested => "not tested in this form",
        }
    }

    /// Confirmed or refuted.
    pub fn of(confirmed: bool) -> Verdict {
        if confirmed {
            Verdict::Confirmed
        } else {
            Verdict::Refuted
        }
    }

    /// Confirmed if all of them are, refuted if none is.
    pub fn of_some(confirmed: usize, all: usize) -> Verdict {
        match confirmed {
            0 => Verdict::Refuted,
            n if n == all => Verdict::Confirmed,
            _ => Verdict::Mixed,
        }
    }
}

/// A finding of an article, and what was found here.
#[derive(Debug, Clone)]
pub struct Claim {
    /// What the article says, in a sentence without its full stop.
    pub said: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// The figures that decide, in a sentence without its full stop.
    pub found: String,
}

impl Claim {
    /// A claim with its evidence.
    pub fn new(said: &'static str, verdict: Verdict, found: String) -> Claim {
        Claim {
            said,
            verdict,
            found,
        }
    }
}
