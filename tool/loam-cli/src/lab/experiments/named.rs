//! Experiments that need no figures or charts of their own: a title and a question.

use super::Experiment;

/// An experiment that is run and drawn by the defaults.
pub struct Named {
    name: String,
}

/// Name, title, question.
const KNOWN: [(&str, &str, &str); 8] = [
    (
        "contention",
        "Heap lock contention",
        "How often do threads wait for each other in the heap, and what does it cost?",
    ),
    (
        "buffer-cache",
        "A cache with a bad policy",
        "How much of what a buffer cache hands out is really needed, under each policy?",
    ),
    (
        "queue",
        "Queues of functors",
        "Does pushing and popping functors get slower from round to round?",
    ),
    (
        "sizes",
        "Which sizes decay",
        "Which block sizes get slower when reused, or cost more?",
    ),
    (
        "levels",
        "Allocate-only levels",
        "What does it cost to drop everything at once, and what is left behind?",
    ),
    (
        "phase",
        "Changing phases",
        "How much memory does a program hold when it frees most and changes sizes?",
    ),
    (
        "sparse",
        "Sparse heaps",
        "Does memory come back when nine blocks in ten are freed?",
    ),
    (
        "handoff",
        "Producer and consumer",
        "What does it cost when one thread frees what another allocated?",
    ),
];

impl Named {
    /// The experiment of that name.
    pub fn of(name: &str) -> Named {
        Named {
            name: name.to_owned(),
        }
    }

    fn known(&self) -> Option<&'static (&'static str, &'static str, &'static str)> {
        KNOWN.iter().find(|(name, _, _)| *name == self.name)
    }
}

impl Experiment for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn title(&self) -> String {
        self.known()
            .map_or_else(|| self.name.clone(), |(_, title, _)| (*title).to_owned())
    }

    fn question(&self) -> String {
        self.known()
            .map_or_else(String::new, |(_, _, question)| (*question).to_owned())
    }
}
