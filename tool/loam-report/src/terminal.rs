//! Tables and sentences for a terminal of 98 columns.

use comfy_table::{presets, Table};

use loam_format::plain;

use crate::columns;
use crate::grid::Grid;

/// A grid under its heading.
pub fn grid(grid: &Grid) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let cells = |row: &[String]| -> Vec<String> {
        row.iter()
            .map(|cell| plain::line(cell).into_owned())
            .collect()
    };
    table.set_header(cells(&grid.head));
    for row in &grid.rows {
        table.add_row(cells(row));
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    format!(
        "\n{}{}\n",
        wrapped(&format!("{}. {}", grid.title, grid.reading)),
        lines.join("\n")
    )
}

/// A sentence, broken into lines that fit. The first line is indented less than the further ones.
pub fn wrapped(sentence: &str) -> String {
    const WIDTH: usize = 98;
    let mut text = String::new();
    let mut line = "  ".to_owned();
    for word in plain::line(sentence).split(' ') {
        if columns::width(&line) + columns::width(word) > WIDTH && line.trim() != "" {
            text += line.trim_end();
            text += "\n";
            line = "    ".to_owned();
        }
        line += word;
        line.push(' ');
    }
    text + line.trim_end() + "\n"
}
