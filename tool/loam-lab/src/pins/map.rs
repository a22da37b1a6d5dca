//! The page with the map of a heap.

use std::collections::HashMap;

use loam_format::plain;
use loam_format::trace::Block;
use loam_format::units::{bytes, decimal, Unit};
use loam_process::glibc::GlibcError;
use loam_process::process::Identity;
use loam_process::symbols::Symbols;
use loam_report::html::is_made_by;
use loam_report::map::{Map, MapPage, Moment as Shown};
use maud::{html, Markup};

use super::cells::{Cells, Known, NAMED};
use super::pages::{Pages, PAGE};
use super::timeline::{self, Moment, Sums};
use super::{process, trace, By, Pins, PinsError};
use crate::replay::{lineage, Survey};
use crate::traces::stacks::{Key, Read};

const GENERATOR: &str = "loam map";
/// How many moments of a trace are shown, beside the moments of the largest figures. Chosen: a step
/// of the slider is 2 % of the time.
const MOMENTS: u64 = 48;
/// Rows of the table.
const ROWS: usize = 16;
/// Frames of a stack.
const FRAMES: usize = 12;

/// Whether these are the first bytes of one of our maps.
pub fn looks_like_map(head: &[u8]) -> bool {
    is_made_by(head, GENERATOR)
}

/// The map of a trace's process over its time, as a page.
pub fn map_of_trace(
    survey: &Survey,
    stream: u32,
    symbols: &mut Symbols,
) -> Result<String, PinsError> {
    let process = &survey.processes[&stream];
    let (first, last) = (process.first_time, process.last_time);
    let span = last.saturating_sub(first);
    let times: Vec<u64> = (1..MOMENTS)
        .map(|step| first + (u128::from(span) * u128::from(step) / u128::from(MOMENTS)) as u64)
        .collect();
    let timeline = timeline::of(survey, stream, &times)?;
    let read = |survey| Read::of(survey, &lineage::of(survey, stream));
    let pins = trace::at(
        survey,
        stream,
        timeline.worst,
        By::Size,
        read(survey)?,
        symbols,
    )?
    .pins;
    let read = read(survey)?;
    let mut moments: Vec<(u64, Moment, Option<&'static str>)> = Vec::new();
    moments.push((timeline.end.time, timeline.end, Some("the end")));
    moments.push((
        timeline.worst.time,
        timeline.worst,
        Some("sparse pages cost most"),
    ));
    moments.push((timeline.peak.time, timeline.peak, Some("most bytes lived")));
    for (time, moment) in times.iter().zip(&timeline.at) {
        moments.push((*time, *moment, None));
    }
    moments.sort_by_key(|(time, moment, mark)| (moment.acts, *time, mark.is_none()));
    // Moments between the same two events show the same blocks. One with a mark is kept before the
    // others; the end may be such a moment.
    moments.dedup_by(|next, kept| next.1.acts == kept.1.acts && next.2.is_none());

    let ranks: HashMap<Key, u8> = pins
        .rows
        .iter()
        .take(NAMED)
        .enumerate()
        .flat_map(|(rank, row)| row.keys.iter().map(move |key| (*key, rank as u8)))
        .collect();
    let mut cells = Cells::default();
    let acts: Vec<u64> = moments.iter().map(|(_, moment, _)| moment.acts).collect();
    timeline::snapshots(survey, stream, &acts, |snapshot| {
        cells.begin();
        let now = moments[snapshot.number].0;
        let known = |block: &Block| Known {
            size: block.size,
            age: now.saturating_sub(block.born),
            stack: read.as_ref().and_then(|read| {
                let key = read.stack(block, snapshot.begins)?;
                Some(ranks.get(&key).copied().unwrap_or(NAMED as u8))
            }),
        };
        let mut pages = Pages::default();
        for block in snapshot.blocks {
            pages.push(block.address, block.size, known(block), |page| {
                cells.page(page)
            });
        }
        pages.finish(|page| cells.page(page));
    })?;
    let shown = |(time, moment, mark): &(u64, Moment, Option<&'static str>)| Shown {
        seconds: Some(time.saturating_sub(first) as f64 * 1e-9),
        mark: *mark,
        text: text_of(*time - first.min(*time), moment, *mark),
        values: vec![moment.bytes, moment.sums.sparse_free_bytes()],
    };
    let stacks = read.as_ref().map(|_| stack_names(&pins));
    let mut map = cells.map(moments.iter().map(shown).collect(), stacks, true);
    map.curves = vec!["live bytes", "free bytes of sparse pages"];
    let is_worst = |(_, moment, _): &(u64, Moment, Option<&str>)| *moment == timeline.worst;
    map.first = moments.iter().position(is_worst).unwrap_or(0);
    let program = plain::line(&process.process.program).into_owned();
    let name = program.rsplit('/').next().unwrap_or(&program).to_owned();
    let above = html! {
        p {
            "What " code { (plain::line(&plain::command(&survey.header.command))) } " had in its \
                heap, recorded on the allocator "
            (plain::line(&process.process.allocator)) " over " (Unit::Nanoseconds.show(span as f64))
            ". " (EXPLAINED)
        }
    };
    let below = table(&pins, "when sparse pages cost most");
    Ok(page(&format!("Heap map of {name}"), &above, &below, &map))
}

const EXPLAINED: &str = "Memory goes back to the system page by page: a page with one live block \
                         stays. Pages follow each other by address; the gaps between them are left \
                         out.";

/// The map of a living process on glibc's malloc, as a page.
pub fn map_of_process(identity: &Identity) -> Result<String, GlibcError> {
    let (pins, cells) = process::with_cells(identity.key)?;
    let shown = Shown {
        seconds: None,
        mark: None,
        text: format!(
            "Its arenas have {} resident; {} of pages have no block. {}",
            bytes(pins.resident_bytes as f64),
            bytes(pins.empty_bytes as f64),
            words_of(&pins.pins.sums)
        ),
        values: Vec::new(),
    };
    let map = cells.map(vec![shown], None, false);
    let above = html! {
        p {
            "Process " (identity.key.pid) ", " code { (plain::line(&identity.command)) } ", on \
                glibc "
            (pins.glibc) "'s malloc, as it was when this map was made. " (EXPLAINED)
        }
    };
    let below = table(&pins.pins, "now");
    let title = format!("Heap map of {}", plain::line(&identity.name));
    Ok(page(&title, &above, &below, &map))
}

fn page(title: &str, above: &Markup, below: &Markup, map: &Map) -> String {
    let page = MapPage {
        generator: GENERATOR,
        version: loam_format::VERSION,
        title,
        above,
        below,
        map,
    };
    page.render().into_string()
}

fn text_of(after: u64, moment: &Moment, mark: Option<&str>) -> String {
    let mark = mark.map_or(String::new(), |mark| format!(" ({mark})"));
    format!(
        "After {}{mark}: {} blocks of {}. {}",
        Unit::Nanoseconds.show(after as f64),
        decimal(moment.blocks as f64),
        bytes(moment.bytes as f64),
        words_of(&moment.sums)
    )
}

fn words_of(sums: &Sums) -> String {
    format!(
        "Blocks keep {} of pages; {} of these are free, {} of that on sparse pages, which are less \
         than half live.",
        bytes((sums.pages * PAGE) as f64),
        bytes(sums.free_bytes() as f64),
        bytes(sums.sparse_free_bytes() as f64)
    )
}

/// A name for each stack with a colour: its innermost functions.
fn stack_names(pins: &Pins) -> Vec<String> {
    let rows = pins.rows.iter().take(NAMED);
    rows.map(|row| {
        let inner: Vec<String> = row
            .functions
            .iter()
            .rev()
            .take(2)
            .map(|name| loam_format::words::excerpt(&plain::line(name), 48))
            .collect();
        inner.join(", called by ")
    })
    .collect()
}

/// The table of the groups of blocks that keep sparse pages.
fn table(pins: &Pins, when: &str) -> Markup {
    let total = pins.total().max(1) as f64;
    let share = |amount: u64| Unit::Percent.show(amount as f64 / total);
    let show = |amount: u64| bytes(amount as f64);
    let is_sampled = pins.by == By::Stack;
    let whose = if is_sampled { "stack" } else { "blocks of" };
    let others = pins.rows.iter().skip(ROWS);
    let others: u64 = others.map(|row| row.shared_bytes).sum();
    let rest = [
        ("others", others),
        ("not sampled", pins.unknown_bytes),
        ("pages half live and more", pins.dense_bytes),
        ("all", pins.total()),
    ];
    html! {
        section id="whose" {
            h2 { "Whose blocks keep sparse pages, " (when) }
            p {
                "Blame is a page's free bytes, divided among its blocks; sole blame is of pages \
                 that no others keep. "
                "Rows sum to the free bytes of all pages that blocks keep."
                @if is_sampled {
                    " Stacks are known of a sample of blocks: the error is twice the standard \
                     error."
                }
            }
            div.scroll tabindex="0" role="region" aria-label="Whose blocks keep sparse pages" {
                table {
                    thead { tr {
                        th scope="col" { (whose) }
                        th.number scope="col" { "blame" }
                        @if is_sampled { th.number scope="col" { "error" } }
                        th.number scope="col" { "share" }
                        th.number scope="col" { "sole" }
                        th.number scope="col" { "blocks" }
                        @if is_sampled { th scope="col" { "called by" } }
                    } }
                    tbody {
                        @for (rank, row) in pins.rows.iter().take(ROWS).enumerate() {
                            @let names = &row.functions;
                            tr {
                                th scope="row" {
                                    @if is_sampled {
                                        i.swatch data-name=(rank.min(NAMED) + 1) {} " "
                                        (names.last().map_or("[not \
                                            known]".into(), |name| plain::line(name)))
                                    } @else { (row.name) }
                                }
                                td.number { (show(row.shared_bytes)) }
                                @if is_sampled { td.number { (show(row.error_bytes)) } }
                                td.number { (share(row.shared_bytes)) }
                                td.number { (show(row.sole_bytes)) }
                                td.number { (decimal(row.blocks as f64)) }
                                @if is_sampled {
                                    td {
                                        details {
                                            summary {
                                                (names.iter().rev().nth(1)
                                                    .map_or("-".into(), |name| plain::line(name)))
                                            }
                                            ol.stack {
                                                @for name in
                                                    names.iter().rev().skip(1).take(FRAMES) {
                                                    li { (plain::line(name)) }
                                                }
                                            }
                                        }
                                    }
                                }
                            }
                        }
                        @for (name, amount) in
                            rest.iter().filter(|(name, amount)| *amount > 0 || *name == "all") {
                            tr {
                                th scope="row" { (name) }
                                td.number { (show(*amount)) }
                                @if is_sampled { td {} }
                                td.number { (share(*amount)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
