//! Counters of scope `heap`: the default heap, large blocks, locks.

use loam_format::counters::formula::{Ground, FORMULAS};
use loam_format::counters::ids;
use loam_format::counters::raw::{Raw, Row};

use crate::derive::bins::of_bins;
use crate::derive::mixed::Mixed;
use crate::derive::{sum, total, Constants, Magazines};
use crate::snapshot::{HeapFigures, Values};

/// The blocks of each class that all threads hold. The entry after the last fixed class is for
/// blocks in mixed spans.
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
    // The mixed magazine does not show the classes of its blocks, so they are divided among the
    // classes.
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
    let cached = heap.values.whole(ids::CACHED_BYTES).saturating_add(in_runs);
    heap.values.set(ids::CACHED_BYTES, cached);
    // Only private heaps have these.
    heap.values.set(ids::SET_ASIDE_BYTES, 0);
    heap.values.set(ids::PRIVATE_RECORDS_BYTES, 0);
    large(raw, &mut heap.values, &all.without(privates));
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

/// The large blocks of all heaps together, as the list's formulas compute them for the process.
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

/// A count of all caches, those of live and of ended threads; 0 if the library has no such field.
pub fn of_caches(raw: &Raw, field: &str) -> u64 {
    let live = total(raw.rows("cache"), field).unwrap_or(0);
    let ended = raw.row("registry").and_then(|row| row.get(field));
    live.saturating_add(ended.unwrap_or(0))
}

/// The figures of large blocks; unknown if a field is missing.
pub struct Large {
    blocks: Option<u64>,
    bytes: Option<u64>,
    huge_blocks: Option<u64>,
    huge_bytes: Option<u64>,
    requested: Option<u64>,
    /// Bytes of large and huge blocks together.
    all_bytes: Option<u64>,
    /// Large and huge blocks together.
    all_blocks: Option<u64>,
}

impl Large {
    /// The figures of a heap that keeps only sums.
    pub fn of_sums(blocks: Option<u64>, bytes: Option<u64>) -> Large {
        Large {
            blocks,
            bytes,
            huge_blocks: Some(0),
            huge_bytes: Some(0),
            requested: bytes,
            all_bytes: bytes,
            all_blocks: blocks,
        }
    }

    /// The figures without those of private heaps.
    fn without(&self, privates: &[HeapFigures]) -> Large {
        let others = |id: &str| {
            let parts = privates.iter().map(|heap| heap.values.whole(id));
            parts.fold(0, u64::saturating_add)
        };
        let less = |value: Option<u64>, other: u64| value.map(|value| value.saturating_sub(other));
        // A private heap does not record which of its large blocks have a mapping of their own.
        let is_known = others(ids::LIVE_LARGE_BLOCKS) == 0;
        let known = |value: Option<u64>| value.filter(|_| is_known);
        Large {
            blocks: known(self.blocks),
            bytes: known(self.bytes),
            huge_blocks: known(self.huge_blocks),
            huge_bytes: known(self.huge_bytes),
            requested: known(self.requested),
            all_bytes: less(self.all_bytes, others(ids::LIVE_LARGE_BYTES)),
            all_blocks: less(self.all_blocks, others(ids::LIVE_LARGE_BLOCKS)),
        }
    }
}

/// Writes the figures of large blocks and the sums that they are part of.
pub fn large(raw: &Raw, values: &mut Values, large: &Large) {
    values.set_known(ids::LIVE_LARGE_BLOCKS, large.blocks);
    values.set_known(ids::LIVE_LARGE_BYTES, large.bytes);
    values.set_known(ids::LIVE_HUGE_BLOCKS, large.huge_blocks);
    values.set_known(ids::LIVE_HUGE_BYTES, large.huge_bytes);
    let both = sum([large.bytes, large.huge_bytes]);
    let rounding = both.zip(large.requested);
    let rounding = rounding.map(|(bytes, requested)| bytes.saturating_sub(requested));
    values.set_known(ids::LARGE_ROUNDING_BYTES, rounding);
    let bytes = sum([values.known(ids::LIVE_SMALL_BYTES), large.all_bytes]);
    let blocks = sum([values.known(ids::LIVE_SMALL_BLOCKS), large.all_blocks]);
    values.set_known(ids::LIVE_BYTES, bytes);
    values.set_known(ids::LIVE_BLOCKS, blocks);
    for derived in &FORMULAS.heap {
        let ground = Ground {
            known: &|id| values.known(id),
            ..Ground::of_records(raw)
        };
        let value = derived.formula.value(&ground);
        values.set_number(derived.id, value);
    }
}

/// Acquisitions of all locks of those tables. For one private heap, only of its own locks.
pub fn locks(raw: &Raw, tables: &[&str], parent: Option<usize>, values: &mut Values) {
    for (id, field) in [
        (ids::LOCK_ACQUISITIONS, "lock_acquisitions"),
        (ids::LOCK_CONTENTIONS, "lock_contentions"),
        (ids::LOCK_REFUSALS, "lock_refusals"),
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
