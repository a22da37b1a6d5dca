//! What the live blocks of a process or of a core are, who holds them, and which are lost.
//!
//! ```text
//!  target (process or core) -> heap: table of blocks -> graph: edges, types
//!                           -> owner: walk, holders -> census: rows
//!          '-> modules: files, symbols -> types              '-> roots ---------'
//! ```
//!
//! Nothing is stopped, written or prepared. Nothing that is read is trusted: time and memory are
//! bounded by the size of the target, and what was not followed is said.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod again;
pub mod census;
pub mod content;
pub mod core;
pub mod diff;
pub mod graph;
pub mod heap;
pub mod modules;
pub mod names;
pub mod owner;
pub mod python;
pub mod roots;
mod shared;
pub mod single;
pub mod table;
pub mod target;
pub mod tree;
pub mod types;
