//! Measuring allocators: which there are, trials of each, what was measured, what it means, how it
//! looks.
//!
//! ```text
//! allocators, plan (which experiments, which allocators)
//!   -> measure (a process a trial; the results file is rewritten after each)
//!   -> store (the results file)
//!   -> analyse (medians, intervals, ratios paired by round) -> charts (curves of them)
//!   -> experiments (what each asks: its figures, charts, findings)
//!   -> draw (the table on the terminal, Markdown, the HTML report), compare
//! ```
//!
//! `advise` picks an allocator for a trace by its replays. `gate` compares the replay of a trace with a baseline and says what got worse.
//!
//! `replay` makes an experiment of a trace: what the replayer runs, prepared in passes over the
//! file. `traces` says what is in one; `pins` says whose blocks keep its sparse pages.
//!
//! Measuring, the results file and drawing are separate: nothing from `analyse` on measures, and
//! all of it starts from the file's types alone. Nothing here prints: a text is a value, and
//! progress goes to whoever asked for it.

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
pub mod options;
pub mod outputs;
pub mod pins;
pub mod plan;
pub mod replay;
pub mod resume;
pub mod store;
pub mod traces;
