//! Counters of scope `heap` and `class`.

use std::collections::HashMap;

use super::super::raw::{Raw, Row};
use super::super::snapshot::{ClassFigures, HeapFigures, Values};
use super::{held, sum, times, Constants};

/// A size class of the library.
#[derive(Debug, Clone, Copy)]
struct Class {
    bytes: u64,
    pages: u64,
    slots: u64,
}

fn classes(raw: &Raw) -> Vec<Class> {
    let rows = raw.rows("class");
    rows.map(|rows| {
        rows.map(|row| Class {
            bytes: row.get("bytes").unwrap_or(0),
            pages: row.get("pages").unwrap_or(0),
            slots: row.get("slots").unwrap_or(0),
        })
        .collect()
    })
    .unwrap_or_default()
}

/// What all threads hold of each class. The place behind the last class is that of blocks in mixed spans.
fn held_by_class(raw: &Raw, constants: &Constants) -> Vec<u64> {
    let mut sums: Vec<u64> = Vec::new();
    for row in raw.rows("magazine").into_iter().flatten() {
        let class = row.record.number as usize;
        if class >= sums.len() {
            sums.resize(class + 1, 0);
        }
        sums[class] = sums[class].saturating_add(held(&row, 8, constants.magazine_limit));
    }
    sums
}

/// The default heap: what `malloc` serves.
pub fn default_heap(raw: &Raw, constants: &Constants, privates: &[HeapFigures]) -> HeapFigures {
    let held = held_by_class(raw, constants);
    let bins: Vec<Row<'_>> = raw.rows("bin").map(Iterator::collect).unwrap_or_default();
    let mixed = raw.row("mixed");
    let in_mixed = mixed.map(|row| row.all("blocks")).unwrap_or_default();
    let all_mixed = in_mixed.iter().copied().fold(0, u64::saturating_add);
    let held_mixed = held.get(classes(raw).len()).copied().unwrap_or(0);
    // Which classes the blocks of the mixed magazine have is not seen: they are shared out.
    let share = |class: usize| {
        let part = in_mixed.get(class).copied().unwrap_or(0);
        let share = u128::from(held_mixed) * u128::from(part) / u128::from(all_mixed.max(1));
        share as u64
    };
    let held = |class: usize| {
        held.get(class)
            .copied()
            .unwrap_or(0)
            .saturating_add(share(class))
    };
    let mut heap = of_bins(raw, constants, &bins, &held, mixed);
    heap.name = "default".to_owned();
    // Only private heaps have these.
    heap.values.set("set_aside_bytes", 0);
    heap.values.set("private_records_bytes", 0);
    let all = large_of_all(raw, constants);
    let others = |id: &str| {
        let parts = privates.iter().map(|heap| heap.values.whole(id));
        parts.fold(0, u64::saturating_add)
    };
    let less = |value: Option<u64>, other: u64| value.map(|value| value.saturating_sub(other));
    // Which of the others' large blocks have a mapping of their own is not kept.
    let is_known = others("live_large_blocks") == 0;
    let rest = Large {
        blocks: all.blocks.filter(|_| is_known),
        bytes: all.bytes.filter(|_| is_known),
        huge_blocks: all.huge_blocks.filter(|_| is_known),
        huge_bytes: all.huge_bytes.filter(|_| is_known),
        requested: all.requested.filter(|_| is_known),
        all_bytes: less(all.all_bytes, others("live_large_bytes")),
        all_blocks: less(all.all_blocks, others("live_large_blocks")),
    };
    large(&mut heap.values, &rest);
    let own = [
        "bin",
        "mixed",
        "page_heap",
        "registry",
        "huge",
        "metadata",
        "remote_pool",
        "private_registry",
    ];
    locks(raw, &own, None, &mut heap.values);
    heap
}

/// The large blocks of all heaps together.
pub fn large_of_all(raw: &Raw, constants: &Constants) -> Large {
    let pages = raw.row("page_heap");
    let huge = raw.row("huge");
    let of_pages = |field: &str| pages.and_then(|row| row.get(field));
    let of_huge = |field: &str| huge.and_then(|row| row.get(field));
    let bytes = times(of_pages("large_pages"), constants.page);
    Large {
        blocks: of_pages("large_blocks"),
        bytes,
        huge_blocks: of_huge("blocks"),
        huge_bytes: of_huge("mapped"),
        requested: sum([of_pages("large_requested"), of_huge("requested")]),
        all_bytes: sum([bytes, of_huge("mapped")]),
        all_blocks: sum([of_pages("large_blocks"), of_huge("blocks")]),
    }
}

/// Private heaps, in the order of their list.
pub fn private_heaps(raw: &Raw, constants: &Constants) -> Vec<HeapFigures> {
    let Some(rows) = raw.rows("private_heap") else {
        return Vec::new();
    };
    let bins: Vec<Row<'_>> = raw
        .rows("private_bin")
        .map(Iterator::collect)
        .unwrap_or_default();
    let owners: Vec<usize> = raw
        .rows("private_cache")
        .map(|caches| caches.map(|row| row.record.parent).collect())
        .unwrap_or_default();
    let mut cached: HashMap<(usize, usize), u64> = HashMap::new();
    for row in raw.rows("private_magazine").into_iter().flatten() {
        if let Some(owner) = owners.get(row.record.parent) {
            let blocks = held(&row, constants.private_slot, constants.magazine_limit);
            let sum = cached
                .entry((*owner, row.record.number as usize))
                .or_default();
            *sum = sum.saturating_add(blocks);
        }
    }
    rows.enumerate()
        .map(|(place, row)| {
            let own: Vec<Row<'_>> = bins
                .iter()
                .filter(|bin| bin.record.parent == place)
                .copied()
                .collect();
            let held = |class: usize| cached.get(&(place, class)).copied().unwrap_or(0);
            let mut heap = of_bins(raw, constants, &own, &held, None);
            heap.number = row.get("generation").unwrap_or(0);
            heap.name = row.text("name");
            let blocks = row.get("large_taken").zip(row.get("large_given"));
            let blocks = blocks.map(|(taken, given)| taken.saturating_sub(given));
            let bytes = row.get("large_bytes");
            let unbacked = times(row.get("unbacked_pages"), constants.page);
            heap.values.set_known("unbacked_bytes", unbacked);
            let starters = row.get("starters").unwrap_or(0);
            let blocks_in_starters = own.iter().fold(0u64, |sum, bin| {
                let class = classes(raw)
                    .get(bin.record.number as usize)
                    .map_or(0, |class| class.bytes);
                sum.saturating_add(bin.get("in_starters").unwrap_or(0).saturating_mul(class))
            });
            let free_in_starters = starters
                .saturating_mul(constants.page)
                .saturating_sub(blocks_in_starters);
            let free = heap
                .values
                .whole("span_free_bytes")
                .saturating_add(free_in_starters);
            heap.values.set("span_free_bytes", free);
            let spans = heap.values.whole("spans").saturating_add(starters);
            heap.values.set("spans", spans);
            heap.values
                .set_known("set_aside_bytes", row.get("set_aside"));
            heap.values
                .set_known("private_records_bytes", row.get("records"));
            // Own mappings are among them, and what was asked for in them is not kept.
            let of_heap = Large {
                blocks,
                bytes,
                huge_blocks: Some(0),
                huge_bytes: Some(0),
                requested: bytes,
                all_bytes: bytes,
                all_blocks: blocks,
            };
            large(&mut heap.values, &of_heap);
            locks(raw, &["private_heap"], Some(place), &mut heap.values);
            heap
        })
        .collect()
}

/// The figures of large blocks; not known where a field is missing.
pub struct Large {
    blocks: Option<u64>,
    bytes: Option<u64>,
    huge_blocks: Option<u64>,
    huge_bytes: Option<u64>,
    requested: Option<u64>,
    /// Bytes of large and huge blocks together.
    all_bytes: Option<u64>,
    /// Blocks of both.
    all_blocks: Option<u64>,
}

/// Writes the figures of large blocks and the sums that they are part of.
pub fn large(values: &mut Values, large: &Large) {
    values.set_known("live_large_blocks", large.blocks);
    values.set_known("live_large_bytes", large.bytes);
    values.set_known("live_huge_blocks", large.huge_blocks);
    values.set_known("live_huge_bytes", large.huge_bytes);
    let both = sum([large.bytes, large.huge_bytes]);
    let rounding = both.zip(large.requested);
    let rounding = rounding.map(|(bytes, requested)| bytes.saturating_sub(requested));
    values.set_known("large_rounding_bytes", rounding);
    let known = |values: &Values, id: &str| values.get(id).map(|_| values.whole(id));
    let bytes = sum([known(values, "live_small_bytes"), large.all_bytes]);
    let blocks = sum([known(values, "live_small_blocks"), large.all_blocks]);
    values.set_known("live_bytes", bytes);
    values.set_known("live_blocks", blocks);
    let parts = [
        "live_bytes",
        "cached_bytes",
        "span_free_bytes",
        "span_tail_bytes",
    ];
    let parts = parts.map(|part| known(values, part));
    let set_aside = Some(values.whole("set_aside_bytes"));
    values.set_known("used_bytes", sum(parts.into_iter().chain([set_aside])));
}

/// Acquisitions of all locks of those tables; of one private heap only its own.
fn locks(raw: &Raw, tables: &[&str], parent: Option<usize>, values: &mut Values) {
    for (id, field) in [
        ("lock_acquisitions", "lock_acquisitions"),
        ("lock_contentions", "lock_contentions"),
        ("lock_refusals", "lock_refusals"),
    ] {
        let mut found = None;
        for table in tables {
            for row in raw.rows(table).into_iter().flatten() {
                let is_own = match parent {
                    None => true,
                    Some(place) => row.record.number == place as u64,
                };
                if let (true, Some(count)) = (is_own, row.get(field)) {
                    found = Some(found.unwrap_or(0u64).saturating_add(count));
                }
            }
        }
        values.set_known(id, found);
    }
}

/// Everything that follows from a heap's size classes.
fn of_bins(
    raw: &Raw,
    constants: &Constants,
    bins: &[Row<'_>],
    held: &dyn Fn(usize) -> u64,
    mixed: Option<Row<'_>>,
) -> HeapFigures {
    let classes = classes(raw);
    let mut figures: Vec<ClassFigures> = Vec::new();
    let mut sums = Sums::default();
    for bin in bins {
        let number = bin.record.number as usize;
        let Some(class) = classes
            .get(number)
            .filter(|class| number > 0 && class.bytes > 0)
        else {
            continue;
        };
        // Beside its own spans a class has blocks in mixed spans, or in a private heap's first pages.
        let elsewhere = match mixed {
            Some(mixed) => mixed.at("blocks", number as u64),
            None => bin.get("in_starters"),
        };
        let in_mixed = elsewhere.unwrap_or(0);
        let found = of_bin(constants, class, bin, held(number), in_mixed);
        sums.add(class, &found, bin);
        let is_used = ["class_spans", "class_refilled_blocks", "class_live_blocks"]
            .iter()
            .any(|id| found.values.whole(id) > 0);
        if is_used {
            figures.push(found);
        }
    }
    let mut values = Values::default();
    if !bins.is_empty() {
        sums.write(constants, mixed, &mut values);
    }
    HeapFigures {
        number: 0,
        name: String::new(),
        values,
        classes: figures,
    }
}

fn of_bin(
    constants: &Constants,
    class: &Class,
    bin: &Row<'_>,
    held: u64,
    in_mixed: u64,
) -> ClassFigures {
    let get = |field| bin.get(field).unwrap_or(0);
    let spans = get("spans");
    let free = get("free_slots");
    let in_spans = spans.saturating_mul(class.slots).saturating_sub(free);
    let out = in_spans.saturating_add(in_mixed);
    let cached = held.saturating_add(get("queued")).min(out);
    let live = out - cached;
    let mut values = Values::default();
    values.set("class_bytes", class.bytes);
    values.set("class_spans", spans);
    values.set("class_live_blocks", live);
    values.set("class_cached_blocks", cached);
    values.set("class_free_blocks", free);
    values.set_known("class_queued_blocks", bin.get("queued"));
    let span = class.pages.saturating_mul(constants.page);
    let tail = span.saturating_sub(class.slots.saturating_mul(class.bytes));
    values.set("class_tail_bytes", spans.saturating_mul(tail));
    values.set_known(
        "class_unbacked_bytes",
        times(bin.get("unbacked_pages"), constants.page),
    );
    values.set_known("class_refilled_blocks", bin.get("taken"));
    values.set_known("class_returned_blocks", bin.get("given"));
    values.set_known("class_remote_blocks", bin.get("remote_blocks"));
    values.set_known("class_lock_acquisitions", bin.get("lock_acquisitions"));
    values.set_known("class_lock_contentions", bin.get("lock_contentions"));
    values.set_known("class_lock_refusals", bin.get("lock_refusals"));
    let mut occupancy = bin.all("occupancy");
    let partly = occupancy.iter().copied().fold(0, u64::saturating_add);
    let full = spans.saturating_sub(partly);
    values.set("class_full_spans", full);
    occupancy.push(full);
    ClassFigures {
        block_bytes: class.bytes,
        values,
        occupancy,
    }
}

#[derive(Default)]
struct Sums {
    live_bytes: u64,
    live_blocks: u64,
    cached_bytes: u64,
    cached_blocks: u64,
    deepest: u64,
    spans: u64,
    free_bytes: u64,
    free_blocks: u64,
    tail_bytes: u64,
    unbacked_bytes: u64,
    refilled: u64,
    returned: u64,
    remote_batches: u64,
    remote_blocks: u64,
    queued: u64,
}

impl Sums {
    fn add(&mut self, class: &Class, figures: &ClassFigures, bin: &Row<'_>) {
        let whole = |id| figures.values.whole(id);
        let grow = |sum: &mut u64, by: u64| *sum = sum.saturating_add(by);
        let bytes = |blocks: u64| blocks.saturating_mul(class.bytes);
        grow(&mut self.live_blocks, whole("class_live_blocks"));
        grow(&mut self.live_bytes, bytes(whole("class_live_blocks")));
        grow(&mut self.cached_blocks, whole("class_cached_blocks"));
        grow(&mut self.cached_bytes, bytes(whole("class_cached_blocks")));
        self.deepest = self.deepest.max(whole("class_cached_blocks"));
        grow(&mut self.spans, whole("class_spans"));
        grow(&mut self.free_blocks, whole("class_free_blocks"));
        grow(&mut self.free_bytes, bytes(whole("class_free_blocks")));
        grow(&mut self.tail_bytes, whole("class_tail_bytes"));
        grow(&mut self.unbacked_bytes, whole("class_unbacked_bytes"));
        grow(&mut self.refilled, whole("class_refilled_blocks"));
        grow(&mut self.returned, whole("class_returned_blocks"));
        grow(
            &mut self.remote_batches,
            bin.get("remote_batches").unwrap_or(0),
        );
        grow(&mut self.remote_blocks, whole("class_remote_blocks"));
        grow(&mut self.queued, whole("class_queued_blocks"));
    }

    fn write(mut self, constants: &Constants, mixed: Option<Row<'_>>, values: &mut Values) {
        if let Some(mixed) = mixed {
            let get = |field| mixed.get(field).unwrap_or(0);
            let grow = |sum: &mut u64, by: u64| *sum = sum.saturating_add(by);
            grow(&mut self.spans, get("spans"));
            let free = get("free_granules").saturating_mul(constants.granule);
            grow(&mut self.free_bytes, free);
            let unbacked = get("unbacked_pages").saturating_mul(constants.page);
            grow(&mut self.unbacked_bytes, unbacked);
            grow(&mut self.refilled, get("taken"));
            grow(&mut self.returned, get("given"));
        }
        values.set("live_small_bytes", self.live_bytes);
        values.set("live_small_blocks", self.live_blocks);
        values.set("cached_bytes", self.cached_bytes);
        values.set("cached_blocks", self.cached_blocks);
        values.set("largest_cache_depth", self.deepest);
        values.set("spans", self.spans);
        values.set("span_free_bytes", self.free_bytes);
        values.set("span_free_blocks", self.free_blocks);
        values.set("span_tail_bytes", self.tail_bytes);
        values.set("unbacked_bytes", self.unbacked_bytes);
        values.set("refilled_blocks", self.refilled);
        values.set("returned_blocks", self.returned);
        values.set("remote_batches", self.remote_batches);
        values.set("remote_blocks", self.remote_blocks);
        values.set("queued_blocks", self.queued);
    }
}
