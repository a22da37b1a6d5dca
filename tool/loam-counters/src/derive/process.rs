//! Counters of scope `process`, distributions, and where the heap lies.

use std::sync::Arc;

use loam_format::counters::copies::Copies;
use loam_format::counters::directory::Field;
use loam_format::counters::list::{Scope, LIST};
use loam_format::counters::raw::Raw;

use crate::derive::heap::{self, Large};
use crate::derive::{class_bytes, more_each, sum, times, total, Constants};
use crate::snapshot::{HeapFigures, Snapshot, Value, Values};

/// Fills in everything that is about the process as a whole.
pub fn fill(
    raw: &Raw,
    constants: &Constants,
    heaps: &[HeapFigures],
    large: &Large,
    known: &mut KnownRuns,
    snapshot: &mut Snapshot,
) {
    sums_of_heaps(heaps, large, &mut snapshot.process);
    let runs = known.of(raw);
    pages(raw, constants, large, &mut snapshot.process);
    totals(&mut snapshot.process);
    if let Some(runs) = runs {
        free_runs(raw, constants, runs, snapshot);
    }
    caches(raw, &mut snapshot.process);
    sampling(raw, snapshot);
    places(raw, constants, snapshot);
}

/// A counter of heaps is the process's by adding up, but for the deepest cache.
fn sums_of_heaps(heaps: &[HeapFigures], all: &Large, values: &mut Values) {
    for counter in LIST
        .counters
        .iter()
        .filter(|counter| counter.scope == Scope::Heap)
    {
        let parts = heaps.iter().map(|heap| {
            let known = heap.values.get(&counter.id);
            known.map(|_| heap.values.whole(&counter.id))
        });
        let value = if counter.id == "largest_cache_depth" {
            parts.flatten().max()
        } else {
            sum(parts)
        };
        values.set_known(&counter.id, value);
    }
    // Of private heaps it is not kept which large blocks have a mapping of their own; of all it is.
    let used = values.get("used_bytes");
    heap::large(values, all);
    if let Some(Value::Whole(used)) = used {
        values.set("used_bytes", used);
    }
}

fn pages(raw: &Raw, constants: &Constants, large: &Large, values: &mut Values) {
    let pages = raw.row("page_heap");
    let huge = raw.row("huge");
    let get = |field: &str| pages.and_then(|row| row.get(field));
    let of_huge = |field: &str| huge.and_then(|row| row.get(field));
    let in_bytes = |field: &str| times(get(field), constants.page);
    // Large runs that wait in shards count as used there; older libraries have no shards.
    let in_shards: u64 = (raw.rows("page_shard").into_iter().flatten())
        .filter_map(|row| row.get("parked_pages"))
        .sum();
    let used = get("used_pages").map(|pages| pages.saturating_sub(in_shards));
    let used = times(used, constants.page);
    let parked = get("parked_pages").map(|pages| pages.saturating_add(in_shards));
    let parked = times(parked, constants.page);
    // Older libraries keep no mapping.
    let idle = Some(in_bytes("idle_mapping_pages").unwrap_or(0));
    values.set_known("used_bytes", sum([used, of_huge("mapped")]));
    values.set_known("dirty_bytes", sum([in_bytes("dirty_pages"), idle, parked]));
    values.set_known("parked_bytes", parked);
    let blocks = |field: &str| sum([times(get(field), constants.block), idle]);
    let committed = blocks("committed_blocks");
    let free = committed.zip(used);
    values.set_known(
        "free_run_bytes",
        free.map(|(committed, used)| committed.saturating_sub(used)),
    );
    let metadata = metadata(raw);
    values.set_known("metadata_bytes", metadata);
    values.set_known(
        "committed_bytes",
        sum([committed, of_huge("mapped"), metadata]),
    );
    let reserved = blocks("reserved_blocks");
    values.set_known(
        "reserved_bytes",
        sum([reserved, of_huge("mapped"), metadata]),
    );
    values.set_known("peak_used_bytes", in_bytes("peak_used_pages"));
    values.set_known("peak_huge_bytes", of_huge("peak_mapped"));
    values.set_known("fresh_bytes", in_bytes("fresh_pages"));
    values.set_known("purged_total_bytes", in_bytes("purged_pages"));
    values.set_known("purge_calls", get("purge_calls"));
    values.set_known("purge_nanoseconds", get("purge_ns"));
    values.set_known("refused_calls", get("refused_calls"));
    let from_caches = Some(heap::of_caches(raw, "runs_taken"));
    let allocs = sum([get("large_allocs"), from_caches, of_huge("allocs")]);
    values.set_known("large_allocs", allocs);
    let live = large.all_blocks;
    values.set_known(
        "large_frees",
        allocs
            .zip(live)
            .map(|(allocs, live)| allocs.saturating_sub(live)),
    );
}

fn metadata(raw: &Raw) -> Option<u64> {
    let constants = raw.row("constant")?;
    let map = constants.get("map_bytes_per_block")?;
    let span = constants.get("span_record_bytes")?;
    let blocks = total(raw.rows("extent"), "committed_blocks")?;
    let spans = total(raw.rows("region"), "spans_used")?;
    // An older library keeps them all.
    let purged = ["records_purged", "maps_purged"]
        .map(|field| total(raw.rows("region"), field).unwrap_or(0))
        .iter()
        .sum::<u64>();
    sum([
        raw.row("metadata")?.get("used"),
        Some(
            raw.row("sampler")
                .and_then(|row| row.get("table_bytes"))
                .unwrap_or(0),
        ),
        Some(
            blocks
                .saturating_mul(map)
                .saturating_add(spans.saturating_mul(span))
                .saturating_sub(purged),
        ),
    ])
}

/// Counters that are made of other counters.
fn totals(values: &mut Values) {
    let known = |values: &Values, id: &str| values.get(id).map(|_| values.whole(id));
    let less = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_sub(b?));
    let unbacked = known(values, "unbacked_bytes");
    let clean = less(
        known(values, "free_run_bytes"),
        known(values, "dirty_bytes"),
    );
    values.set_known("purged_bytes", sum([clean, unbacked]));
    let backed = less(
        known(values, "committed_bytes"),
        known(values, "purged_bytes"),
    );
    values.set_known("backed_bytes", backed);
    let held = sum([
        known(values, "span_free_bytes"),
        known(values, "dirty_bytes"),
    ]);
    let free = less(held, unbacked);
    values.set_known("free_bytes", free);
    if let (Some(free), Some(backed)) = (free, backed) {
        values.set_real("free_ratio", free as f64 / backed as f64);
    }
    let reserved = known(values, "reserved_bytes");
    if let (Some(committed), Some(reserved)) = (known(values, "committed_bytes"), reserved) {
        values.set_real("virtual_ratio", committed as f64 / reserved as f64);
    }
}

/// Runs of free pages inside blocks of pages, by whether they are backed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Runs {
    backed: Lengths,
    unbacked: Lengths,
}

/// How many runs there are of each length, by powers of two.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lengths {
    by_power: [u64; 10],
    longest: u64,
    count: u64,
}

impl Lengths {
    fn add(&mut self, length: u64) {
        if length > 0 {
            let power = length.ilog2() as usize;
            self.by_power[power.min(9)] += 1;
            self.longest = self.longest.max(length);
            self.count += 1;
        }
    }

    /// Adds the runs of set bits.
    fn add_bits(&mut self, words: &[u64]) {
        let mut length = 0;
        for word in words {
            let (mut rest, mut left) = (*word, u64::BITS);
            while left > 0 {
                let ones = rest.trailing_ones().min(left);
                length += u64::from(ones);
                left -= ones;
                if left == 0 {
                    break; // the run may go on in the next word
                }
                self.add(length);
                length = 0;
                rest >>= ones;
                let zeros = rest.trailing_zeros().min(left);
                rest = rest.checked_shr(zeros).unwrap_or(0);
                left -= zeros;
            }
        }
        self.add(length);
    }

    fn trimmed(&self) -> Vec<u64> {
        let end = self.by_power.iter().rposition(|count| *count > 0);
        self.by_power[..end.map_or(0, |end| end + 1)].to_vec()
    }
}

/// The runs of the look before, and the records that they were counted in.
#[derive(Debug, Default)]
pub struct KnownRuns(Option<(Arc<Copies>, Runs)>);

impl KnownRuns {
    /// Those of now: counted only if their records were read again.
    fn of(&mut self, raw: &Raw) -> Option<&Runs> {
        let blocks = raw.copies("block")?;
        let is_known = matches!(&self.0, Some((known, _)) if Arc::ptr_eq(known, blocks));
        if !is_known {
            self.0 = Some((Arc::clone(blocks), Runs::of(raw)?));
        }
        self.0.as_ref().map(|(_, runs)| runs)
    }
}

impl Runs {
    fn of(raw: &Raw) -> Option<Runs> {
        let mut runs = Runs::default();
        // Looked up once: a large heap has very many of these records, most of them full.
        let field = |name| raw.field("block", name);
        let (free, backed, count) = (field("free"), field("backed"), field("free_pages"));
        for row in raw.rows("block")? {
            let value = |field: Option<&Field>, index| row.value(field?, index);
            if value(count, 0) == Some(0) {
                continue;
            }
            let words =
                |field| -> Vec<u64> { (0..8).map_while(|index| value(field, index)).collect() };
            let (free, backed) = (words(free), words(backed));
            let both = |pick: fn(u64, u64) -> u64| -> Vec<u64> {
                let words = free.iter().zip(&backed);
                words.map(|(free, backed)| pick(*free, *backed)).collect()
            };
            runs.backed.add_bits(&both(|free, backed| free & backed));
            runs.unbacked.add_bits(&both(|free, backed| free & !backed));
        }
        Some(runs)
    }
}

fn free_runs(raw: &Raw, constants: &Constants, runs: &Runs, snapshot: &mut Snapshot) {
    let values = &mut snapshot.process;
    let longest = times(Some(runs.backed.longest), constants.page);
    values.set_known("largest_free_run_bytes", longest);
    let classes = class_bytes(raw);
    let is_listed = |class: usize| classes.get(class).is_some_and(|bytes| *bytes > 1024);
    let slots =
        [("bin", 1), ("private_bin", 1), ("more_bin", more_each(raw))].map(|(table, each)| {
            let rows = raw.rows(table).into_iter().flatten();
            total(
                Some(rows.filter(|row| is_listed(row.record.number as usize / each))),
                "free_slots",
            )
        });
    let slots = sum(slots);
    values.set_known("free_list_length", sum([slots, Some(runs.backed.count)]));
    let partly = raw.rows("extent").map(|rows| {
        rows.filter(|row| row.get("committed_blocks") < row.get("block_count"))
            .count() as u64
    });
    values.set_known(
        "uncommitted_ranges",
        sum([partly, Some(runs.unbacked.count)]),
    );
    let histograms = &mut snapshot.histograms;
    histograms.insert("free_runs".to_owned(), runs.backed.trimmed());
    histograms.insert("unbacked_runs".to_owned(), runs.unbacked.trimmed());
}

/// A field of ended threads and of living ones.
fn of_threads(raw: &Raw, field: &str, index: u64) -> Option<u64> {
    let ended = raw.row("registry")?.at(field, index);
    let living = sum(raw.rows("cache")?.map(|row| row.at(field, index)));
    sum([ended, living])
}

fn caches(raw: &Raw, values: &mut Values) {
    let threads = raw.row("registry").and_then(|row| row.get("threads"));
    values.set_known("threads", threads);
    values.set_known("cache_misses", of_threads(raw, "refills", 0));
    values.set_known("cache_flushes", of_threads(raw, "flushes", 0));
    let start = raw
        .row("constant")
        .and_then(|row| row.get("frees_per_look"));
    let since = raw.rows("cache").and_then(|rows| {
        sum(rows.map(|row| Some(start?.saturating_sub(row.get("until_look")?.max(1)))))
    });
    values.set_known("cache_frees", sum([of_threads(raw, "pushed", 0), since]));
}

/// What is known only while the program samples.
fn sampling(raw: &Raw, snapshot: &mut Snapshot) {
    let sampler = raw.row("sampler");
    let rate = sampler.and_then(|row| row.get("rate")).unwrap_or(0);
    if rate == 0 {
        return;
    }
    let values = &mut snapshot.process;
    let lost_to_rounding = sampler.and_then(|row| row.get("live_rounding"));
    values.set_known("small_rounding_bytes", lost_to_rounding);
    let bands = ["to_1k", "to_8k", "over_8k"];
    for (what, large) in [("allocs", "large_allocs"), ("frees", "large_frees")] {
        let large = values.get(large).map(|_| values.whole(large));
        let mut all = Vec::new();
        for (index, band) in bands.iter().enumerate() {
            let small = of_threads(raw, what, index as u64);
            let count = if index == 2 {
                sum([small, large])
            } else {
                small
            };
            values.set_known(format!("{what}_{band}"), count);
            all.push(count);
        }
        values.set_known(what, sum(all));
    }
    values.set_known("cached_allocs", of_threads(raw, "alloc_hits", 0));
    values.set_known("cached_frees", of_threads(raw, "free_hits", 0));
    for (number, time, numbers_id, time_id, rate_id) in [
        (
            "timed_allocs",
            "timed_alloc_ns",
            "timed_allocs",
            "timed_alloc_nanoseconds",
            "alloc_rate",
        ),
        (
            "timed_frees",
            "timed_free_ns",
            "timed_frees",
            "timed_free_nanoseconds",
            "free_rate",
        ),
    ] {
        let both = |field| sum((0..2).map(|index| of_threads(raw, field, index)));
        values.set_known(numbers_id, both(number));
        values.set_known(time_id, both(time));
        let missed = (of_threads(raw, number, 1), of_threads(raw, time, 1));
        if let (Some(number), Some(time)) = missed {
            values.set_real(rate_id, 1e9 * number as f64 / time as f64);
        }
    }
    for (id, field) in [
        ("alloc_time", "alloc_log2_ns"),
        ("free_time", "free_log2_ns"),
    ] {
        let mut buckets = Vec::new();
        while let Some(count) = of_threads(raw, field, buckets.len() as u64) {
            buckets.push(count);
        }
        while buckets.last() == Some(&0) {
            buckets.pop();
        }
        snapshot.histograms.insert(id.to_owned(), buckets);
    }
}

/// Where blocks and records lie, for the account of the system.
fn places(raw: &Raw, constants: &Constants, snapshot: &mut Snapshot) {
    let bases: Vec<u64> = raw
        .rows("region")
        .map(|rows| rows.map(|row| row.get("base").unwrap_or(0)).collect())
        .unwrap_or_default();
    let at = |base: u64, blocks: u64| base.saturating_add(blocks.saturating_mul(constants.block));
    for row in raw.rows("extent").into_iter().flatten() {
        let base = bases.get(row.record.parent).copied().unwrap_or(0);
        let (Some(first), Some(count)) = (row.get("first_block"), row.get("block_count")) else {
            continue;
        };
        let behind = at(base, first.saturating_add(count));
        snapshot.block_ranges.push((at(base, first), behind));
    }
    for row in raw.rows("huge_block").into_iter().flatten() {
        if let (Some(address @ 1..), Some(mapped)) = (row.get("address"), row.get("mapped")) {
            let behind = address.saturating_add(mapped);
            snapshot.block_ranges.push((address, behind));
        }
    }
    for table in [
        "region",
        "cache",
        "private_heap",
        "private_cache",
        "extent",
        "block",
    ] {
        // Neighbours lie in one mapping.
        let rows = raw.rows(table).into_iter().flatten();
        let mut page = None;
        let addresses = rows.map(|row| row.address()).filter(|address| {
            let own = address / constants.page.max(1);
            page.replace(own) != Some(own)
        });
        snapshot.record_addresses.extend(addresses);
    }
    let first = raw.rows("huge_block").and_then(|mut rows| rows.next());
    snapshot
        .record_addresses
        .extend(first.map(|row| row.address()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_by_their_length_and_end_with_their_block() {
        let mut lengths = Lengths::default();
        lengths.add_bits(&[0b0111_0110, 0, 0, 0, 0, 0, 0, 1 << 63]);
        lengths.add_bits(&[u64::MAX; 8]);
        assert_eq!(lengths.by_power, [1, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((lengths.longest, lengths.count), (512, 4));
        assert_eq!(Lengths::default().trimmed(), Vec::<u64>::new());
    }
}
