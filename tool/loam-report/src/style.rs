//! The styles of texts on a terminal. `loam_format::plain` lets only these through.

use anstyle::Style;

/// Bold, for the best of a column and for headings.
pub fn bold() -> Style {
    Style::new().bold()
}

/// Dim, for less important text.
pub fn dim() -> Style {
    Style::new().dimmed()
}
