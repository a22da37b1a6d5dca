//! The means of drawing: charts and tables as data, the frame of a page, texts in columns.
//!
//! ```text
//! chart, grid       what is to be drawn
//! html, markdown, terminal   the same for a page, a document, a terminal
//! map               a page of many cells, with a slider over time
//! treemap           a page of areas within areas
//! flame             a page of stacks
//! columns, style    texts on a terminal
//! ```
//!
//! Nothing here depends on what is measured or on the caller. The caller composes the page.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod chart;
pub mod columns;
pub mod flame;
pub mod grid;
pub mod html;
pub mod map;
pub mod markdown;
pub mod style;
pub mod terminal;
pub mod treemap;
