//! Counters of scope `process`, distributions, and the address ranges of the heap.

use std::collections::BTreeMap;
use std::sync::Arc;

use loam_format::counters::copies::Copies;
use loam_format::counters::directory::Field;
use loam_format::counters::formula::{Ground, FORMULAS};
use loam_format::counters::ids;
use loam_format::counters::list::{Scope, Source, LIST};
use loam_format::counters::raw::Raw;

use crate::derive::{class_bytes, more_each, sum, times, total, Constants};
use crate::snapshot::{HeapFigures, Snapshot, Values};

/// Fills in the figures of the process as a whole.
pub fn fill(
    raw: &Raw,
    constants: &Constants,
    heaps: &[HeapFigures],
    known: &mut KnownRuns,
    snapshot: &mut Snapshot,
) {
    sums_of_heaps(heaps, &mut snapshot.process);
    let rate = raw.row("sampler").and_then(|row| row.get("rate"));
    let is_sampling = rate.unwrap_or(0) > 0;
    formulas(raw, is_sampling, &mut snapshot.process);
    if let Some(runs) = known.of(raw, constants) {
        snapshot.free_ranges = Arc::clone(&runs.ranges);
        let of_heap = |field| raw.row("page_heap").and_then(|row| row.get(field));
        let backed = [of_heap("dirty_pages"), of_heap("surplus_pages").or(Some(0))];
        snapshot.free_backed_bytes = times(sum(backed), constants.page).unwrap_or(0);
        free_runs(raw, constants, runs, snapshot);
    }
    if is_sampling {
        times_of_calls(raw, &mut snapshot.histograms);
    }
    places(raw, constants, snapshot);
}

/// The process's counter is the sum over its heaps, except for the deepest cache.
fn sums_of_heaps(heaps: &[HeapFigures], values: &mut Values) {
    for counter in LIST
        .counters
        .iter()
        .filter(|counter| counter.scope == Scope::Heap)
    {
        let parts = heaps.iter().map(|heap| heap.values.known(&counter.id));
        let value = if counter.id == ids::LARGEST_CACHE_DEPTH {
            parts.flatten().max()
        } else {
            sum(parts)
        };
        values.set_known(&counter.id, value);
    }
}

/// Computes the list's formulas. If the formula of a counter of heaps yields nothing for the
/// process, the sum over the heaps stays.
fn formulas(raw: &Raw, is_sampling: bool, values: &mut Values) {
    for derived in &FORMULAS.process {
        if derived.source == Source::Sampling && !is_sampling {
            continue;
        }
        let ground = Ground {
            known: &|id| values.known(id),
            ..Ground::of_records(raw)
        };
        let value = derived.formula.value(&ground);
        values.set_number(derived.id, value);
    }
}

/// Runs of free pages inside blocks of pages, by whether they are backed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Runs {
    backed: Lengths,
    unbacked: Lengths,
    /// The addresses of all.
    ranges: Arc<Vec<(u64, u64)>>,
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
        let power = length.ilog2() as usize;
        self.by_power[power.min(9)] += 1;
        self.longest = self.longest.max(length);
        self.count += 1;
    }

    fn trimmed(&self) -> Vec<u64> {
        let end = self.by_power.iter().rposition(|count| *count > 0);
        self.by_power[..end.map_or(0, |end| end + 1)].to_vec()
    }
}

/// Tells the place and the length of each run of set bits.
fn each_run(words: &[u64], mut tell: impl FnMut(u64, u64)) {
    let (mut at, mut length) = (0, 0);
    let mut end = |at: u64, length: u64| {
        if length > 0 {
            tell(at - length, length);
        }
    };
    for word in words {
        let (mut rest, mut left) = (*word, u64::BITS);
        while left > 0 {
            let ones = rest.trailing_ones().min(left);
            length += u64::from(ones);
            at += u64::from(ones);
            left -= ones;
            if left == 0 {
                break; // the run may go on in the next word
            }
            end(at, length);
            length = 0;
            rest >>= ones;
            let zeros = rest.trailing_zeros().min(left);
            rest = rest.checked_shr(zeros).unwrap_or(0);
            at += u64::from(zeros);
            left -= zeros;
        }
    }
    end(at, length);
}

/// The runs of the look before, with the records that they were counted in.
#[derive(Debug, Default)]
pub struct KnownRuns(Option<(Arc<Copies>, Runs)>);

impl KnownRuns {
    /// The runs of this look. They are counted only if their records were read again.
    fn of(&mut self, raw: &Raw, constants: &Constants) -> Option<&Runs> {
        let blocks = raw.copies("block")?;
        let is_known = matches!(&self.0, Some((known, _)) if Arc::ptr_eq(known, blocks));
        if !is_known {
            self.0 = Some((Arc::clone(blocks), Runs::of(raw, constants)?));
        }
        self.0.as_ref().map(|(_, runs)| runs)
    }
}

impl Runs {
    fn of(raw: &Raw, constants: &Constants) -> Option<Runs> {
        let mut runs = Runs::default();
        let mut ranges = Vec::new();
        let bases = bases_of(raw);
        // The fields are looked up once, because a large heap has very many of these records, most
        // of them full.
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
            let base = bases.get(row.record.parent).copied().unwrap_or(0);
            let start = block_at(constants, base, row.record.number);
            let place = |page: u64| start.saturating_add(page.saturating_mul(constants.page));
            each_run(&free, |first, length| {
                ranges.push((place(first), place(first + length)));
            });
            let (held, gone) = (&mut runs.backed, &mut runs.unbacked);
            each_run(&both(|free, backed| free & backed), |_, length| {
                held.add(length)
            });
            each_run(&both(|free, backed| free & !backed), |_, length| {
                gone.add(length)
            });
        }
        runs.ranges = Arc::new(ranges);
        Some(runs)
    }
}

fn free_runs(raw: &Raw, constants: &Constants, runs: &Runs, snapshot: &mut Snapshot) {
    let values = &mut snapshot.process;
    let longest = times(Some(runs.backed.longest), constants.page);
    values.set_known(ids::LARGEST_FREE_RUN_BYTES, longest);
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
    values.set_known(ids::FREE_LIST_LENGTH, sum([slots, Some(runs.backed.count)]));
    let partly = raw.rows("extent").map(|rows| {
        rows.filter(|row| row.get("committed_blocks") < row.get("block_count"))
            .count() as u64
    });
    values.set_known(
        ids::UNCOMMITTED_RANGES,
        sum([partly, Some(runs.unbacked.count)]),
    );
    let histograms = &mut snapshot.histograms;
    histograms.insert(ids::FREE_RUNS.to_owned(), runs.backed.trimmed());
    histograms.insert(ids::UNBACKED_RUNS.to_owned(), runs.unbacked.trimmed());
}

/// A field of ended threads and of living ones.
fn of_threads(raw: &Raw, field: &str, index: u64) -> Option<u64> {
    let ended = raw.row("registry")?.at(field, index);
    let living = sum(raw.rows("cache")?.map(|row| row.at(field, index)));
    sum([ended, living])
}

/// How long calls took: known only while the program samples.
fn times_of_calls(raw: &Raw, histograms: &mut BTreeMap<String, Vec<u64>>) {
    for (id, field) in [
        (ids::ALLOC_TIME, "alloc_log2_ns"),
        (ids::FREE_TIME, "free_log2_ns"),
    ] {
        let mut buckets = Vec::new();
        while let Some(count) = of_threads(raw, field, buckets.len() as u64) {
            buckets.push(count);
        }
        while buckets.last() == Some(&0) {
            buckets.pop();
        }
        histograms.insert(id.to_owned(), buckets);
    }
}

/// The addresses of regions.
fn bases_of(raw: &Raw) -> Vec<u64> {
    let rows = raw.rows("region").into_iter().flatten();
    rows.map(|row| row.get("base").unwrap_or(0)).collect()
}

/// The address of a region's block.
fn block_at(constants: &Constants, base: u64, number: u64) -> u64 {
    base.saturating_add(number.saturating_mul(constants.block))
}

/// Where blocks and records lie, for the account of the system.
fn places(raw: &Raw, constants: &Constants, snapshot: &mut Snapshot) {
    let bases = bases_of(raw);
    let at = |base: u64, blocks: u64| block_at(constants, base, blocks);
    for row in raw.rows("extent").into_iter().flatten() {
        let base = bases.get(row.record.parent).copied().unwrap_or(0);
        let (Some(first), Some(count)) = (row.get("first_block"), row.get("block_count")) else {
            continue;
        };
        let committed = row.get("committed_blocks").unwrap_or(count).min(count);
        let edge = at(base, first.saturating_add(committed));
        let behind = at(base, first.saturating_add(count));
        snapshot.block_ranges.push((at(base, first), edge));
        snapshot.reserved_ranges.push((edge, behind));
    }
    for row in raw.rows("huge_block").into_iter().flatten() {
        if let (Some(address @ 1..), Some(mapped)) = (row.get("address"), row.get("mapped")) {
            let behind = address.saturating_add(mapped);
            snapshot.block_ranges.push((address, behind));
        }
    }
    // Mappings of freed large blocks that are kept. Older libraries do not say where they are.
    let kept = raw.rows("page_heap").and_then(|mut rows| rows.next());
    let kept = kept.and_then(|row| row.get("idle_mappings")).unwrap_or(0);
    let rows = raw.rows("idle_mapping").into_iter().flatten();
    for row in rows.filter(|row| row.record.number < kept) {
        if let (Some(address @ 1..), Some(pages)) = (row.get("address"), row.get("pages")) {
            let behind = address.saturating_add(pages.saturating_mul(constants.page));
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
        let mut told = Vec::new();
        let mut tell = |first, length| {
            lengths.add(length);
            told.push((first, length));
        };
        each_run(&[0b0111_0110, 0, 0, 0, 0, 0, 0, 1 << 63], &mut tell);
        each_run(&[u64::MAX; 8], &mut tell);
        each_run(&[3 << 62, 1, 0, 1], &mut tell);
        let of_words = [(62, 3), (192, 1)];
        assert_eq!(told[..4], [(1, 2), (4, 3), (511, 1), (0, 512)]);
        assert_eq!(told[4..], of_words);
        assert_eq!(lengths.by_power, [2, 3, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((lengths.longest, lengths.count), (512, 6));
        assert_eq!(Lengths::default().trimmed(), Vec::<u64>::new());
    }
}
