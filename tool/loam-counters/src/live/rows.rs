//! The tables as text, the same on the screen and in a batch.

use loam_format::counters::ids;
use loam_format::plain;
use loam_format::units::{bytes, decimal};
use loam_report::columns;

use super::state::{Meaning, Place, Sheet, State};
use crate::snapshot::{ClassFigures, HeapFigures};
use crate::watch::rates::{self, HitRate};
use crate::watch::sampler::Sample;
use crate::Snapshot;

/// A column: its heading, its width, and whether it is text, which is aligned on the left.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// The heading.
    pub heading: &'static str,
    /// The width.
    pub width: usize,
    /// Whether it is text.
    pub is_text: bool,
}

/// A row: its cells, its meaning, and whether it is less important.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// Its cells.
    pub cells: Vec<String>,
    /// Its meaning.
    pub meaning: Meaning,
    /// Whether it is less important.
    pub dim: bool,
}

/// A table with rows that fit in 80 columns.
#[derive(Debug, Clone, Default)]
pub struct Sheets {
    /// What it is of.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<TableRow>,
}

const fn text(heading: &'static str, width: usize) -> Column {
    Column {
        heading,
        width,
        is_text: true,
    }
}

const fn figure(heading: &'static str, width: usize) -> Column {
    Column {
        heading,
        width,
        is_text: false,
    }
}

impl Sheets {
    /// One line, with a blank between columns. The first text column takes the remaining room.
    pub fn line(&self, cells: &[String], width: usize) -> String {
        let taken: usize = self.columns.iter().map(|column| column.width + 1).sum();
        let spare = width.saturating_sub(taken);
        let mut line = String::new();
        let mut spare = Some(spare);
        for (column, cell) in self.columns.iter().zip(cells) {
            let room = column.width
                + if column.is_text {
                    spare.take().unwrap_or(0)
                } else {
                    0
                };
            let cell = plain::line(cell);
            line += &match column.is_text {
                true => columns::left(&cell, room),
                false => columns::right(&cell, room),
            };
            line.push(' ');
        }
        line.pop();
        line
    }

    /// The headings' line.
    pub fn headings(&self, width: usize) -> String {
        let cells: Vec<String> = self
            .columns
            .iter()
            .map(|column| column.heading.to_owned())
            .collect();
        self.line(&cells, width)
    }
}

fn known(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn percent(value: f64) -> String {
    format!("{:.1}", 100.0 * value)
}

/// `+1.20 MiB`
pub fn signed_bytes(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "+" };
    if value.abs() < 0.5 {
        "0".to_owned()
    } else {
        format!("{sign}{}", bytes(value.abs()))
    }
}

/// The table of the present place.
pub fn of(state: &State) -> Sheets {
    let snapshot = |key| state.sample(key).and_then(Sample::snapshot);
    match state.place() {
        Place::Processes => processes(state),
        Place::Process(key, sheet) => match (snapshot(key), sheet) {
            (None, _) => Sheets::default(),
            (Some(found), Sheet::Heaps) => heaps(found),
            (Some(found), Sheet::Classes) => classes(found, None),
            (Some(found), Sheet::Locks) => locks(state, found),
        },
        Place::Heap(key, number) => {
            snapshot(key).map_or_else(Sheets::default, |found| classes(found, Some(number)))
        }
        Place::Class(..) => Sheets::default(),
    }
}

/// A lower bound is rounded down, so that nothing is said to be above the whole.
fn hit_rate(hits: HitRate) -> String {
    match hits.is_exact {
        true => percent(hits.share),
        false => format!(">{}", percent((1000.0 * hits.share).floor() / 1000.0)),
    }
}

/// One row for each process.
pub fn processes(state: &State) -> Sheets {
    let columns = vec![
        figure("PID", 7),
        text("NAME", 13),
        figure("RESIDENT", 8),
        figure("LIVE", 8),
        figure("FREE%", 5),
        figure("CACHED", 8),
        figure("GROWTH/S", 9),
        figure("WAITS/S", 7),
        figure("HITS%", 6),
    ];
    let rows = state.processes().into_iter().map(|sample| {
        let values = sample.snapshot().map(|snapshot| &snapshot.process);
        let value = |id: &str| values.and_then(|values| values.real(id));
        let before = state.before(sample.identity.key);
        let hits = before.and_then(|before| rates::cache_hits(before, sample));
        let hits = hits.map_or_else(|| "-".to_owned(), hit_rate);
        TableRow {
            cells: vec![
                sample.identity.key.pid.to_string(),
                sample.identity.name.clone(),
                bytes(sample.outline.resident as f64),
                known(value(ids::LIVE_BYTES), bytes),
                known(value(ids::FREE_RATIO), percent),
                known(value(ids::CACHED_BYTES), bytes),
                known(state.growth(sample), signed_bytes),
                known(state.rate(sample, ids::LOCK_CONTENTIONS), decimal_short),
                hits,
            ],
            meaning: Meaning::Process(sample.identity.key),
            dim: values.is_none(),
        }
    });
    Sheets {
        title: "processes".to_owned(),
        columns,
        rows: rows.collect(),
    }
}

/// A rate with at most one digit after the point.
fn decimal_short(value: f64) -> String {
    if value < 10.0 && value > 0.0 {
        format!("{value:.1}")
    } else {
        decimal(value.round())
    }
}

fn heaps(snapshot: &Snapshot) -> Sheets {
    let columns = vec![
        text("HEAP", 18),
        figure("LIVE", 9),
        figure("BLOCKS", 8),
        figure("CACHED", 9),
        figure("FREE", 9),
        figure("SPANS", 7),
        figure("WAITED", 8),
    ];
    let mut heaps: Vec<&HeapFigures> = snapshot.heaps.iter().collect();
    heaps.sort_by_key(|heap| std::cmp::Reverse(heap.values.whole(ids::USED_BYTES)));
    let rows = heaps.into_iter().map(|heap| {
        let value = |id: &str| heap.values.real(id);
        TableRow {
            cells: vec![
                heap.label(),
                known(value(ids::LIVE_BYTES), bytes),
                known(value(ids::LIVE_BLOCKS), decimal),
                known(value(ids::CACHED_BYTES), bytes),
                known(value(ids::SPAN_FREE_BYTES), bytes),
                known(value(ids::SPANS), decimal),
                known(value(ids::LOCK_CONTENTIONS), decimal),
            ],
            meaning: Meaning::Heap(heap.number),
            dim: false,
        }
    });
    Sheets {
        title: "heaps by size (Enter: its classes)".to_owned(),
        columns,
        rows: rows.collect(),
    }
}

fn classes(snapshot: &Snapshot, only: Option<u64>) -> Sheets {
    let columns = vec![
        text("CLASS", 18),
        figure("LIVE", 9),
        figure("BLOCKS", 8),
        figure("CACHED", 7),
        figure("FREE", 8),
        figure("WASTE", 9),
        figure("WAITED", 8),
    ];
    let several = only.is_none() && snapshot.heaps.len() > 1;
    let mut found: Vec<(&HeapFigures, &ClassFigures)> = snapshot
        .heaps
        .iter()
        .filter(|heap| only.is_none_or(|number| number == heap.number))
        .flat_map(|heap| heap.classes.iter().map(move |class| (heap, class)))
        .collect();
    found.sort_by_key(|(_, class)| std::cmp::Reverse(class.waste()));
    let rows = found.into_iter().map(|(heap, class)| {
        let value = |id: &str| class.values.real(id);
        let size = bytes(class.block_bytes as f64);
        TableRow {
            cells: vec![
                if several {
                    format!("{size} of {}", heap.label())
                } else {
                    size
                },
                bytes(class.live_bytes() as f64),
                known(value(ids::CLASS_LIVE_BLOCKS), decimal),
                known(value(ids::CLASS_CACHED_BLOCKS), decimal),
                known(value(ids::CLASS_FREE_BLOCKS), decimal),
                bytes(class.waste() as f64),
                known(value(ids::CLASS_LOCK_CONTENTIONS), decimal),
            ],
            meaning: Meaning::Class(heap.number, class.block_bytes),
            dim: class.values.whole(ids::CLASS_SPANS) == 0,
        }
    });
    Sheets {
        title: "size classes by waste (Enter: one of them)".to_owned(),
        columns,
        rows: rows.collect(),
    }
}

fn locks(state: &State, snapshot: &Snapshot) -> Sheets {
    let columns = vec![
        text("LOCK", 20),
        figure("WAITS/S", 9),
        figure("WAITED", 10),
        figure("TAKEN", 10),
        figure("WAITED%", 8),
        figure("AVOIDED", 10),
    ];
    let key = state.focused();
    let before = key.and_then(|key| state.before(key));
    let now = key.and_then(|key| state.sample(key));
    let all = snapshot.locks.iter().enumerate();
    let mut found: Vec<_> = all.filter(|(_, lock)| !lock.is_unused()).collect();
    found.sort_by_key(|(_, lock)| std::cmp::Reverse((lock.waited, lock.taken)));
    let rows = found.into_iter().map(|(place, lock)| {
        let waited = |sample: &Sample| {
            // The order of locks changes when heaps are made or removed.
            let known = sample.snapshot()?.locks.get(place)?;
            (known.name == lock.name && known.heap == lock.heap).then_some(known.waited as f64)
        };
        let rate = before
            .zip(now)
            .and_then(|(before, now)| rates::per_second(before, now, waited));
        TableRow {
            cells: vec![
                lock.name.clone(),
                known(rate, decimal_short),
                decimal(lock.waited as f64),
                decimal(lock.taken as f64),
                percent(lock.waited as f64 / lock.taken.max(1) as f64),
                decimal(lock.refused as f64),
            ],
            meaning: Meaning::Lock,
            dim: lock.waited == 0,
        }
    });
    Sheets {
        title: "locks by how often they were waited for".to_owned(),
        columns,
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rate_of_hits_is_told_to_be_above_100_percent() {
        let told = |share, is_exact| hit_rate(HitRate { share, is_exact });
        assert_eq!(told(1.0, true), "100.0");
        assert_eq!(told(0.99999, false), ">99.9");
        assert_eq!(told(0.875, false), ">87.5");
    }
}
