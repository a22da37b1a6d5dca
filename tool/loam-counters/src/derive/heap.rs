//! Counters of scope `heap` and `class`.

use std::collections::HashMap;

use loam_format::counters::directory::Field;
use loam_format::counters::formula::{Ground, FORMULAS};
use loam_format::counters::ids;
use loam_format::counters::raw::{Raw, Row};

use crate::derive::mixed::Mixed;
use crate::derive::{more_each, sum, times, total, Constants, Magazines, CLASS_TABLES};
use crate::snapshot::{ClassFigures, HeapFigures, Values};

/// A size class of the library.
#[derive(Debug, Clone, Copy)]
struct Class {
    bytes: u64,
    pages: u64,
    slots: u64,
}

fn classes(raw: &Raw) -> Vec<Class> {
    let of_table = |table: &&'static str| {
        let fields = ["bytes", "pages", "slots"].map(|name| raw.field(table, name));
        let rows = raw.rows(table)?;
        Some(rows.map(move |row| {
            let value = |field: Option<&Field>| field.and_then(|field| row.value(field, 0));
            let [bytes, pages, slots] = fields.map(|field| value(field).unwrap_or(0));
            Class {
                bytes,
                pages,
                slots,
            }
        }))
    };
    CLASS_TABLES.iter().filter_map(of_table).flatten().collect()
}

/// What all threads hold of each class. The place behind the last fixed class is that of blocks in mixed spans.
fn held_by_class(raw: &Raw, constants: &Constants) -> Vec<u64> {
    let mut sums: Vec<u64> = Vec::new();
    let magazines = Magazines {
        raw,
        table: "magazine",
        slot_bytes: 8,
        limit: constants.magazine_limit,
    };
    for (row, blocks) in magazines.held() {
        let class = row.record.number as usize;
        if class >= sums.len() {
            sums.resize(class + 1, 0);
        }
        sums[class] = sums[class].saturating_add(blocks);
    }
    sums
}

/// The default heap: what `malloc` serves.
pub fn default_heap(
    raw: &Raw,
    constants: &Constants,
    privates: &[HeapFigures],
    all: &Large,
) -> HeapFigures {
    let held = held_by_class(raw, constants);
    let bins: Vec<Row<'_>> = raw.rows("bin").map(Iterator::collect).unwrap_or_default();
    let more: Vec<Row<'_>> = raw
        .rows("more_bin")
        .map(Iterator::collect)
        .unwrap_or_default();
    let mixed = Mixed::of(raw);
    let in_mixed = mixed.as_ref().map_or(&[][..], |mixed| &mixed.blocks);
    let all_mixed = in_mixed.iter().copied().fold(0, u64::saturating_add);
    let fixed = raw.rows("class").map_or(0, Iterator::count);
    let held_mixed = held.get(fixed).copied().unwrap_or(0);
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
    let mut heap = of_bins(raw, constants, &bins, &more, &held, mixed.as_ref());
    heap.name = "default".to_owned();
    let in_runs = of_caches(raw, "run_pages_held").saturating_mul(constants.page);
    let cached = heap.values.whole("cached_bytes").saturating_add(in_runs);
    heap.values.set("cached_bytes", cached);
    // Only private heaps have these.
    heap.values.set("set_aside_bytes", 0);
    heap.values.set("private_records_bytes", 0);
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
    large(raw, &mut heap.values, &rest);
    let own = [
        "bin",
        "more_bin",
        "mixed",
        "page_heap",
        "page_shard",
        "registry",
        "huge",
        "metadata",
        "remote_pool",
        "private_registry",
    ];
    locks(raw, &own, None, &mut heap.values);
    heap
}

/// The large blocks of all heaps together: as the list's formulas have the process's.
pub fn large_of_all(raw: &Raw) -> Large {
    let of_process = |id| FORMULAS.of_records(id, raw);
    let (blocks, huge_blocks) = (
        of_process(ids::LIVE_LARGE_BLOCKS),
        of_process(ids::LIVE_HUGE_BLOCKS),
    );
    let (bytes, huge_bytes) = (
        of_process(ids::LIVE_LARGE_BYTES),
        of_process(ids::LIVE_HUGE_BYTES),
    );
    Large {
        blocks,
        bytes,
        huge_blocks,
        huge_bytes,
        requested: FORMULAS.quantity("large_requested_bytes", raw),
        all_bytes: sum([bytes, huge_bytes]),
        all_blocks: sum([blocks, huge_blocks]),
    }
}

/// A count of live threads' caches and of the ended ones'; 0 where the library has no such field.
pub fn of_caches(raw: &Raw, field: &str) -> u64 {
    let live = total(raw.rows("cache"), field).unwrap_or(0);
    let ended = raw.row("registry").and_then(|row| row.get(field));
    live.saturating_add(ended.unwrap_or(0))
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
    let classes = classes(raw);
    rows.enumerate()
        .map(|(place, row)| {
            let own: Vec<Row<'_>> = bins
                .iter()
                .filter(|bin| bin.record.parent == place)
                .copied()
                .collect();
            let held = |class: usize| cached.get(&(place, class)).copied().unwrap_or(0);
            let mut heap = of_bins(raw, constants, &own, &[], &held, None);
            heap.number = row.get("generation").unwrap_or(0);
            heap.name = row.text("name");
            let blocks = row.get("large_taken").zip(row.get("large_given"));
            let blocks = blocks.map(|(taken, given)| taken.saturating_sub(given));
            let bytes = row.get("large_bytes");
            let unbacked = times(row.get("unbacked_pages"), constants.page);
            heap.values.set_known("unbacked_bytes", unbacked);
            let starters = row.get("starters").unwrap_or(0);
            let blocks_in_starters = own.iter().fold(0u64, |sum, bin| {
                let class = classes
                    .get(bin.record.number as usize)
                    .map_or(0, |class| class.bytes);
                sum.saturating_add(bin.get("in_starters").unwrap_or(0).saturating_mul(class))
            });
            // Images of older libraries have mixed runs of one page only.
            let free_in_starters = row
                .get("mixed_pages")
                .unwrap_or(starters)
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
            large(raw, &mut heap.values, &of_heap);
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
pub fn large(raw: &Raw, values: &mut Values, large: &Large) {
    values.set_known("live_large_blocks", large.blocks);
    values.set_known("live_large_bytes", large.bytes);
    values.set_known("live_huge_blocks", large.huge_blocks);
    values.set_known("live_huge_bytes", large.huge_bytes);
    let both = sum([large.bytes, large.huge_bytes]);
    let rounding = both.zip(large.requested);
    let rounding = rounding.map(|(bytes, requested)| bytes.saturating_sub(requested));
    values.set_known("large_rounding_bytes", rounding);
    let bytes = sum([values.known("live_small_bytes"), large.all_bytes]);
    let blocks = sum([values.known("live_small_blocks"), large.all_blocks]);
    values.set_known("live_bytes", bytes);
    values.set_known("live_blocks", blocks);
    for derived in &FORMULAS.heap {
        let ground = Ground {
            known: &|id| values.known(id),
            ..Ground::of_records(raw)
        };
        let value = derived.formula.value(&ground);
        values.set_number(derived.id, value);
    }
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
            let field = raw.field(table, field);
            for row in raw.rows(table).into_iter().flatten() {
                let is_own = match parent {
                    None => true,
                    Some(place) => row.record.number == place as u64,
                };
                let count = field.and_then(|field| row.value(field, 0));
                if let (true, Some(count)) = (is_own, count) {
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
    more: &[Row<'_>],
    held: &dyn Fn(usize) -> u64,
    mixed: Option<&Mixed>,
) -> HeapFigures {
    let classes = classes(raw);
    let mut figures: Vec<ClassFigures> = Vec::new();
    let mut sums = Sums::default();
    let Some(fields) = bins.first().map(BinFields::of) else {
        return HeapFigures::default();
    };
    let more_fields = more.first().map(BinFields::of);
    let more_each = more_each(raw);
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
            Some(mixed) => mixed.blocks.get(number).copied(),
            None => fields.in_starters.and_then(|field| bin.value(field, 0)),
        };
        let in_mixed = elsewhere.unwrap_or(0);
        let behind = |class: usize| {
            more.partition_point(|row| {
                (row.record.number as usize) < class.saturating_mul(more_each)
            })
        };
        let its = &more[behind(number)..behind(number + 1)];
        let bins = ClassBins {
            bin,
            fields: &fields,
            more: its,
            more_fields: more_fields.as_ref(),
        };
        let found = BinNumbers::of(constants, class, &bins, held(number), in_mixed);
        sums.add(class, &found);
        if found.is_used() && !constants.is_brief {
            figures.push(found.figures(raw, class, &bins));
        }
    }
    let mut values = Values::default();
    sums.write(constants, mixed, &mut values);
    HeapFigures {
        number: 0,
        name: String::new(),
        values,
        classes: figures,
    }
}

/// The fields of bins, looked up once for all of them.
struct BinFields<'a> {
    spans: Option<&'a Field>,
    free_slots: Option<&'a Field>,
    queued: Option<&'a Field>,
    unbacked_pages: Option<&'a Field>,
    absent_slots: Option<&'a Field>,
    absent_pages: Option<&'a Field>,
    taken: Option<&'a Field>,
    given: Option<&'a Field>,
    remote_batches: Option<&'a Field>,
    remote_blocks: Option<&'a Field>,
    in_starters: Option<&'a Field>,
}

impl<'a> BinFields<'a> {
    fn of(row: &Row<'a>) -> BinFields<'a> {
        let field = |name| row.field(name);
        BinFields {
            spans: field("spans"),
            free_slots: field("free_slots"),
            queued: field("queued"),
            unbacked_pages: field("unbacked_pages"),
            absent_slots: field("absent_slots"),
            absent_pages: field("absent_pages"),
            taken: field("taken"),
            given: field("given"),
            remote_batches: field("remote_batches"),
            remote_blocks: field("remote_blocks"),
            in_starters: field("in_starters"),
        }
    }
}

/// A class's bins: one, and more where threads meet.
struct ClassBins<'a, 'b> {
    bin: &'b Row<'a>,
    fields: &'b BinFields<'a>,
    more: &'b [Row<'a>],
    more_fields: Option<&'b BinFields<'a>>,
}

impl<'a> ClassBins<'a, '_> {
    /// What they have together.
    fn value(&self, which: fn(&BinFields<'a>) -> Option<&'a Field>) -> Option<u64> {
        let first = self.bin.value(which(self.fields)?, 0)?;
        let Some(field) = self.more_fields.and_then(which) else {
            return Some(first);
        };
        let more = self.more.iter().filter_map(|row| row.value(field, 0));
        Some(more.fold(first, u64::saturating_add))
    }

    /// What they have together of a field by its name.
    fn named(&self, field: &str) -> Option<u64> {
        let more = self.more.iter().filter_map(|row| row.get(field));
        Some(more.fold(self.bin.get(field)?, u64::saturating_add))
    }

    fn occupancy(&self) -> Vec<u64> {
        let mut sum = self.bin.all("occupancy");
        for row in self.more {
            for (sum, more) in sum.iter_mut().zip(row.all("occupancy")) {
                *sum = sum.saturating_add(more);
            }
        }
        sum
    }
}

/// What its bins say of a class.
struct BinNumbers {
    spans: u64,
    free: u64,
    cached: u64,
    live: u64,
    tail: u64,
    queued: Option<u64>,
    unbacked: Option<u64>,
    taken: Option<u64>,
    given: Option<u64>,
    remote_batches: Option<u64>,
    remote_blocks: Option<u64>,
}

impl BinNumbers {
    fn of(
        constants: &Constants,
        class: &Class,
        bins: &ClassBins<'_, '_>,
        held: u64,
        in_mixed: u64,
    ) -> BinNumbers {
        let spans = bins.value(|fields| fields.spans).unwrap_or(0);
        let free = bins.value(|fields| fields.free_slots).unwrap_or(0);
        let queued = bins.value(|fields| fields.queued);
        // Of partial spans, neither free nor anybody's. Older libraries have none.
        let absent_slots = bins.value(|fields| fields.absent_slots).unwrap_or(0);
        let absent_pages = bins.value(|fields| fields.absent_pages).unwrap_or(0);
        let slots = spans
            .saturating_mul(class.slots)
            .saturating_sub(absent_slots);
        let out = slots.saturating_sub(free).saturating_add(in_mixed);
        let cached = held.saturating_add(queued.unwrap_or(0)).min(out);
        let pages = spans
            .saturating_mul(class.pages)
            .saturating_sub(absent_pages);
        let tail = pages
            .saturating_mul(constants.page)
            .saturating_sub(slots.saturating_mul(class.bytes));
        BinNumbers {
            spans,
            free,
            cached,
            live: out - cached,
            tail,
            queued,
            unbacked: times(bins.value(|fields| fields.unbacked_pages), constants.page),
            taken: bins.value(|fields| fields.taken),
            given: bins.value(|fields| fields.given),
            remote_batches: bins.value(|fields| fields.remote_batches),
            remote_blocks: bins.value(|fields| fields.remote_blocks),
        }
    }

    fn is_used(&self) -> bool {
        self.spans > 0 || self.taken.unwrap_or(0) > 0 || self.live > 0
    }

    /// As counters of scope `class`.
    fn figures(&self, raw: &Raw, class: &Class, bins: &ClassBins<'_, '_>) -> ClassFigures {
        let mut occupancy = bins.occupancy();
        let partly = occupancy.iter().copied().fold(0, u64::saturating_add);
        let full = self.spans.saturating_sub(partly);
        occupancy.push(full);
        let mut values = Values::default();
        let meant = |table: &str, field: &str| match (table, field) {
            ("class", "bytes") => Some(class.bytes),
            ("class", "pages") => Some(class.pages),
            ("class", "slots") => Some(class.slots),
            _ => bins.named(field),
        };
        let ground = Ground {
            meant: &meant,
            tables: &["class", "bin"],
            ..Ground::of_records(raw)
        };
        for derived in &FORMULAS.class {
            values.set_number(derived.id, derived.formula.value(&ground));
        }
        values.set("class_cached_blocks", self.cached);
        values.set("class_full_spans", full);
        values.set("class_live_blocks", self.live);
        ClassFigures {
            block_bytes: class.bytes,
            values,
            occupancy,
        }
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
    fn add(&mut self, class: &Class, bin: &BinNumbers) {
        let grow = |sum: &mut u64, by: u64| *sum = sum.saturating_add(by);
        let bytes = |blocks: u64| blocks.saturating_mul(class.bytes);
        grow(&mut self.live_blocks, bin.live);
        grow(&mut self.live_bytes, bytes(bin.live));
        grow(&mut self.cached_blocks, bin.cached);
        grow(&mut self.cached_bytes, bytes(bin.cached));
        self.deepest = self.deepest.max(bin.cached);
        grow(&mut self.spans, bin.spans);
        grow(&mut self.free_blocks, bin.free);
        grow(&mut self.free_bytes, bytes(bin.free));
        grow(&mut self.tail_bytes, bin.tail);
        grow(&mut self.unbacked_bytes, bin.unbacked.unwrap_or(0));
        grow(&mut self.refilled, bin.taken.unwrap_or(0));
        grow(&mut self.returned, bin.given.unwrap_or(0));
        grow(&mut self.remote_batches, bin.remote_batches.unwrap_or(0));
        grow(&mut self.remote_blocks, bin.remote_blocks.unwrap_or(0));
        grow(&mut self.queued, bin.queued.unwrap_or(0));
    }

    fn write(mut self, constants: &Constants, mixed: Option<&Mixed>, values: &mut Values) {
        if let Some(mixed) = mixed {
            let grow = |sum: &mut u64, by: u64| *sum = sum.saturating_add(by);
            grow(&mut self.spans, mixed.spans);
            let free = mixed.free_granules.saturating_mul(constants.granule);
            grow(&mut self.free_bytes, free);
            let unbacked = mixed.unbacked_pages.saturating_mul(constants.page);
            grow(&mut self.unbacked_bytes, unbacked);
            grow(&mut self.refilled, mixed.taken);
            grow(&mut self.returned, mixed.given);
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
