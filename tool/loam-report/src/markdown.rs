//! Tables as Markdown.

use crate::grid::Grid;

/// A grid under its heading.
pub fn grid(grid: &Grid) -> String {
    format!(
        "\n{}. {}\n\n{}",
        grid.title,
        grid.reading,
        lines(&grid.head, &grid.rows)
    )
}

/// A table of a head and rows.
pub fn lines(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let body: String = rows.iter().map(|row| line(row)).collect();
    line(head) + &rule + &body
}

/// Escapes the text of a cell: a vertical bar would end the cell.
pub fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
