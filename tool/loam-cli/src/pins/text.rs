//! What `loam pins` prints for people.

use loam_counters::kept::Kept;
use loam_format::plain;
use loam_format::units::{bytes, decimal, Unit};
use loam_lab::pins::pages::PAGE;
use loam_lab::pins::{By, Pins, ProcessPins, Row, TracePins, When};
use loam_lab::replay::Survey;
use loam_process::process::Identity;
use loam_report::columns;
use loam_report::grid::Grid;
use loam_report::style::{bold, dim};
use loam_report::terminal;

/// Columns of a page for reading.
const WIDTH: usize = 100;
/// Frames of a stack that are shown.
const FRAMES: usize = 8;

fn show(amount: u64) -> String {
    bytes(amount as f64)
}

fn paragraph(text: &str) -> String {
    columns::wrap(text, WIDTH).join("\n") + "\n"
}

/// The page of a trace's moment.
pub fn of_trace(survey: &Survey, found: &TracePins, when: When, top: usize) -> String {
    let (moment, pins) = (&found.moment, &found.pins);
    let process = &survey.processes[&found.process];
    let after = moment.time.saturating_sub(found.span.0) as f64 * 1e-9;
    let why = match when {
        When::Worst => ", when sparse pages cost most",
        When::Peak => ", when most bytes lived",
        When::End => ", its end",
        When::At(_) => "",
    };
    let (bold, name) = (bold(), plain::line(&process.process.program).into_owned());
    let mut text = format!(
        "{bold}{}{bold:#}, process {} of the trace, after {}{why}\n",
        name.rsplit('/').next().unwrap_or(&name),
        found.process,
        Unit::Seconds.show(after),
    );
    text += &paragraph(&format!(
        "{} blocks of {} keep {} of pages. {} of these pages are free, {} of that on sparse pages, \
         which are less than half live.",
        decimal(moment.blocks as f64),
        show(moment.bytes),
        show(pins.sums.pages * PAGE),
        show(pins.sums.free_bytes()),
        show(pins.sums.sparse_free_bytes()),
    ));
    if let Some((resident, at)) = found.resident_heap {
        let apart = at.abs_diff(moment.time) as f64 * 1e-9;
        text += &paragraph(&format!(
            "The heap had {} resident, seen {} {} that: what it has beyond those pages is of pages \
             without a live block.",
            show(resident),
            Unit::Seconds.show(apart),
            if at > moment.time { "after" } else { "before" },
        ));
    }
    text += &table(pins, top, found.stack_bytes.is_some());
    if let Some(mean) = found.stack_bytes {
        text += &stacks(pins, top);
        text += &sampling(pins, mean);
    }
    text
}

fn table(pins: &Pins, top: usize, is_sampled: bool) -> String {
    let whose = match pins.by {
        By::Stack => "stack",
        By::Size => "blocks of",
        By::Age => "blocks that lived",
        By::Thread => "blocks of",
    };
    let reading = "blame: free bytes of sparse pages, divided among the blocks of each; sole: of \
                   pages that no others keep";
    let mut head = vec![
        whose, "blame", "+-", "share", "sole", "blocks", "live", "size", "age",
    ];
    if !is_sampled {
        head.retain(|name| *name != "+-");
    }
    let has_ages = pins.rows.iter().any(|row| row.age.is_some());
    if !has_ages {
        head.pop();
    }
    let mut grid = Grid::new("Whose blocks keep sparse pages", reading, &head);
    let total = pins.total();
    let share = |amount: u64| Unit::Percent.show(amount as f64 / total.max(1) as f64);
    let rest = |name: &str, amount: u64| {
        let mut cells = vec![name.to_owned(), show(amount), String::new(), share(amount)];
        cells.resize(9, String::new());
        if !is_sampled {
            cells.remove(2);
        }
        cells.truncate(head.len());
        cells
    };
    for (number, row) in pins.rows.iter().take(top).enumerate() {
        let name = match pins.by {
            By::Stack => format!("{}", number + 1),
            _ => row.name.clone(),
        };
        let mut cells = vec![
            name,
            show(row.shared_bytes),
            show(row.error_bytes),
            share(row.shared_bytes),
            show(row.sole_bytes),
            decimal(row.blocks as f64),
            show(row.live_bytes),
            sizes(row),
            row.age
                .map_or(String::new(), |age| Unit::Nanoseconds.show(age as f64)),
        ];
        if !is_sampled {
            cells.remove(2);
        }
        cells.truncate(head.len());
        grid.rows.push(cells);
    }
    let others = pins.rows.iter().skip(top);
    let (count, amount) = others.fold((0, 0), |(count, amount), row| {
        (count + 1, amount + row.shared_bytes)
    });
    if count > 0 {
        grid.rows.push(rest(&format!("{count} more"), amount));
    }
    if pins.unknown_bytes > 0 {
        grid.rows.push(rest("not sampled", pins.unknown_bytes));
    }
    grid.rows
        .push(rest("pages half live and more", pins.dense_bytes));
    grid.rows.push(rest("all", total));
    terminal::grid(&grid)
}

fn sizes(row: &Row) -> String {
    match row.smallest == row.largest {
        true => show(row.smallest),
        false => format!("{} to {}", show(row.smallest), show(row.largest)),
    }
}

fn stacks(pins: &Pins, top: usize) -> String {
    let dim = dim();
    let mut text = String::new();
    for (number, row) in pins.rows.iter().take(top).enumerate() {
        let names = &row.functions;
        text += &format!("\nStack {}\n", number + 1);
        for name in names.iter().rev().take(FRAMES) {
            text += &format!("  {}\n", columns::cut(&plain::line(name), WIDTH - 2));
        }
        if names.len() > FRAMES {
            text += &format!(
                "  {dim}... {} more, which --json has{dim:#}\n",
                names.len() - FRAMES
            );
        }
    }
    text
}

/// How far the figures can be trusted, and what makes them better.
fn sampling(pins: &Pins, mean: u64) -> String {
    let samples: u64 = pins.rows.iter().filter_map(|row| row.samples).sum();
    if pins.unknown_bytes == 0 && pins.rows.iter().all(|row| row.error_bytes == 0) {
        return String::from("\n") + &paragraph("Stacks are known of all blocks of sparse pages.");
    }
    let mut text = format!(
        "Stacks are known of a sample, {} blocks of sparse pages, one for each {} requested; the \
         error is twice the standard error.",
        decimal(samples as f64),
        show(mean)
    );
    if pins.sole_unknown_bytes > 0 {
        text += &format!(
            " Sole blame is of at least so much: {} are free on pages of several blocks of which \
             not all stacks are known.",
            show(pins.sole_unknown_bytes)
        );
    }
    let first = pins.rows.first();
    let is_coarse = first.is_some_and(|row| row.error_bytes * 4 > row.shared_bytes);
    if is_coarse || pins.unknown_bytes * 4 > pins.total() {
        text +=
            " That is coarse here: record with a smaller distance (`--stacks=4K`; `--stacks=1` \
                 knows all).";
    }
    String::from("\n") + &paragraph(&text)
}

/// The page of a process on glibc's malloc.
pub fn of_glibc(identity: &Identity, found: &ProcessPins, top: usize) -> String {
    let (bold, pins) = (bold(), &found.pins);
    let mut text = format!(
        "{bold}{}{bold:#} ({}), on glibc {}'s malloc\n",
        identity.name, identity.key.pid, found.glibc
    );
    text += &paragraph(&format!(
        "Its arenas have {} resident. {} of that are pages that blocks keep, {} pages without a \
         block. Of the pages with blocks {} are free, {} of that on sparse pages, which are less \
         than half live.",
        show(found.resident_bytes),
        show(pins.sums.pages * PAGE),
        show(found.empty_bytes),
        show(pins.sums.free_bytes()),
        show(pins.sums.sparse_free_bytes()),
    ));
    text += &table(pins, top, false);
    let mut notes = Vec::new();
    if found.cached_bytes > 0 {
        notes.push(format!(
            "{} of freed blocks in threads' caches count as blocks.",
            show(found.cached_bytes)
        ));
    }
    if found.mapped_bytes > 0 {
        notes.push(format!(
            "Blocks that are mappings of their own ({} resident) keep no page of others.",
            show(found.mapped_bytes)
        ));
    }
    notes.extend(
        found
            .problems
            .iter()
            .map(|problem| format!("Not seen: {problem}.")),
    );
    notes.push(
        "Whose they are, a trace says: `loam record --stacks=16K -- COMMAND`, then `loam pins`."
            .to_owned(),
    );
    text + "\n" + &paragraph(&notes.join(" "))
}

/// The page of a process on Loam.
pub fn of_loam(identity: &Identity, kept: &Kept, top: usize) -> String {
    let bold = bold();
    let mut text = format!(
        "{bold}{}{bold:#} ({}), on Loam\n",
        identity.name, identity.key.pid
    );
    text += &paragraph(&format!(
        "{} are free on pages that live blocks keep, by its counters; {} more are freed blocks in \
         threads' caches.",
        show(kept.free_bytes),
        show(kept.cached_bytes)
    ));
    let reading = "free: in backed pages of the class's spans";
    let head = ["blocks of", "free", "share", "live blocks", "live", "spans"];
    let mut grid = Grid::new("Which size classes keep free memory", reading, &head);
    let share = |amount: u64| Unit::Percent.show(amount as f64 / kept.free_bytes.max(1) as f64);
    let rest = |name: &str, amount: u64| {
        let mut cells = vec![name.to_owned(), show(amount), share(amount)];
        cells.resize(head.len(), String::new());
        cells
    };
    for class in kept.classes.iter().take(top) {
        grid.rows.push(vec![
            show(class.block_bytes),
            show(class.free_bytes),
            share(class.free_bytes),
            decimal(class.live_blocks as f64),
            show(class.live_bytes),
            decimal(class.spans as f64),
        ]);
    }
    let others = kept
        .classes
        .iter()
        .skip(top)
        .map(|class| class.free_bytes)
        .sum();
    grid.rows.push(rest("other classes", others));
    grid.rows.push(rest("mixed spans", kept.mixed_bytes));
    grid.rows.push(rest("all", kept.free_bytes));
    text += &terminal::grid(&grid);
    text + "\n"
        + &paragraph(
            "Whose blocks they are, a trace says: `loam record --stacks=16K -- COMMAND`, \
                      then `loam pins`.",
        )
}
