//! Size classes: the numbers in their bins, each class's figures, and a heap's sums of them.

use loam_format::counters::directory::Field;
use loam_format::counters::formula::{Ground, FORMULAS};
use loam_format::counters::ids;
use loam_format::counters::raw::{Raw, Row};

use crate::derive::mixed::Mixed;
use crate::derive::{more_each, times, Constants, CLASS_TABLES};
use crate::snapshot::{ClassFigures, HeapFigures, Values};

/// A size class of the library.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    pub bytes: u64,
    pages: u64,
    slots: u64,
}

pub fn classes(raw: &Raw) -> Vec<Class> {
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

/// Every figure that follows from a heap's size classes.
pub fn of_bins(
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
        // A class also has blocks in mixed spans, or in a private heap's first pages.
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

/// A class's bins: one, or more if threads meet there.
struct ClassBins<'a, 'b> {
    bin: &'b Row<'a>,
    fields: &'b BinFields<'a>,
    more: &'b [Row<'a>],
    more_fields: Option<&'b BinFields<'a>>,
}

impl<'a> ClassBins<'a, '_> {
    /// The sum of a field over the bins.
    fn value(&self, which: fn(&BinFields<'a>) -> Option<&'a Field>) -> Option<u64> {
        let first = self.bin.value(which(self.fields)?, 0)?;
        let Some(field) = self.more_fields.and_then(which) else {
            return Some(first);
        };
        let more = self.more.iter().filter_map(|row| row.value(field, 0));
        Some(more.fold(first, u64::saturating_add))
    }

    /// The sum of a field over the bins, by the field's name.
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

/// A class's numbers in its bins.
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
        // Slots that partial spans lent: they are neither free nor used. Older libraries have none.
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

    /// The figures as counters of scope `class`.
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
        values.set(ids::CLASS_CACHED_BLOCKS, self.cached);
        values.set(ids::CLASS_FULL_SPANS, full);
        values.set(ids::CLASS_LIVE_BLOCKS, self.live);
        ClassFigures {
            block_bytes: class.bytes,
            values,
            occupancy,
            span_pages: class.pages,
            span_slots: class.slots,
            empty_spans: bins.named("empty_spans").unwrap_or(0),
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
        values.set(ids::LIVE_SMALL_BYTES, self.live_bytes);
        values.set(ids::LIVE_SMALL_BLOCKS, self.live_blocks);
        values.set(ids::CACHED_BYTES, self.cached_bytes);
        values.set(ids::CACHED_BLOCKS, self.cached_blocks);
        values.set(ids::LARGEST_CACHE_DEPTH, self.deepest);
        values.set(ids::SPANS, self.spans);
        values.set(ids::SPAN_FREE_BYTES, self.free_bytes);
        values.set(ids::SPAN_FREE_BLOCKS, self.free_blocks);
        values.set(ids::SPAN_TAIL_BYTES, self.tail_bytes);
        values.set(ids::UNBACKED_BYTES, self.unbacked_bytes);
        values.set(ids::REFILLED_BLOCKS, self.refilled);
        values.set(ids::RETURNED_BLOCKS, self.returned);
        values.set(ids::REMOTE_BATCHES, self.remote_batches);
        values.set(ids::REMOTE_BLOCKS, self.remote_blocks);
        values.set(ids::QUEUED_BLOCKS, self.queued);
    }
}
