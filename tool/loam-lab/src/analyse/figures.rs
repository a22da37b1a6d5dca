//! Figures, each one number of a run, and the tables that are made of them.

use serde::Serialize;

use loam_format::results::lines::Checkpoint;
use loam_format::units::Unit;

use crate::analyse::runs::{Row, Run, View};
use crate::analyse::stats::Summary;

/// Which direction is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither direction is better; the figure is shown because it explains the other figures.
    Neither,
}

/// One number of a run.
#[derive(Clone)]
pub struct Figure {
    /// Tells figures apart in files.
    pub id: &'static str,
    /// The column's heading.
    pub title: &'static str,
    /// How it is made, for the report.
    pub meaning: &'static str,
    /// How it is written.
    pub unit: Unit,
    /// Which direction is better.
    pub better: Better,
    /// The number.
    pub of: fn(&Run) -> Option<f64>,
}

/// A row's value for a figure.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// The value over all rounds.
    pub value: Summary,
    /// The value divided by the base row's, paired by round.
    pub ratio: Option<Summary>,
    /// Whether no comparable row is better.
    pub is_best: bool,
}

/// A table of an experiment.
pub struct FigureTable<'v> {
    /// The rows and runs that the table was made from.
    pub view: &'v View<'v>,
    /// Its columns.
    pub figures: Vec<Figure>,
    /// Cells by row and column. The rows are those of the view.
    pub cells: Vec<Vec<Option<Cell>>>,
}

impl<'v> FigureTable<'v> {
    /// Computes every cell.
    pub fn of(view: &'v View<'v>, figures: Vec<Figure>) -> FigureTable<'v> {
        let mut columns: Vec<Vec<Option<Cell>>> =
            figures.iter().map(|figure| column(view, figure)).collect();
        // A figure that no row has gets no column.
        let used: Vec<bool> = columns
            .iter()
            .map(|column| column.iter().any(Option::is_some))
            .collect();
        let mut keep = used.iter();
        columns.retain(|_| *keep.next().expect("one flag a column"));
        let mut keep = used.iter();
        let figures: Vec<Figure> = figures
            .into_iter()
            .filter(|_| *keep.next().expect("one flag a column"))
            .collect();
        let cells = (0..view.rows.len())
            .map(|row| columns.iter().map(|column| column[row]).collect())
            .collect();
        FigureTable {
            view,
            figures,
            cells,
        }
    }

    /// The cell of a row for the figure of that id.
    pub fn cell(&self, row: usize, id: &str) -> Option<&Cell> {
        let column = self.figures.iter().position(|figure| figure.id == id)?;
        self.cells[row][column].as_ref()
    }

    /// The row of the base variant that is best by a figure.
    pub fn best(&self, id: &str) -> Option<usize> {
        (0..self.cells.len()).find(|row| self.cell(*row, id).is_some_and(|cell| cell.is_best))
    }

    /// Index of the row of that allocator in the base variant.
    pub fn row_of(&self, allocator: &str) -> Option<usize> {
        let variant = &self.view.base_row()?.variant;
        let is_it = |row: &Row| row.allocator == allocator && row.variant == *variant;
        self.view.rows.iter().position(is_it)
    }
}

fn column(view: &View, figure: &Figure) -> Vec<Option<Cell>> {
    let mut cells: Vec<Option<Cell>> = view
        .rows
        .iter()
        .enumerate()
        .map(|(index, row)| {
            let base = view.base_of(index).map(|base| &view.rows[base]);
            Some(Cell {
                value: Summary::of(&row.values(figure.of))?,
                ratio: base.and_then(|base| Summary::of(&row.ratios(base, figure.of))),
                is_best: false,
            })
        })
        .collect();
    for index in 0..cells.len() {
        let is_best = is_best(view, figure, &cells, index);
        if let Some(cell) = &mut cells[index] {
            cell.is_best = is_best;
        }
    }
    cells
}

/// Whether no row of the same variant is better and at least one is worse. Only rows of the same
/// variant compete: a null allocator that frees nothing would always be the fastest.
fn is_best(view: &View, figure: &Figure, cells: &[Option<Cell>], index: usize) -> bool {
    let Some(own) = cells[index].map(|cell| cell.value.median) else {
        return false;
    };
    let rivals = || {
        let same = |other: &usize| view.rows[*other].variant == view.rows[index].variant;
        let medians = |other: usize| cells[other].map(|cell| cell.value.median);
        (0..cells.len()).filter(same).filter_map(medians)
    };
    let is_worse = |other: f64| match figure.better {
        Better::Higher => other < own,
        Better::Lower => other > own,
        Better::Neither => false,
    };
    rivals().any(is_worse) && rivals().all(|other| other == own || is_worse(other))
}

/// Operations of these points, divided by the time that they took.
pub fn rate<'p>(points: impl IntoIterator<Item = &'p Checkpoint>) -> Option<f64> {
    let mut operations = 0.0;
    let mut seconds = 0.0;
    for point in points {
        operations += point.operations.unwrap_or(0.0);
        seconds += point.seconds.unwrap_or(0.0);
    }
    (seconds > 0.0 && operations > 0.0).then(|| operations / seconds)
}

/// The largest value of a key over all points.
pub fn largest(run: &Run, key: &str) -> Option<f64> {
    run.points()
        .filter_map(|point| point.number(key))
        .reduce(f64::max)
}

/// The last value of a key.
pub fn last(run: &Run, key: &str) -> Option<f64> {
    run.points().filter_map(|point| point.number(key)).last()
}

/// The mean over the last three points that have the key.
pub fn mean_of_last_three(points: &[Checkpoint], key: &str) -> Option<f64> {
    let values: Vec<f64> = points
        .iter()
        .filter_map(|point| point.number(key))
        .collect();
    let tail = &values[values.len().saturating_sub(3)..];
    (!tail.is_empty()).then(|| tail.iter().sum::<f64>() / tail.len() as f64)
}
