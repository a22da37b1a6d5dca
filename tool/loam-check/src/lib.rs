//! Whether a program uses the replacement of malloc.
//!
//! ```text
//! a program  -> program (search, file)  -+
//!                                        +-> Examined (Linked: modules, bindings)
//! a process  -> process (link maps, file)-+         -> findings (operators, strays)
//! ```
//!
//! Nothing is executed and nothing is stopped. Both ways miss two things: an allocator that was
//! inlined or lost its symbols, and memory that a program takes directly from `mmap`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod command;
pub mod document;
pub mod examined;
pub mod family;
pub mod file;
pub mod findings;
pub mod linked;
pub mod obstacles;
mod operators;
pub mod process;
pub mod program;
mod search;
mod strays;
