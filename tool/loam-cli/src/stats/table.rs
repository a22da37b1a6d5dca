//! `loam stats --all`: a line for each process, the largest first.

use std::cmp::Reverse;

use loam_counters::account::Share;
use loam_counters::view::View;
use loam_format::units::bytes;
use loam_format::words;

use crate::stats::text;

/// Columns for a process's name: as many as the longest name that the kernel keeps. The table then
/// has at most 80 columns.
const NAME_SHOWN: usize = 15;

/// The figures of a process in its line.
#[derive(Debug)]
pub struct Row {
    name: String,
    pid: i32,
    heap: String,
    resident: u64,
    proportional: u64,
    peak: u64,
    threads: u64,
    /// Live bytes that are resident, and the bytes that the heap holds beyond them. Loam reports
    /// them, and so do some peers.
    on_loam: Option<(u64, u64)>,
}

impl Row {
    /// The line of a process.
    pub fn of(view: &View) -> Row {
        let heap = match (view.snapshot(), &view.allocator) {
            (Some(snapshot), _) => snapshot.family(),
            (None, Some(allocator)) => allocator.short(),
            (None, None) => "unknown",
        };
        let account = &view.account;
        Row {
            name: words::excerpt(&view.identity.name, NAME_SHOWN),
            pid: view.identity.key.pid,
            heap: heap.to_owned(),
            resident: account.resident,
            proportional: view.residence.proportional,
            peak: view.outline.peak_resident,
            threads: view.outline.threads,
            on_loam: view
                .snapshot()
                .filter(|snapshot| snapshot.is_accounted())
                .map(|_| (account.bytes(Share::Live), account.heap_overhead())),
        }
    }
}

/// The table, with the sum of resident bytes, in which shared pages count once.
pub fn render(mut rows: Vec<Row>) -> String {
    rows.sort_by_key(|row| (Reverse(row.resident), row.pid));
    let columns = ["PID", "RESIDENT", "PEAK", "LIVE", "OVERHEAD", "THR", "HEAP"];
    let mut table = text::sheet(&columns, "NAME");
    for row in &rows {
        let known = |value: Option<u64>| value.map_or("-".to_owned(), |value| bytes(value as f64));
        text::row(
            &mut table,
            &row.name,
            [
                row.pid.to_string(),
                bytes(row.resident as f64),
                bytes(row.peak as f64),
                known(row.on_loam.map(|(live, _)| live)),
                known(row.on_loam.map(|(_, overhead)| overhead)),
                row.threads.to_string(),
                row.heap.clone(),
            ],
        );
    }
    let proportional: u64 = rows.iter().map(|row| row.proportional).sum();
    let mut text = text::lines(&table);
    text += &format!(
        "\n{}; {} resident with shared pages divided.\n",
        words::count_of(rows.len(), "process", "processes"),
        bytes(proportional as f64)
    );
    if rows.iter().any(|row| row.on_loam.is_none()) {
        text += "\"-\": only programs on Loam say what is live in them. One process in full: loam \
                 stats PID\n";
    }
    text
}
