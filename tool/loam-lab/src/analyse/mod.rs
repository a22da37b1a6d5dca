//! Turns raw lines into figures. Nothing here measures or draws.
//!
//! ```text
//! trials -> runs (checkpoints by series, one run for each variant of a trial)
//!        -> rows (all runs of one variant under one allocator)
//!        -> figures: median and interval of a row; ratio to the base row, paired by round
//! ```

pub mod figures;
mod merged;
pub mod pick;
pub mod runs;
pub mod stats;
