//! Private heaps: their bins, the blocks in their threads' caches, and their first pages.

use std::collections::HashMap;

use loam_format::counters::ids;
use loam_format::counters::raw::{Raw, Row};

use crate::derive::bins::{classes, of_bins, Class};
use crate::derive::heap::{large, locks, Large};
use crate::derive::{times, Constants, Magazines};
use crate::snapshot::HeapFigures;

/// Private heaps, in the order of their list.
pub fn private_heaps(raw: &Raw, constants: &Constants) -> Vec<HeapFigures> {
    let Some(rows) = raw.rows("private_heap") else {
        return Vec::new();
    };
    let bins: Vec<Row<'_>> = raw
        .rows("private_bin")
        .map(Iterator::collect)
        .unwrap_or_default();
    let cached = held(raw, constants);
    let classes = classes(raw);
    rows.enumerate()
        .map(|(place, row)| {
            let is_own = |bin: &&Row<'_>| bin.record.parent == place;
            let own: Vec<Row<'_>> = bins.iter().filter(is_own).copied().collect();
            let held = |class: usize| cached.get(&(place, class)).copied().unwrap_or(0);
            let mut heap = of_bins(raw, constants, &own, &[], &held, None);
            heap.number = row.get("generation").unwrap_or(0);
            heap.name = row.text("name");
            let unbacked = times(row.get("unbacked_pages"), constants.page);
            heap.values.set_known(ids::UNBACKED_BYTES, unbacked);
            first_pages(constants, &classes, &row, &own, &mut heap);
            heap.values
                .set_known(ids::SET_ASIDE_BYTES, row.get("set_aside"));
            heap.values
                .set_known(ids::PRIVATE_RECORDS_BYTES, row.get("records"));
            // Blocks with a mapping of their own are included. The requested sizes of these blocks
            // are not recorded.
            let blocks = row.get("large_taken").zip(row.get("large_given"));
            let blocks = blocks.map(|(taken, given)| taken.saturating_sub(given));
            let sums = Large::of_sums(blocks, row.get("large_bytes"));
            large(raw, &mut heap.values, &sums);
            locks(raw, &["private_heap"], Some(place), &mut heap.values);
            heap
        })
        .collect()
}

/// The blocks in threads' caches, by the heap's place and the class.
fn held(raw: &Raw, constants: &Constants) -> HashMap<(usize, usize), u64> {
    let owners: Vec<usize> = raw
        .rows("private_cache")
        .map(|caches| caches.map(|row| row.record.parent).collect())
        .unwrap_or_default();
    let mut cached: HashMap<(usize, usize), u64> = HashMap::new();
    let magazines = Magazines {
        raw,
        table: "private_magazine",
        slot_bytes: constants.private_slot,
        limit: constants.magazine_limit,
    };
    for (row, blocks) in magazines.held() {
        if let Some(owner) = owners.get(row.record.parent) {
            let sum = cached
                .entry((*owner, row.record.number as usize))
                .or_default();
            *sum = sum.saturating_add(blocks);
        }
    }
    cached
}

/// Adds the pages that hold blocks of several classes. They count as spans, and their bytes outside
/// of blocks as free.
fn first_pages(
    constants: &Constants,
    classes: &[Class],
    row: &Row<'_>,
    bins: &[Row<'_>],
    heap: &mut HeapFigures,
) {
    let starters = row.get("starters").unwrap_or(0);
    let in_blocks = bins.iter().fold(0u64, |sum, bin| {
        let class = classes.get(bin.record.number as usize);
        let blocks = bin.get("in_starters").unwrap_or(0);
        sum.saturating_add(blocks.saturating_mul(class.map_or(0, |class| class.bytes)))
    });
    // In images of older libraries, a mixed run has one page only.
    let pages = row.get("mixed_pages").unwrap_or(starters);
    let free = pages
        .saturating_mul(constants.page)
        .saturating_sub(in_blocks);
    let values = &mut heap.values;
    let free = values.whole(ids::SPAN_FREE_BYTES).saturating_add(free);
    values.set(ids::SPAN_FREE_BYTES, free);
    let spans = values.whole(ids::SPANS).saturating_add(starters);
    values.set(ids::SPANS, spans);
}
