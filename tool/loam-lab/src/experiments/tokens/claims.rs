//! Tests the findings of the article of `tokens`.

use loam_format::words;

use crate::analyse::figures::FigureTable;
use crate::experiments::claims::{Claim, Verdict};
use crate::experiments::phrases;
use crate::experiments::tokens::findings::is_slowed;
use crate::experiments::tokens::PRIVATE_HEAP;

/// A speed of this factor counts as doubled, because the system's malloc has improved since.
const DOUBLED: f64 = 1.8;

/// Every claim with rows that were measured.
pub fn all(table: &FigureTable) -> Vec<Claim> {
    let rows = || table.view.rows.iter().enumerate();
    let mut claims = Vec::new();
    let mut all = 0;
    let mut slowed = Vec::new();
    for (index, row) in rows().filter(|(_, row)| row.is_plain()) {
        let Some(cell) = table.cell(index, "steady") else {
            continue;
        };
        all += 1;
        if is_slowed(&cell.value) {
            let percent = (cell.value.median - 1.0) * 100.0;
            slowed.push(format!(
                "{} by {percent:.0}%",
                phrases::call(&row.allocator)
            ));
        }
    }
    if all > 0 {
        claims.push(Claim::new(
            "The default heap slows the program by up to 40% a run, although everything is freed",
            Verdict::of_some(slowed.len(), all),
            if slowed.is_empty() {
                format!(
                    "from the second run to the last none of {} slows by more than 5%",
                    words::count(all, "allocator")
                )
            } else {
                format!(
                    "from the second run to the last, all of them together, these slow: {}",
                    words::list(&slowed)
                )
            },
        ));
    }
    let speed = |variant: &str| {
        let index = rows().find(|(_, row)| row.variant == variant)?.0;
        Some(1.0 / table.cell(index, "seconds")?.ratio?.median)
    };
    if let Some(null) = speed("null") {
        claims.push(Claim::new(
            "An allocator that never frees doubles the speed",
            Verdict::of(null >= DOUBLED),
            format!("{null:.2} times as fast as the system's malloc"),
        ));
    }
    if let Some((pool, null)) = speed("pool").zip(speed("null")) {
        claims.push(Claim::new(
            "A block pool for tokens alone outperforms the standard heap vastly",
            Verdict::of(pool >= DOUBLED),
            format!("{pool:.2} times as fast, where never freeing reaches {null:.2}"),
        ));
    }
    let low_fragmentation = speed(PRIVATE_HEAP);
    if let Some((heap, null)) = low_fragmentation.zip(speed("null")) {
        claims.push(Claim::new(
            "The low-fragmentation heap is nearly as fast as never freeing",
            Verdict::of(heap >= 0.9 * null),
            format!(
                "a private heap of Loam reaches {heap:.2} times the system's speed, never \
                     freeing {null:.2}"
            ),
        ));
    }
    claims
}
