//! Further tables beside the table of figures. Their cells are plain text, for the terminal, the
//! report and Markdown.

/// A table of text.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Its heading.
    pub title: String,
    /// What its cells mean.
    pub reading: String,
    /// Names of the columns, including the column of the rows' names.
    pub head: Vec<String>,
    /// Rows; the first cell is the row's name.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// A table that has no rows yet.
    pub fn new(title: &str, reading: &str, head: &[&str]) -> Grid {
        Grid {
            title: title.to_owned(),
            reading: reading.to_owned(),
            head: head.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. A row with only a name is left out.
    pub fn row(&mut self, name: &str, cells: Vec<Option<String>>) {
        if cells.iter().any(Option::is_some) {
            let cells = cells
                .into_iter()
                .map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            self.rows
                .push(std::iter::once(name.to_owned()).chain(cells).collect());
        }
    }

    /// The table; none if it has no rows.
    pub fn or_nothing(self) -> Option<Grid> {
        (!self.rows.is_empty()).then_some(self)
    }
}
