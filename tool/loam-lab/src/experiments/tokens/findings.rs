//! The findings of `tokens`, compared with those of its article.

use loam_format::units::Unit;
use loam_format::words;

use crate::analyse::figures::FigureTable;
use crate::analyse::stats::{Method, Summary};
use crate::experiments::phrases;
use crate::experiments::tokens::PRIVATE_HEAP;

/// The article's program slowed by 40 % a run. Any slow-down above this factor is reported.
const SLOWED: f64 = 1.05;

/// The findings of the whole experiment.
pub fn all(table: &FigureTable) -> Vec<String> {
    let freed = "After the last run, with everything freed, the smallest process";
    [
        phrases::leader(table, "seconds", "Fastest over all runs"),
        Some(who_slows(table)),
        designs(table),
        phrases::leader(table, "freed", freed),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A row in words.
pub fn sentence(table: &FigureTable, row: usize) -> String {
    let value = |id: &str| table.cell(row, id).map(|cell| cell.value.median);
    let trend = table.cell(row, "steady").map(|cell| trend(&cell.value));
    let freed = value("freed").map(|bytes| format!("keeps {}", Unit::Bytes.show(bytes)));
    if table.view.base == Some(row) {
        let seconds = value("seconds").map(|seconds| Unit::Seconds.show(seconds));
        let parts: Vec<String> = [seconds, trend, freed].into_iter().flatten().collect();
        return phrases::reference(&parts);
    }
    let base = phrases::call_base(table.view, row);
    // The ratio is one of times, but a speed is easier to read.
    let ratio = table.cell(row, "seconds").and_then(|cell| cell.ratio);
    let speed = ratio.map(|ratio| phrases::speed(&ratio.inverse(), &base));
    let parts: Vec<String> = [speed, trend, freed].into_iter().flatten().collect();
    parts.join("; ") + "."
}

/// Whether the row slowed by more than `SLOWED`, and by more than its own uncertainty.
pub fn is_slowed(ratio: &Summary) -> bool {
    ratio.median > SLOWED && (ratio.method == Method::Single || ratio.low > 1.0)
}

fn is_quicker(ratio: &Summary) -> bool {
    ratio.median < 2.0 - SLOWED && (ratio.method == Method::Single || ratio.high < 1.0)
}

fn trend(ratio: &Summary) -> String {
    let percent = (ratio.median - 1.0) * 100.0;
    if is_slowed(ratio) {
        format!("the last run takes {percent:.0}% longer than the second")
    } else if is_quicker(ratio) {
        format!("the last run takes {:.0}% less than the second", -percent)
    } else {
        "runs stay equally fast".to_owned()
    }
}

fn who_slows(table: &FigureTable) -> String {
    let mut slowed = Vec::new();
    for (index, row) in table
        .view
        .rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.is_plain())
    {
        let Some(cell) = table.cell(index, "steady") else {
            continue;
        };
        if is_slowed(&cell.value) {
            let percent = (cell.value.median - 1.0) * 100.0;
            slowed.push(format!(
                "{} (by {percent:.0}%)",
                phrases::call(&row.allocator)
            ));
        }
    }
    if slowed.is_empty() {
        "No allocator's last run takes more than 5% longer than its second: the article's \
         slow-down is not seen here."
            .to_owned()
    } else {
        format!(
            "The last run takes longer than the second under {}.",
            words::list(&slowed)
        )
    }
}

/// The article's finding: the null allocator doubled the speed.
fn designs(table: &FigureTable) -> Option<String> {
    let said: Vec<String> = table
        .view
        .rows
        .iter()
        .enumerate()
        .filter(|(_, row)| !row.is_plain())
        .filter_map(|(index, row)| {
            let ratio = table.cell(index, "seconds")?.ratio?;
            let name = match row.variant.as_str() {
                "null" => "never freeing",
                "pool" => "a block pool",
                "arena" => "an arena",
                PRIVATE_HEAP => "a private low-fragmentation heap",
                other => other,
            };
            Some(format!("{name} {:.2} times", 1.0 / ratio.median))
        })
        .collect();
    let base = table.view.base_row()?;
    (!said.is_empty()).then(|| {
        format!(
            "Against plain malloc on {}, the article's other designs reach this speed: {}.",
            phrases::call(&base.allocator),
            words::list(&said)
        )
    })
}
