//! The contents of a trace, for people.

use std::path::Path;

use anyhow::Result;

use loam_format::plain;
use loam_format::trace::{Ended, How, Mark};
use loam_format::units::{self, decimal, Unit};
use loam_format::words;
use loam_lab::replay::{ProcessSurvey, Survey};
use loam_lab::traces::contents::Contents;
use loam_lab::traces::stacks::{Stacks, Typed};
use loam_lab::traces::summary::Summary;
use loam_process::symbols::Symbols;
use loam_report::grid::Grid;
use loam_report::style::bold;
use loam_report::terminal;

use crate::exit::Exit;
use crate::output;

/// How many rows of a list are shown; the JSON has all.
const SHOWN: usize = 16;
/// How many stacks are shown, and how many frames of each.
const STACKS: usize = 5;
const FRAMES: usize = 12;
/// How many types of a stack are shown.
const TYPES: usize = 3;

/// Prints the contents.
pub fn run(trace: &Path, process: Option<u32>, json: bool) -> Result<Exit> {
    let contents = Contents::of(trace, process)?;
    let mut symbols = Symbols::default();
    let text = match json {
        true => serde_json::to_string_pretty(&contents.document(&mut symbols))? + "\n",
        false => as_text(&contents, &mut symbols),
    };
    output::write_stdout(&text)?;
    output::print_warnings(&symbols.doubts());
    let survey = &contents.survey;
    output::print_warnings(&survey.warnings(contents.summary.process));
    Ok(Exit::Done)
}

fn as_text(contents: &Contents, symbols: &mut Symbols) -> String {
    let (survey, summary, marks) = (&contents.survey, &contents.summary, &contents.marks);
    let bold = bold();
    let header = &survey.header;
    let events: u64 = survey
        .processes
        .values()
        .map(|process| process.events)
        .sum();
    let whence = match &header.origin {
        Some(origin) => format!(
            "imported from {} ({}), which lacks: {}",
            origin.file,
            origin.format,
            words::list(&origin.lost)
        ),
        None => format!(
            "{}\n  {}, {}, {} cores, {}",
            plain::line(&header.started),
            plain::line(&header.cpu),
            plain::line(&header.kernel),
            header.cores,
            Unit::Bytes.show(header.memory_bytes as f64),
        ),
    };
    let mut text = format!(
        "{bold}{}{bold:#}\n  {}\n  {}: {} events, {}\n\n",
        plain::line(&plain::command(&header.command)),
        plain::lines(&whence),
        Unit::Bytes.show(survey.bytes as f64),
        decimal(events as f64),
        units::bytes_an_event(survey.bytes, events),
    );
    text += &terminal::grid(&processes(survey));
    text += "\n";
    if !header.sampled.is_empty() {
        text += &format!(
            "Sampled: {}. The figures down to the stacks are those of the sample.\n\n",
            plain::line(&header.sampled)
        );
    }
    let process = &survey.processes[&summary.process];
    let seconds = summary.nanoseconds as f64 * 1e-9;
    let rate = |count: u64| match summary.nanoseconds {
        0 => "at once".to_owned(),
        _ => Unit::PerSecond.show(count as f64 / seconds),
    };
    let lines = [
        format!(
            "{bold}process {}{bold:#}: {}",
            summary.process,
            plain::line(&process.process.program)
        ),
        format!(
            "  recorded       {} on {}",
            Unit::Seconds.show(seconds),
            match process.process.allocator.as_str() {
                "" => "an allocator that is not known".into(),
                label => plain::line(label),
            }
        ),
        format!(
            "  allocations    {} ({}), {} in all",
            decimal(summary.allocations as f64),
            rate(summary.allocations),
            Unit::Bytes.show(summary.allocated_bytes as f64)
        ),
        format!(
            "  frees          {}, of which {} by another thread",
            decimal(summary.frees as f64),
            decimal(summary.frees_of_others as f64)
        ),
        format!(
            "  resizes        {}, of which {} moved",
            decimal(summary.resizes as f64),
            decimal(summary.moved as f64)
        ),
        format!(
            "  peak           {} in {} blocks, after {}",
            Unit::Bytes.show(summary.peak_bytes as f64),
            decimal(summary.peak_blocks as f64),
            Unit::Seconds.show(summary.peak_time.saturating_sub(process.first_time) as f64 * 1e-9)
        ),
        format!(
            "  at the end     {} in {} blocks",
            Unit::Bytes.show(summary.end_bytes as f64),
            decimal(summary.end_blocks as f64)
        ),
        resident(process),
    ];
    text += &(lines.join("\n") + "\n");
    for grid in [sizes(summary), lifetimes(summary), threads(summary)] {
        text += &(String::from("\n") + &terminal::grid(&grid));
    }
    if !marks.is_empty() {
        text += &(String::from("\n") + &terminal::grid(&named(marks, process)));
    }
    if let Some(stacks) = &contents.stacks {
        text += &(String::from("\n") + &heaviest(stacks, header.weighted, symbols));
    }
    text + &wrong(summary, survey)
}

/// The moments that the program marked with a name.
fn named(marks: &[Mark], process: &ProcessSurvey) -> Grid {
    let reading = format!("{} moments that the program named.", marks.len());
    let mut grid = Grid::new("Marks", &reading, &["after", "thread", "name"]);
    for mark in marks.iter().take(SHOWN) {
        let after = mark.time.saturating_sub(process.first_time) as f64 * 1e-9;
        grid.rows.push(vec![
            Unit::Seconds.show(after),
            mark.thread.to_string(),
            plain::line(&mark.name).into_owned(),
        ]);
    }
    grid
}

/// What the blocks of a stack are that lived at the end, if the recording looked: a line.
fn stays(types: &[Typed]) -> String {
    let all: f64 = types.iter().map(|one| one.bytes).sum();
    if all < 1.0 {
        return String::new();
    }
    let amounts = types.iter().map(|one| (one.name.as_str(), one.bytes));
    let shown = units::shares(amounts, all, TYPES);
    format!("  {} live at the end: {shown}\n", Unit::Bytes.show(all))
}

/// The stacks with the most bytes at the peak.
fn heaviest(stacks: &Stacks, is_weighted: bool, symbols: &mut Symbols) -> String {
    let show = |bytes: f64| Unit::Bytes.show(bytes);
    let (allocated, peak) = stacks.total();
    // Of a sample the file has the blocks, and not the times in which nobody looked.
    let (chosen, error) = match is_weighted {
        true => (
            "Stacks of the sample".to_owned(),
            "the error is that of choosing these blocks. The times between the looks add to it: \
             what\n  `loam record` printed has both.",
        ),
        false => (
            format!("A stack for each {} requested", show(stacks.mean as f64)),
            "the error is twice the standard error.",
        ),
    };
    let mut text = format!(
        "{}Stacks{:#}\n  {chosen}: {} blocks. Estimates; {error}\n",
        bold(),
        bold(),
        decimal(allocated.samples as f64),
    );
    text += &format!(
        "  All: {} +- {} at the peak, {} +- {} in all\n",
        show(peak.bytes),
        show(peak.error()),
        show(allocated.bytes),
        show(allocated.error()),
    );
    for site in stacks.sites.iter().take(STACKS) {
        text += &format!(
            "\n  {} +- {} at the peak, {} +- {} in all\n",
            show(site.peak.bytes),
            show(site.peak.error()),
            show(site.allocated.bytes),
            show(site.allocated.error()),
        );
        text += &stays(&site.types);
        let names = stacks.names(site, symbols);
        let shown = names.iter().rev().take(FRAMES);
        text += &shown
            .map(|name| format!("    {}\n", plain::line(name)))
            .collect::<String>();
        if names.len() > FRAMES {
            text += &format!("    ... {} more\n", names.len() - FRAMES);
        }
    }
    text
}

fn resident(process: &ProcessSurvey) -> String {
    let peak = process
        .samples
        .iter()
        .filter_map(|sample| sample.resident_heap)
        .max();
    // A short program has few samples, and its largest heap lies between them.
    let heap = peak.map_or("not known".to_owned(), |bytes| {
        format!("{} of heap", Unit::Bytes.show(bytes as f64))
    });
    format!(
        "  resident       {heap} in the largest of {}",
        words::count(process.sample_count as usize, "sample")
    )
}

fn processes(survey: &Survey) -> Grid {
    let mut grid = Grid::new(
        "Processes",
        "Each start, fork and exec is one; `loam trace info --process N` shows another one.",
        &[
            "number", "pid", "began", "events", "threads", "ended", "program",
        ],
    );
    let mut busiest: Vec<_> = survey.processes.iter().collect();
    busiest.sort_by_key(|(_, process)| std::cmp::Reverse(process.events));
    for (stream, process) in busiest.into_iter().take(SHOWN) {
        let how = match process.process.how {
            How::Start => "start".to_owned(),
            How::Attach => "attach".to_owned(),
            How::Fork => format!("fork of {}", parent(process)),
            How::Exec => format!("exec of {}", parent(process)),
        };
        let ended = match process.end.as_ref().map(|end| end.ended) {
            None => "cut off".to_owned(),
            Some(Ended::Code(code)) => format!("code {code}"),
            Some(Ended::Signal(signal)) => format!("signal {signal}"),
            Some(Ended::Exec) => "exec".to_owned(),
            Some(Ended::Running) => "runs on".to_owned(),
            Some(Ended::Unknown) => "-".to_owned(),
        };
        grid.rows.push(vec![
            stream.to_string(),
            process.process.pid.to_string(),
            how,
            decimal(process.events as f64),
            process.threads.to_string(),
            ended,
            plain::line(&process.process.program).into_owned(),
        ]);
    }
    grid
}

fn parent(process: &ProcessSurvey) -> String {
    process
        .process
        .parent
        .map_or("-".to_owned(), |parent| parent.to_string())
}

fn sizes(summary: &Summary) -> Grid {
    let mut grid = Grid::new(
        "Sizes",
        "Those that had most bytes at the peak.",
        &[
            "up to",
            "allocations",
            "bytes in all",
            "blocks at the peak",
            "bytes at the peak",
        ],
    );
    let mut classes = summary.sizes.clone();
    classes.sort_by_key(|class| std::cmp::Reverse((class.peak_bytes, class.allocated_bytes)));
    classes.truncate(SHOWN);
    for class in classes {
        grid.rows.push(vec![
            Unit::Bytes.show(class.up_to as f64),
            decimal(class.allocations as f64),
            Unit::Bytes.show(class.allocated_bytes as f64),
            decimal(class.peak_blocks as f64),
            Unit::Bytes.show(class.peak_bytes as f64),
        ]);
    }
    grid
}

fn lifetimes(summary: &Summary) -> Grid {
    let mut grid = Grid::new(
        "Lifetimes",
        "From the allocation to the free.",
        &["up to", "blocks", "bytes"],
    );
    for life in &summary.lifetimes {
        grid.rows.push(vec![
            life.up_to_ns.map_or("to the end".to_owned(), |ns| {
                Unit::Nanoseconds.show(ns as f64)
            }),
            decimal(life.blocks as f64),
            Unit::Bytes.show(life.bytes as f64),
        ]);
    }
    grid
}

fn threads(summary: &Summary) -> Grid {
    let shown = summary.threads.len().min(SHOWN);
    let reading = format!("{shown} of {}, the busiest.", summary.thread_count);
    let mut grid = Grid::new(
        "Threads",
        &reading,
        &[
            "thread",
            "allocations",
            "bytes",
            "frees",
            "of other threads' blocks",
        ],
    );
    for thread in &summary.threads[..shown] {
        grid.rows.push(vec![
            thread.thread.to_string(),
            decimal(thread.allocations as f64),
            Unit::Bytes.show(thread.bytes as f64),
            decimal(thread.frees as f64),
            decimal(thread.frees_of_others as f64),
        ]);
    }
    grid
}

fn wrong(summary: &Summary, survey: &Survey) -> String {
    let repairs = &summary.repairs;
    let doubtful =
        repairs.unknown_frees + repairs.allocations_over_live + repairs.dropped + survey.missing;
    match doubtful {
        0 => String::new(),
        count => {
            format!("\n{count} events do not fit or are missing: `loam trace check` says which.\n")
        }
    }
}
