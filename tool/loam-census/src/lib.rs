//! What the live blocks of a process or of a core are, who holds them, and which are lost.
//!
//! ```text
//!  target (process or core) -> heap: table of blocks -> graph: edges, types
//!                           -> owner: walk, holders -> census: rows
//!          '-> modules: files, symbols -> types              '-> roots ---------'
//!
//! census, diff of two -> document (a file, for programs), page (for a browser),
//!                        diagnosis (what grows)
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
pub mod diagnosis;
pub mod diff;
pub mod document;
pub mod graph;
pub mod heap;
pub mod modules;
pub mod names;
pub mod owner;
pub mod page;
pub mod python;
pub mod roots;
mod shared;
pub mod single;
pub mod table;
pub mod target;
pub mod tree;
pub mod types;
