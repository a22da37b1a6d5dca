//! Tables beside the table of figures: plain cells, drawn by the terminal, the report and Markdown.

/// A table of text.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Its heading.
    pub title: String,
    /// What its cells are.
    pub reading: String,
    /// Names of the columns, that of the row names included.
    pub head: Vec<String>,
    /// Rows; the first cell is the row's name.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// A table without rows yet.
    pub fn new(title: &str, reading: &str, head: &[&str]) -> Grid {
        Grid {
            title: title.to_owned(),
            reading: reading.to_owned(),
            head: head.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; one that has nothing but its name is left out.
    pub fn row(&mut self, name: &str, cells: Vec<Option<String>>) {
        if cells.iter().any(Option::is_some) {
            let cells = cells
                .into_iter()
                .map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            self.rows
                .push(std::iter::once(name.to_owned()).chain(cells).collect());
        }
    }

    /// Itself, if it has rows.
    pub fn or_nothing(self) -> Option<Grid> {
        (!self.rows.is_empty()).then_some(self)
    }
}
