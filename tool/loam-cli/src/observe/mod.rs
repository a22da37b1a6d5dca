//! What can be seen of running processes from outside, without stopping or preparing them.
//!
//! ```text
//! choose (PID, NAME or PATTERN) -> process (who it is) -> mappings -> residence (where memory is)
//!                                                      -> remote (its bytes, for the heap's counters)
//! ```
//!
//! All of it may be held up by the one who is looked at, so it is done `apart`.

pub mod account;
pub mod allocator;
pub mod apart;
pub mod budget;
pub mod choose;
pub mod mappings;
pub mod process;
pub mod remote;
pub mod residence;
pub mod view;
