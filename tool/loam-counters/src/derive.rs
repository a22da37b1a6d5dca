//! Computes counters from raw records, as `formats/counters.toml` derives each.
//!
//! A counter is unknown and not set if one of its fields is missing (an older library). Sums
//! saturate: a process may report any number, and a wrong figure is better than no figures or a
//! panic.

mod bins;
mod heap;
mod mixed;
mod peer;
mod private;
mod process;

use loam_format::counters::directory::Field;
use loam_format::counters::list::LIST;
use loam_format::counters::raw::{Raw, Row};

pub use peer::TABLE as PEER_TABLE;

use crate::snapshot::{HeapFigures, LockFigures, Snapshot};

/// How much to derive, and the figures of the look before that can be used again.
#[derive(Debug, Default)]
pub struct Memory {
    /// Leaves out the figures of single classes and locks. The sums still include them.
    pub is_brief: bool,
    runs: process::KnownRuns,
}

/// Derives every counter for which the fields exist.
pub fn snapshot(raw: &Raw, is_consistent: bool, memory: &mut Memory) -> Snapshot {
    if let Some(row) = raw.row(peer::TABLE) {
        return peer::snapshot(raw, &row);
    }
    let constants = Constants {
        is_brief: memory.is_brief,
        ..Constants::of(raw)
    };
    let privates = private::private_heaps(raw, &constants);
    let large = heap::large_of_all(raw);
    let default = heap::default_heap(raw, &constants, &privates, &large);
    let mut heaps: Vec<HeapFigures> = vec![default];
    heaps.extend(privates);
    let mut snapshot = Snapshot {
        library: raw.directory.library.clone(),
        format_version: raw.directory.version,
        consistent: is_consistent,
        ..Snapshot::default()
    };
    if !memory.is_brief {
        snapshot.locks = locks(raw);
    }
    process::fill(raw, &constants, &heaps, &mut memory.runs, &mut snapshot);
    snapshot.heaps = heaps;
    snapshot.notes = notes(raw);
    snapshot
}

/// Constants of the build that the counters come from. A missing constant is zero, and the figures
/// that depend on it are then unknown.
#[derive(Debug, Clone, Copy)]
struct Constants {
    page: u64,
    block: u64,
    granule: u64,
    magazine_limit: u64,
    private_slot: u64,
    /// Not a constant of the build: whether only sums are wanted.
    is_brief: bool,
}

impl Constants {
    fn of(raw: &Raw) -> Constants {
        let row = raw.row("constant");
        let get = |field| row.and_then(|row| row.get(field)).unwrap_or(0);
        Constants {
            page: get("page_bytes"),
            block: get("block_bytes"),
            granule: get("granule_bytes"),
            magazine_limit: get("magazine_limit"),
            private_slot: get("private_slot_bytes"),
            is_brief: false,
        }
    }
}

/// The sum, if every part is known.
fn sum(parts: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    parts
        .into_iter()
        .try_fold(0u64, |sum, part| Some(sum.saturating_add(part?)))
}

/// The sum of a field over rows, if the table exists.
fn total<'a>(rows: Option<impl Iterator<Item = Row<'a>>>, field: &str) -> Option<u64> {
    let mut rows = rows?.peekable();
    let field = rows.peek().and_then(|row| row.field(field));
    sum(rows.map(|row| row.value(field?, 0)))
}

fn times(count: Option<u64>, size: u64) -> Option<u64> {
    (size > 0).then_some(count?.saturating_mul(size))
}

/// Magazines of a table, with the fields that show what they hold.
struct Magazines<'a> {
    raw: &'a Raw,
    table: &'static str,
    slot_bytes: u64,
    limit: u64,
}

impl<'a> Magazines<'a> {
    /// Each magazine with the number of blocks that it holds.
    fn held(&self) -> impl Iterator<Item = (Row<'a>, u64)> + use<'a> {
        let field = |name| self.raw.field(self.table, name);
        let ends = field("head").zip(field("base"));
        let (slot_bytes, limit) = (self.slot_bytes.max(1), self.limit);
        let rows = self.raw.rows(self.table).into_iter().flatten();
        rows.map(move |row| {
            let ends = ends.and_then(|(head, base)| row.value(head, 0).zip(row.value(base, 0)));
            let blocks = match ends {
                // While a magazine is replaced, its two ends may belong to different magazines.
                None | Some((0, _)) => 0,
                Some((head, base)) => head.saturating_sub(base) / slot_bytes,
            };
            (row, if blocks > limit { 0 } else { blocks })
        })
    }
}

/// The tables of the classes' records, in the order of the classes' numbers: first the fixed
/// classes, then those that a program's own sizes have split off. Older libraries have only the
/// first table.
const CLASS_TABLES: [&str; 2] = ["class", "split_class"];

/// The size of the blocks of each class, by its number; 0: none, or not in use.
fn class_bytes(raw: &Raw) -> Vec<u64> {
    let of_table = |table: &&'static str| {
        let bytes = raw.field(table, "bytes");
        let rows = raw.rows(table)?;
        Some(rows.map(move |row| bytes.and_then(|bytes| row.value(bytes, 0)).unwrap_or(0)))
    };
    CLASS_TABLES.iter().filter_map(of_table).flatten().collect()
}

/// How many bins a class has beside its first. They follow each other class by class. If no thread
/// ever waited for a class, its further bins are not read.
fn more_each(raw: &Raw) -> usize {
    let count = |table| {
        let place = raw.directory.find(table);
        place.map_or(0, |place| raw.directory.tables[place].count as usize)
    };
    (count("more_bin") / count("bin").max(1)).max(1)
}

/// Every lock of every table that has one.
fn locks(raw: &Raw) -> Vec<LockFigures> {
    let classes = class_bytes(raw);
    let more_each = more_each(raw);
    let owners: Vec<u64> = raw
        .rows("private_heap")
        .map(|rows| rows.map(|row| row.get("generation").unwrap_or(0)).collect())
        .unwrap_or_default();
    let mut locks: Vec<LockFigures> = Vec::new();
    // The place of each class's first bin. The class's other bins, some thousand in all, are added
    // there.
    let mut first_of: Vec<Option<usize>> = vec![None; classes.len()];
    for table in LIST.tables.iter().filter(|table| table.lock) {
        let Some(rows) = raw.rows(&table.name) else {
            continue;
        };
        let is_bin = table.name == "bin" || table.name == "private_bin";
        let field = |name| raw.field(&table.name, name);
        let (taken, waited) = (field("lock_acquisitions"), field("lock_contentions"));
        let refused = field("lock_refusals");
        // Older libraries have a single lock.
        let has_shards = rows.clone().nth(1).is_some();
        for row in rows {
            // Record 0 of the bins belongs to no class. A class that is not in use is left out too.
            let class = classes.get(row.record.number as usize);
            if is_bin && (row.record.number == 0 || class == Some(&0)) {
                continue;
            }
            let value = |field: Option<&Field>| row.value(field?, 0);
            let Some(taken) = value(taken) else {
                continue;
            };
            if table.name == "more_bin" {
                let class = row.record.number as usize / more_each;
                let more = |field| value(field).unwrap_or(0);
                let first = first_of.get(class).copied().flatten();
                if let Some(lock) = first.map(|place| &mut locks[place]) {
                    lock.taken = lock.taken.saturating_add(taken);
                    lock.waited = lock.waited.saturating_add(more(waited));
                    lock.refused = lock.refused.saturating_add(more(refused));
                }
                continue;
            }
            let name = match class {
                Some(bytes) if is_bin => format!("class-{bytes}"),
                _ if table.name == "private_heap" => heap_lock(&row),
                _ if table.name == "page_shard" => format!("page-shard-{}", row.record.number),
                _ if table.name == "mixed" && has_shards => {
                    format!("mixed-{}", row.record.number)
                }
                _ => table.name.clone(),
            };
            if table.name == "bin" {
                if let Some(first) = first_of.get_mut(row.record.number as usize) {
                    *first = Some(locks.len());
                }
            }
            let heap = match table.name.as_str() {
                "bin" | "mixed" => Some(0),
                "private_heap" => row.get("generation"),
                "private_bin" => owners.get(row.record.parent).copied(),
                _ => None,
            };
            locks.push(LockFigures {
                name,
                heap,
                taken,
                waited: value(waited).unwrap_or(0),
                refused: value(refused).unwrap_or(0),
            });
        }
    }
    locks
}

/// A private heap's lock has the heap's name.
fn heap_lock(row: &Row<'_>) -> String {
    match row.text("name") {
        name if name.is_empty() => format!("heap-{}", row.get("generation").unwrap_or(0)),
        name => name,
    }
}

fn notes(raw: &Raw) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |tables: &[String], what: &str| {
        let mut names = tables.to_vec();
        names.sort();
        names.dedup();
        if !names.is_empty() {
            notes.push(format!("{what}: {}", loam_format::words::list(&names)));
        }
    };
    note(
        &raw.lost,
        "figures are missing or too low, because these tables could not be read whole",
    );
    note(
        &raw.torn,
        "figures may be of two moments, because these tables changed all the time while they were \
         read",
    );
    let known = |name: &str| LIST.tables.iter().any(|table| table.name == name);
    let counted = raw.directory.tables.iter();
    let counted = counted.filter(|table| !table.kind.is_detail());
    let unknown = counted.map(|table| &table.name);
    let unknown: Vec<String> = unknown.filter(|name| !known(name)).cloned().collect();
    note(
        &unknown,
        "this loam is older than the library and does not know these tables; the rest is shown",
    );
    let missing: Vec<String> = LIST
        .tables
        .iter()
        .filter(|table| !OPTIONAL.contains(&table.name.as_str()))
        .map(|table| &table.name)
        .filter(|name| raw.directory.find(name).is_none() && !raw.lost.contains(name))
        .cloned()
        .collect();
    note(
        &missing,
        "the library is older than this loam, and figures that need these tables are missing",
    );
    notes
}

/// Tables that a library may lack.
const OPTIONAL: [&str; 10] = [
    "commit_charge", // on Windows only
    "idle_mapping",
    "mixed",
    "more_bin",
    "split_class",
    "private_registry",
    "private_heap",
    "private_bin",
    "private_cache",
    "private_magazine",
];
