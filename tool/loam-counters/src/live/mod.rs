//! Processes watched live: what `loam top` shows, without a terminal.
//!
//! ```text
//! watch::sampler -> collector (a thread of its own) -> state: the last looks, the user's place
//!                                                        -> rows: the tables of a place
//!                                                        -> records, for programs
//! ```

pub mod collector;
pub mod filter;
pub mod records;
pub mod rows;
pub mod state;
