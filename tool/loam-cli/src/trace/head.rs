//! The first events of a trace, one in each line.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use loam_format::trace::{Event, Item, Wanted};
use loam_lab::replay::lineage;

use crate::exit::Exit;
use crate::output;

/// Prints the events.
pub fn run(trace: &Path, number: u64, process: Option<u32>) -> Result<Exit> {
    let wanted = Wanted {
        events: true,
        tables: false,
    };
    let mut items = lineage::open(trace, wanted)?;
    if let Some(process) = process {
        items = items.only(process);
    }
    let mut left = number;
    let mut text = String::new();
    if left > 0 {
        text += "process    number          seconds  thread  event\n";
    }
    while left > 0 {
        let Some(item) = items.next() else { break };
        let (stream, item) = item?;
        let Item::Event(number, record) = item else {
            continue;
        };
        let seconds = record.time as f64 * 1e-9;
        let event = describe(&record.event);
        writeln!(
            text,
            "{stream:>7} {number:>9} {seconds:>16.6} {:>7}  {event}",
            record.thread
        )?;
        left -= 1;
    }
    output::write_stdout(&text)?;
    for damage in items.damage() {
        output::print_warning(&damage.to_string());
    }
    Ok(Exit::Done)
}

/// An event in words.
fn describe(event: &Event) -> String {
    let pages = |touched: &Option<u64>| {
        touched.map_or_else(String::new, |pages| format!(", {pages} pages resident"))
    };
    match event {
        Event::Allocate {
            family,
            address,
            size,
            alignment,
        } => {
            let aligned = match alignment {
                0 => String::new(),
                bytes => format!(", aligned to {bytes}"),
            };
            match address {
                0 => format!("{} {size}{aligned} failed", family.name()),
                at => format!("{} {size}{aligned} -> {at:#x}", family.name()),
            }
        }
        Event::Free {
            family,
            address,
            size,
            touched,
        } => {
            let sized = if family.is_sized() {
                format!(", {size}")
            } else {
                String::new()
            };
            format!("{} {address:#x}{sized}{}", family.name(), pages(touched))
        }
        Event::ResizeFrom { address, touched } => {
            format!("resize {address:#x}{} ...", pages(touched))
        }
        Event::ResizeTo { address: 0, size } => format!("... resize to {size} failed"),
        Event::ResizeTo { address, size } => format!("... resized to {size} -> {address:#x}"),
        Event::Existing { address, size } => format!("lives already: {size} at {address:#x}"),
        Event::ThreadBegins => "thread begins".to_owned(),
        Event::ThreadEnds => "thread ends".to_owned(),
        Event::Fork { child: u32::MAX } => "fork".to_owned(),
        Event::Fork { child } => format!("fork: process {child}"),
        Event::Exec => "exec".to_owned(),
        Event::Dropped { count } => format!("{count} events not recorded"),
        Event::Trim { keep } => format!("malloc_trim({keep})"),
    }
}
