//! What Loam, its recorder and its tool exchange: layouts, files, units. Nothing here opens a file.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod trace;
