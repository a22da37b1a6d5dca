//! Counters of scope `heap` and `class`.

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
fn held_by_class(raw: &Raw, limit: u64) -> Vec<u64> {
    let mut sums: Vec<u64> = Vec::new();
    for row in raw.rows("magazine").into_iter().flatten() {
        let class = row.record.number as usize;
        if class >= sums.len() {
            sums.resize(class + 1, 0);
        }
        sums[class] = sums[class].saturating_add(held(&row, limit));
    }
    sums
}

/// The default heap: what `malloc` serves.
pub fn default_heap(raw: &Raw, constants: &Constants, privates: &[HeapFigures]) -> HeapFigures {
    let held = held_by_class(raw, constants.magazine_limit);
    let bins: Vec<Row<'_>> = raw.rows("bin").map(Iterator::collect).unwrap_or_default();
    let mixed = raw.row("mixed");
    let mut heap = of_bins(
        raw,
        constants,
        &bins,
        &|class| held.get(class).copied().unwrap_or(0),
        mixed,
    );
    heap.name = "default".to_owned();
    // What is large belongs to whoever does not say that it is his.
    let rest = |table: &str, field: &str, id: &str| {
        let all = raw.row(table)?.get(field)?;
        let others = privates.iter().map(|heap| heap.values.whole(id));
        Some(all.saturating_sub(others.fold(0, u64::saturating_add)))
    };
    large(
        &mut heap.values,
        Large {
            blocks: rest("page_heap", "large_blocks", "live_large_blocks"),
            bytes: rest_bytes(raw, constants, privates),
            huge_blocks: rest("huge", "blocks", "live_huge_blocks"),
            huge_bytes: rest("huge", "mapped", "live_huge_bytes"),
            requested: requested(raw, privates),
        },
    );
    let own = [
        "bin",
        "mixed",
        "page_heap",
        "registry",
        "huge",
        "metadata",
        "remote_pool",
        "sampler",
    ];
    locks(raw, &own, None, &mut heap.values);
    heap
}

fn rest_bytes(raw: &Raw, constants: &Constants, privates: &[HeapFigures]) -> Option<u64> {
    let all = times(raw.row("page_heap")?.get("large_pages"), constants.page)?;
    let others = privates
        .iter()
        .map(|heap| heap.values.whole("live_large_bytes"));
    Some(all.saturating_sub(others.fold(0, u64::saturating_add)))
}

/// What was asked for in large and huge blocks of the default heap.
fn requested(raw: &Raw, privates: &[HeapFigures]) -> Option<u64> {
    let all = sum([
        raw.row("page_heap")?.get("large_requested"),
        raw.row("huge")?.get("requested"),
    ])?;
    let others = privates.iter().map(|heap| {
        let whole = |id| heap.values.whole(id);
        (whole("live_large_bytes").saturating_add(whole("live_huge_bytes")))
            .saturating_sub(whole("large_rounding_bytes"))
    });
    Some(all.saturating_sub(others.fold(0, u64::saturating_add)))
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
    rows.enumerate()
        .map(|(place, row)| {
            let own: Vec<Row<'_>> = bins
                .iter()
                .filter(|bin| bin.record.parent == place)
                .copied()
                .collect();
            let cached = |class: usize| row.at("cached_blocks", class as u64).unwrap_or(0);
            let mut heap = of_bins(raw, constants, &own, &cached, None);
            heap.number = row.get("number").unwrap_or(0);
            heap.name = row.text("name");
            large(
                &mut heap.values,
                Large {
                    blocks: row.get("large_blocks"),
                    bytes: times(row.get("large_pages"), constants.page),
                    huge_blocks: row.get("huge_blocks"),
                    huge_bytes: row.get("huge_mapped"),
                    requested: sum([row.get("large_requested"), row.get("huge_requested")]),
                },
            );
            let own = ["private_heap", "private_bin"];
            locks(raw, &own, Some(place), &mut heap.values);
            heap
        })
        .collect()
}

/// The figures of large blocks; not known where a field is missing.
struct Large {
    blocks: Option<u64>,
    bytes: Option<u64>,
    huge_blocks: Option<u64>,
    huge_bytes: Option<u64>,
    requested: Option<u64>,
}

fn large(values: &mut Values, large: Large) {
    values.set_known("live_large_blocks", large.blocks);
    values.set_known("live_large_bytes", large.bytes);
    values.set_known("live_huge_blocks", large.huge_blocks);
    values.set_known("live_huge_bytes", large.huge_bytes);
    let both = sum([large.bytes, large.huge_bytes]);
    let rounding = both.zip(large.requested);
    values.set_known(
        "large_rounding_bytes",
        rounding.map(|(bytes, requested)| bytes.saturating_sub(requested)),
    );
    let add = |id: &str, parts: [&str; 3], values: &Values| {
        let parts = parts.map(|part| values.get(part).map(|_| values.whole(part)));
        (id.to_owned(), sum(parts))
    };
    let sums = [
        add(
            "live_bytes",
            ["live_small_bytes", "live_large_bytes", "live_huge_bytes"],
            values,
        ),
        add(
            "live_blocks",
            ["live_small_blocks", "live_large_blocks", "live_huge_blocks"],
            values,
        ),
    ];
    for (id, value) in sums {
        values.set_known(&id, value);
    }
    let used = [
        "live_bytes",
        "cached_bytes",
        "span_free_bytes",
        "span_tail_bytes",
    ];
    let used = used.map(|part| values.get(part).map(|_| values.whole(part)));
    values.set_known("used_bytes", sum(used));
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
                    Some(place) if *table == "private_heap" => row.record.number == place as u64,
                    Some(place) => row.record.parent == place,
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
        let in_mixed = mixed
            .and_then(|mixed| mixed.at("blocks", number as u64))
            .unwrap_or(0);
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
    let cached = held.saturating_add(get("queued")).min(in_spans);
    let live = (in_spans - cached).saturating_add(in_mixed);
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
