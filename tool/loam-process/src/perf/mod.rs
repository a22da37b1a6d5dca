//! The kernel's samples of a running process (`perf_event_open`): which thread, when, which
//! address, and its stack.
//!
//! ```text
//! Threads (an event for each thread and processor, inherited by new threads)
//!         -> Ring (one a processor) -> Sample
//! Starts (an event that counts nothing, inherited by children) -> Started
//! rights  what the kernel allows this process, before anything is tried
//! ```
//!
//! All of it ends with this process: an event has no life beyond its last descriptor.

pub mod rights;
mod sample;
mod starts;
mod system;
mod threads;

pub use sample::{Sample, Told};
pub use starts::{Started, Starts};
pub use threads::Threads;
