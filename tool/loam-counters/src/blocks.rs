//! The live blocks of a Loam heap, one by one, from its records: `formats/counters.md`, "The
//! blocks".
//!
//! ```text
//!  region -> span: slots (bits of free ones), a mixed span (granules), a run of pages, a private
//!            heap's (a state a slot)
//!  huge_block: a mapping of its own
//!  less what magazines, remote batches and stashes hold: freed, and still marked as handed out
//! ```
//!
//! Spans are read first and magazines afterwards. So a block that is freed meanwhile is found in
//! one of both. A process that runs may show a record in the middle of a change; such a record's
//! blocks are left out, or one look too long.

use std::collections::HashSet;
use std::sync::Arc;

use loam_format::bytes::number_at;
use loam_format::counters::directory::{Directory, Field, Table};
use loam_format::counters::raw::Raw;
use loam_format::memory::{Memory, ReadError};
use loam_process::mappings::{self, Mapping};

use crate::account::own_ranges;
use crate::{derive, reader, CountersError};

/// Who is told of the blocks.
pub trait Sink {
    /// A block in use. Within a stretch blocks come in the order of their addresses.
    fn block(&mut self, address: u64, size: u64);
    /// The next block may lie anywhere.
    fn stretch_ends(&mut self);
    /// A block that was told, or will be, is in the hands of the heap's caches: it is freed.
    fn freed(&mut self, address: u64);
}

/// What belongs to a heap beside its blocks.
#[derive(Debug, Default)]
pub struct Found {
    /// The library's version.
    pub library: String,
    /// Memory for blocks, and the heap's records; sorted, without overlaps.
    pub ranges: Vec<(u64, u64)>,
    /// What was left out and why.
    pub problems: Vec<String>,
}

const PAGE: u64 = 4096;
const GRANULE: u64 = 16;
/// Granules of a page.
const GRANULES: u64 = PAGE / GRANULE;
/// Pages of the longest span.
const MOST_PAGES: u64 = 32;
/// Records that are read at once.
const AT_ONCE: u64 = 1 << 14;
/// Pages of 1 GiB.
const PAGES_OF_A_REGION: u64 = 1 << 18;
/// More records of spans are not read: those of a heap of 1 TiB.
const MOST_SPANS: u64 = 1 << 28;
/// More batches of freed blocks are not followed. The heap bounds what waits in them by megabytes.
const MOST_BATCHES: usize = 1 << 18;

/// Kinds of spans that have blocks.
const SLOTS: u64 = 1;
const RUN: u64 = 2;
const MIXED: u64 = 3;
const PARTIAL: u64 = 6;

/// The word of a record's field.
fn value(record: &[u8], field: &Field, index: u64) -> u64 {
    let at = field.offset + index * field.width;
    number_at(record, at as usize, field.width as usize).unwrap_or(0)
}

/// The fields of a span that are needed; none if the library does not show them.
#[derive(Clone, Copy)]
struct SpanFields<'a> {
    table: &'a Table,
    free_bits: &'a Field,
    run_pages: &'a Field,
    tables: &'a Field,
    sealed: &'a Field,
    mixed_absent: &'a Field,
    partial_absent: &'a Field,
    private_run: &'a Field,
    first_page: &'a Field,
    heap: &'a Field,
    pages: &'a Field,
    class: &'a Field,
    kind: &'a Field,
}

impl<'a> SpanFields<'a> {
    fn of(directory: &'a Directory) -> Option<SpanFields<'a>> {
        let table = &directory.tables[directory.find("span")?];
        let is_sound = (8..=4096).contains(&table.stride) && table.high <= table.stride;
        is_sound.then_some(SpanFields {
            table,
            free_bits: table.field("free_bits")?,
            run_pages: table.field("run_pages")?,
            tables: table.field("tables")?,
            sealed: table.field("sealed")?,
            mixed_absent: table.field("mixed_absent_pages")?,
            partial_absent: table.field("partial_absent_pages")?,
            private_run: table.field("private_run")?,
            first_page: table.field("first_page")?,
            heap: table.field("heap")?,
            pages: table.field("pages")?,
            class: table.field("class")?,
            kind: table.field("kind")?,
        })
    }
}

struct RunFields<'a> {
    base: &'a Field,
    slot_bytes: &'a Field,
    piece_bytes: &'a Field,
    slots: &'a Field,
    uses: &'a Field,
    exact: &'a Field,
    states: u64,
}

impl<'a> RunFields<'a> {
    fn of(directory: &'a Directory) -> Option<RunFields<'a>> {
        let table = &directory.tables[directory.find("private_run")?];
        Some(RunFields {
            base: table.field("base")?,
            slot_bytes: table.field("slot_bytes")?,
            piece_bytes: table.field("piece_bytes")?,
            slots: table.field("slots")?,
            uses: table.field("use")?,
            exact: table.field("exact")?,
            states: table.field("states")?.offset,
        })
    }
}

struct Walk<'a, M, S> {
    memory: &'a M,
    mappings: &'a [Mapping],
    sink: &'a mut S,
    spans: SpanFields<'a>,
    runs: RunFields<'a>,
    /// Bytes and slots, by class.
    classes: Vec<(u64, u64)>,
    /// Blocks of spans with holes that lie behind the place reached: other spans are in the holes.
    behind_holes: Vec<(u64, u64)>,
    /// Addresses of records in metadata.
    records: Vec<u64>,
    unread: u64,
    spans_left: u64,
}

/// Tells of the blocks. `address`: the directory's; `mappings`: the process's.
pub fn read<M: Memory, S: Sink>(
    memory: &M,
    address: u64,
    mappings: &[Mapping],
    sink: &mut S,
) -> Result<Found, CountersError> {
    let directory = Arc::new(Directory::read(memory, address)?);
    let raw = reader::read(memory, &directory)?;
    let fields = SpanFields::of(&directory).zip(RunFields::of(&directory));
    let Some((spans, runs)) = fields else {
        return Err(CountersError::Blocks(directory.library.clone()));
    };
    let class = |table: &str| -> Vec<(u64, u64)> {
        let rows = raw.rows(table).into_iter().flatten();
        rows.map(|row| (row.get("bytes").unwrap_or(0), row.get("slots").unwrap_or(0)))
            .collect()
    };
    let mut walk = Walk {
        memory,
        mappings,
        sink,
        spans,
        runs,
        classes: [class("class"), class("split_class")].concat(),
        behind_holes: Vec::new(),
        records: Vec::new(),
        unread: 0,
        spans_left: MOST_SPANS,
    };
    let mut known = HashSet::new();
    let regions = raw.rows("region").into_iter().flatten();
    for region in regions {
        let (base, used) = (region.get("base"), region.get("spans_used"));
        if let (Some(base), Some(used)) = (base.filter(|base| known.insert(*base)), used) {
            walk.region(region.record.address, base, used)?;
        }
    }
    for row in raw.rows("huge_block").into_iter().flatten() {
        if let (Some(address @ 1..), Some(mapped)) = (row.get("address"), row.get("mapped")) {
            if walk.is_mapped(address) {
                walk.sink.block(address, mapped);
                walk.sink.stretch_ends();
            }
        }
    }
    // Anew: what they hold now was freed before, or is freed meanwhile.
    let later = reader::read(memory, &directory)?;
    walk.magazines(&later)?;
    for (table, bins) in [
        ("remote_batch", "bin"),
        ("more_remote_batch", "more_bin"),
        ("stashed", "bin"),
        ("more_stashed", "more_bin"),
    ] {
        walk.batches(&later, &directory, table, bins)?;
    }
    let mut snapshot = derive::snapshot(&later, false, &mut derive::Memory::default());
    snapshot.record_addresses.append(&mut walk.records);
    // The first records lie among variables, maybe the program's own. The kernel may have joined
    // these with a mapping of the program's.
    let first = directory.find("first_records");
    let first = first.map(|place| &directory.tables[place]);
    let first = first.map(|one| (one.address, one.address.saturating_add(one.stride)));
    let is_first = |address: u64| first.is_some_and(|(start, end)| (start..end).contains(&address));
    snapshot
        .record_addresses
        .retain(|address| !is_first(*address));
    let own = own_ranges(&snapshot, mappings).into_iter();
    let mut ranges: Vec<(u64, u64)> = own.map(|(start, end, _)| (start, end)).collect();
    ranges.extend(first);
    let mut problems = Vec::new();
    if walk.unread > 0 {
        problems.push(format!(
            "{} records of the heap could not be read, so blocks are missing",
            walk.unread
        ));
    }
    Ok(Found {
        library: directory.library.clone(),
        ranges: joined(ranges),
        problems,
    })
}

/// Sorted, and overlapping ones joined.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.retain(|(start, end)| start < end);
    ranges.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match all.last_mut() {
            Some((_, behind)) if start <= *behind => *behind = end.max(*behind),
            _ => all.push((start, end)),
        }
    }
    all
}

/// Whether a part can be done without: it is not mapped any more.
fn there<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(ReadError::Unmapped { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl<M: Memory, S: Sink> Walk<'_, M, S> {
    fn region(&mut self, address: u64, base: u64, used: u64) -> Result<(), ReadError> {
        let table = self.spans.table;
        let used = used.min(table.count).min(self.spans_left);
        self.spans_left -= used;
        let (stride, start) = (table.stride, address.wrapping_add(table.address));
        // First page and place among the kept records.
        let mut live: Vec<(u32, u32)> = Vec::new();
        let mut kept: Vec<u8> = Vec::new();
        let mut first = 0;
        while first < used {
            let count = AT_ONCE.min(used - first);
            let at = start.wrapping_add(first * stride);
            first += count;
            let read = self.memory.bytes(at, (count * stride) as usize);
            let Some(bytes) = there(read)? else {
                self.unread += count;
                continue;
            };
            for record in bytes.chunks_exact(stride as usize) {
                let kind = value(record, self.spans.kind, 0);
                let page = value(record, self.spans.first_page, 0);
                let has_blocks = matches!(kind, SLOTS | RUN | MIXED | PARTIAL);
                if has_blocks && page < PAGES_OF_A_REGION && live.len() < 1 << 20 {
                    live.push((page as u32, live.len() as u32));
                    kept.extend_from_slice(record);
                }
            }
        }
        live.sort_unstable();
        for (page, place) in live {
            let at = place as usize * stride as usize;
            let start = base.wrapping_add(u64::from(page) * PAGE);
            if self.is_mapped(start) {
                self.tell_below(start);
                self.span(start, &kept[at..at + stride as usize])?;
            }
        }
        self.tell_below(u64::MAX);
        self.sink.stretch_ends();
        Ok(())
    }

    /// What a record says of memory that is not there makes no block.
    fn is_mapped(&self, address: u64) -> bool {
        mappings::at(self.mappings, address).is_some_and(|one| one.writable)
    }

    fn tell(&mut self, address: u64, size: u64, has_holes: bool) {
        if has_holes {
            self.behind_holes.push((address, size));
        } else {
            self.sink.block(address, size);
        }
    }

    /// Tells of the blocks of spans with holes that lie below an address.
    fn tell_below(&mut self, end: u64) {
        if self.behind_holes.is_empty() {
            return;
        }
        self.behind_holes.sort_unstable();
        let count = self
            .behind_holes
            .partition_point(|(address, _)| *address < end);
        for (address, size) in self.behind_holes.drain(..count) {
            self.sink.block(address, size);
        }
    }

    fn run(&mut self, start: u64, pages: u64) {
        let is_sound = (1..=PAGES_OF_A_REGION).contains(&pages);
        if is_sound && self.is_mapped(start + (pages - 1) * PAGE) {
            self.sink.block(start, pages * PAGE);
        }
    }

    fn span(&mut self, start: u64, record: &[u8]) -> Result<(), ReadError> {
        let fields = self.spans;
        if value(record, fields.heap, 0) != 0 {
            let run = value(record, fields.private_run, 0);
            let pages = value(record, fields.run_pages, 0);
            return self.private(start, run, pages);
        }
        let pages = value(record, fields.pages, 0).min(MOST_PAGES);
        match value(record, fields.kind, 0) {
            RUN => {
                let pages = value(record, fields.run_pages, 0);
                self.run(start, pages);
            }
            MIXED => {
                let absent = value(record, fields.mixed_absent, 0);
                return self.mixed(start, pages, absent, record);
            }
            kind => {
                let class = value(record, fields.class, 0) as usize;
                let (size, slots) = self.classes.get(class).copied().unwrap_or((0, 0));
                let absent = match kind {
                    PARTIAL => value(record, fields.partial_absent, 0),
                    _ => 0,
                };
                if size == 0 || slots * size > pages * PAGE {
                    return Ok(());
                }
                for slot in 0..slots.min(64 * fields.free_bits.count) {
                    let is_free =
                        value(record, fields.free_bits, slot / 64) >> (slot % 64) & 1 != 0;
                    let (from, to) = (slot * size, (slot + 1) * size);
                    let touched = || (from / PAGE)..=((to - 1) / PAGE);
                    let is_absent = absent != 0 && touched().any(|page| absent >> page & 1 != 0);
                    if !is_free && !is_absent {
                        self.tell(start + from, size, absent != 0);
                    }
                }
            }
        }
        Ok(())
    }

    fn mixed(
        &mut self,
        start: u64,
        pages: u64,
        absent: u64,
        record: &[u8],
    ) -> Result<(), ReadError> {
        let fields = self.spans;
        let tables = value(record, fields.tables, 0);
        let granules = pages * GRANULES;
        let mut found: Vec<(u64, u64)> = Vec::new();
        if tables & 1 != 0 {
            // Few blocks, in words of 32 bits: 1, the first granule, the granules.
            let words = [tables & 0xffff_ffff, tables >> 32];
            let more = (0..fields.sealed.count).map(|place| value(record, fields.sealed, place));
            for word in words.into_iter().chain(more) {
                let (first, count) = (word >> 1 & 0x1fff, word >> 14);
                if count > 0 && first + count <= granules {
                    found.push((first, count));
                }
            }
            found.sort_unstable();
        } else {
            // For each 64 granules: which are free, and where blocks begin.
            let read = self.memory.bytes(tables, (granules / 4) as usize);
            let Some(bytes) = there(read)? else {
                self.unread += 1;
                return Ok(());
            };
            self.records.push(tables);
            let bit = |granule: u64, place: u64| {
                let word = number_at(&bytes, (granule / 64 * 16 + 8 * place) as usize, 8);
                word.unwrap_or(0) >> (granule % 64) & 1 != 0
            };
            let mut at = 0;
            while at < granules {
                let is_there = absent >> (at / GRANULES) & 1 == 0;
                if !is_there || !bit(at, 1) || bit(at, 0) {
                    at += 1;
                    continue;
                }
                let ends = |granule: &u64| bit(*granule, 0) || bit(*granule, 1);
                let end = (at + 1..granules).find(ends).unwrap_or(granules);
                found.push((at, end - at));
                at = end;
            }
        }
        for (first, count) in found {
            self.tell(start + first * GRANULE, count * GRANULE, absent != 0);
        }
        Ok(())
    }

    /// A run of a private heap: each slot has a state.
    fn private(&mut self, start: u64, run: u64, pages: u64) -> Result<(), ReadError> {
        const FREE_OR_CACHED: u64 = 1;
        let Some(head) = there(self.memory.bytes(run, self.runs.states as usize))? else {
            self.unread += 1;
            return Ok(());
        };
        self.records.push(run);
        let of = |field: &Field| value(&head, field, 0);
        let (slots, size) = (of(self.runs.slots), of(self.runs.slot_bytes));
        let is_mixed = match of(self.runs.uses) {
            0 => false,
            1 => true,
            2 => {
                self.run(start, pages);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let each = 1 + u64::from(of(self.runs.exact) != 0);
        let of_states = ((slots + 1) * each).next_multiple_of(8);
        let of_bits = slots.div_ceil(64) * 8;
        let length = of_states + of_bits + if is_mixed { slots } else { 0 };
        let at = run.wrapping_add(self.runs.states);
        let is_here = of(self.runs.base) == start && (1..1 << 20).contains(&size);
        let Some(bytes) = there(self.memory.bytes(at, length as usize))?.filter(|_| is_here) else {
            self.unread += 1;
            return Ok(());
        };
        let piece = of(self.runs.piece_bytes).max(1);
        let pieces = size.div_ceil(piece);
        let offset = |slot: u64| match is_mixed {
            true => slot / pieces * size + slot % pieces * piece,
            false => slot * size,
        };
        for slot in 0..slots {
            let state = number_at(&bytes, (slot * each) as usize, each as usize).unwrap_or(0);
            if state <= FREE_OR_CACHED {
                continue;
            }
            let more = match is_mixed {
                true => bytes
                    .get((of_states + of_bits + slot) as usize)
                    .map_or(0, |more| u64::from(*more)),
                false => 0,
            };
            let (from, to) = (offset(slot), offset((slot + more + 1).min(slots)));
            if to > from {
                self.sink.block(start + from, to - from);
            }
        }
        Ok(())
    }

    fn magazines(&mut self, raw: &Raw) -> Result<(), ReadError> {
        let limit = raw
            .row("constant")
            .and_then(|row| row.get("magazine_limit"));
        let limit = limit.unwrap_or(0).min(1 << 20);
        for row in raw.rows("magazine").into_iter().flatten() {
            let (Some(head), Some(base)) = (row.get("head"), row.get("base")) else {
                continue;
            };
            if head <= base || (head - base) / 8 > limit {
                continue;
            }
            self.records.push(base);
            if let Some(bytes) = there(self.memory.bytes(base, (head - base) as usize))? {
                self.freed(&bytes);
            }
        }
        Ok(())
    }

    fn freed(&mut self, pointers: &[u8]) {
        for place in 0..pointers.len() / 8 {
            let pointer = number_at(pointers, 8 * place, 8).unwrap_or(0);
            if pointer != 0 {
                self.sink.freed(pointer);
            }
        }
    }

    fn batches(
        &mut self,
        raw: &Raw,
        directory: &Directory,
        table: &str,
        bins: &str,
    ) -> Result<(), ReadError> {
        let Some(table) = directory.find(table).map(|place| &directory.tables[place]) else {
            return Ok(());
        };
        let fields = table.field("count").zip(table.field("pointers"));
        let (Some((count, pointers)), Some(link)) = (fields, table.link) else {
            return Ok(());
        };
        let mut seen = HashSet::new();
        for bin in raw.rows(bins).into_iter().flatten() {
            if bin.get("queued") == Some(0) {
                continue;
            }
            let mut at = bin.record.address.wrapping_add(table.address);
            while seen.len() < MOST_BATCHES {
                let Some(next) = there(self.memory.bytes(at, 8))? else {
                    break;
                };
                let next = number_at(&next, 0, 8).unwrap_or(0);
                if next == 0 || !seen.insert(next) {
                    break;
                }
                self.records.push(next);
                let place = next.wrapping_add(count.offset);
                let Some(number) = there(self.memory.bytes(place, 8))? else {
                    break;
                };
                let number = number_at(&number, 0, 8).unwrap_or(0).min(pointers.count);
                let place = next.wrapping_add(pointers.offset);
                if let Some(bytes) = there(self.memory.bytes(place, 8 * number as usize))? {
                    self.freed(&bytes);
                }
                at = next.wrapping_add(link);
            }
        }
        Ok(())
    }
}
