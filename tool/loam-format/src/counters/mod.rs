//! The heap's counters as they lie in memory (`formats/counters.md`), and the list that names them.
//!
//! ```text
//! directory (which tables there are, and their fields)
//!     -> copies (of their records) -> raw (what they mean)
//! ```
//!
//! `list` is `formats/counters.toml`, `ids` are its names, and `formula` computes what it declares.
//!
//! An image is a file of such memory. Finding the directory in a process, and copies that are of
//! one moment, is the business of `loam-counters`.

pub mod copies;
pub mod directory;
pub mod formula;
pub mod ids;
pub mod image;
pub mod list;
pub mod raw;
