//! The report's first minute: what fragmentation is, and how much of it each allocator had.

use loam_format::results::Results;

use crate::analyse::figures::FigureTable;
use crate::draw::section::{Minute, Section};
use crate::experiments::Headline;

/// The text before all figures.
pub const WHAT_IT_IS: &str = "A heap is fragmented when it holds memory that the program does not \
    use and that can not serve anybody else: holes between blocks that live, too small or too \
    scattered. Blocks can not be moved, so a page with one live block on it stays. The process \
    then takes more memory than the program asked for, and malloc may take longer to find a place.";

/// Charts that show fragmentation best; the first one that exists is used.
pub const PICTURES: [&str; 2] = ["sparse-parts", "lfh-overhead"];

/// The column of an experiment with a headline.
pub fn of(headline: Option<Headline>, table: &FigureTable) -> Option<Minute> {
    let headline = headline?;
    let unit = table
        .figures
        .iter()
        .find(|figure| figure.id == headline.figure)?
        .unit;
    let rows = table
        .view
        .rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.is_plain());
    let cells = rows.filter_map(|(index, row)| {
        let cell = table.cell(index, headline.figure)?;
        Some((
            row.allocator.clone(),
            unit.show(cell.value.median),
            cell.is_best,
        ))
    });
    Some(Minute {
        heading: headline.heading,
        why: headline.why,
        cells: cells.collect(),
    })
}

/// A figure as text, and whether it is the best of its column.
type Shown<'s> = (&'s str, bool);

/// Rows of the table of all columns: the allocator, and its cell in each.
pub fn rows<'s>(
    results: &'s Results,
    sections: &'s [Section],
) -> Vec<(&'s str, Vec<Option<Shown<'s>>>)> {
    let measured = results.allocators.iter().filter(|record| record.measured);
    let row = |label: &'s str| {
        let columns = sections
            .iter()
            .filter_map(|section| section.minute.as_ref());
        let cell = |minute: &'s Minute| {
            let (_, text, best) = minute.cells.iter().find(|(name, ..)| name == label)?;
            Some((text.as_str(), *best))
        };
        columns.map(cell).collect::<Vec<_>>()
    };
    measured
        .map(|record| (record.label.as_str(), row(&record.label)))
        .filter(|(_, cells)| cells.iter().any(Option::is_some))
        .collect()
}
