//! The layout of the heap's counters in memory (`formats/counters.md`), and the list that names
//! them.
//!
//! ```text
//! directory (which tables there are, and their fields)
//!     -> copies (of their records) -> raw (what they mean)
//! ```
//!
//! `list` is `formats/counters.toml`, `ids` are its names, and `formula` computes what it declares.
//!
//! An image is a file with such memory. `loam-counters` finds the directory in a process and makes
//! copies that are of one moment.

pub mod copies;
pub mod directory;
pub mod formula;
pub mod ids;
pub mod image;
pub mod list;
pub mod raw;
