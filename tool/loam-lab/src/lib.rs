//! Measures allocators: finds them, runs trials, analyses what was measured, and draws it.
//!
//! ```text
//! allocators, plan (which experiments, which allocators)
//!   -> measure (a process a trial; the results file is rewritten after each)
//!   -> store (the results file)
//!   -> analyse (medians, intervals, ratios paired by round) -> charts (curves of them)
//!   -> experiments (what each asks: its figures, charts, findings)
//!   -> draw (the table on the terminal, Markdown, the HTML report), compare, merge
//! ```
//!
//! `advise` picks an allocator for a trace by its replays. `gate` compares the replay of a trace
//! with a baseline and says what got worse.
//!
//! `replay` makes an experiment of a trace: it prepares what the replayer runs, in passes over the
//! file. `traces` reports what a trace contains; `pins` reports which blocks keep its sparse pages.
//!
//! Measuring, the results file and drawing are separate. No module from `analyse` on measures, and
//! all of them start from the file's types alone. Nothing here prints: a text is a value, and
//! progress goes to the caller.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod advise;
pub mod allocators;
pub mod analyse;
pub mod charts;
pub mod compare;
pub mod draw;
pub mod experiments;
pub mod gate;
pub mod identity;
pub mod machine;
pub mod measure;
pub mod merge;
pub mod options;
pub mod outputs;
pub mod pins;
pub mod plan;
pub mod replay;
pub mod resume;
pub mod store;
pub mod traces;
