//! A trace's stacks as a page with a flame graph. The page says which trace, which process and
//! which bytes it shows, and has the largest call paths as a table too.

use anyhow::{bail, Result};
use maud::{html, Markup};

use loam_format::plain;
use loam_format::units::bytes;
use loam_lab::replay::Survey;
use loam_lab::traces::of::Of;
use loam_lab::traces::paths;
use loam_lab::traces::stacks::{Estimate, Site, Stacks};
use loam_process::symbols::Symbols;
use loam_report::flame::{FlamePage, Stack};

/// Call paths in the table, and functions of each.
const PATHS: usize = 40;
const FUNCTIONS: usize = 12;

/// The page for the stacks of a process.
pub fn page(
    survey: &Survey,
    stream: u32,
    stacks: &Stacks,
    of: Of,
    symbols: &mut Symbols,
) -> Result<String> {
    let process = &survey.processes[&stream].process;
    let program = match process.program.rsplit('/').next() {
        Some("") | None => "the program",
        Some(name) => name,
    };
    let program = plain::line(program);
    let drawn: Vec<Stack> = stacks
        .sites
        .iter()
        .map(|site| {
            let names = stacks.names(site, symbols).into_iter();
            let names = names.map(|name| plain::line(&name).into_owned()).collect();
            (names, of.estimate(site).bytes)
        })
        .collect();
    let total = stacks.sites.iter().fold(Estimate::default(), |sum, site| {
        sum.plus(&of.estimate(site), 1.0)
    });
    let title = format!("{program}: bytes {}, by call path", of.text());
    let below = table(stacks, of, symbols, total.bytes);
    let page = FlamePage {
        generator: "loam trace",
        version: loam_format::VERSION,
        title: &title,
        above: &facts(survey, stream, &total, of),
        below: &below,
        stacks: &drawn,
    };
    match page.render() {
        Some(page) => Ok(page.into_string()),
        None => bail!(
            "no bytes of process {stream} of {} are {}, so there is nothing to draw; --of can \
             count others",
            plain::path(&survey.path),
            of.text()
        ),
    }
}

fn facts(survey: &Survey, stream: u32, total: &Estimate, of: Of) -> Markup {
    let process = &survey.processes[&stream];
    let header = &survey.header;
    let words = process.process.arguments.join(" ");
    let command = match words.as_str() {
        "" => &process.process.program,
        words => words,
    };
    let command: String = command.chars().take(400).collect();
    let spans = match (header.sampled.as_str(), header.stack_bytes) {
        ("", 0 | 1) => "whole: all blocks are counted".to_owned(),
        ("", mean) => format!(
            "sampled: one stack for each {} that were requested, on average",
            bytes(mean as f64)
        ),
        (text, _) => format!("sampled: {}", plain::line(text)),
    };
    let error = match total.error() {
        error if error >= 1.0 => format!(" +- {} (two standard errors)", bytes(error)),
        _ => String::new(),
    };
    let seconds = process.last_time.saturating_sub(process.first_time) as f64 * 1e-9;
    html! {
        dl.facts {
            div { dt { "Trace" } dd {
                (plain::path(&survey.path)) ", recorded " (plain::line(&header.started))
                ", " (format!("{seconds:.0} s"))
            } }
            div { dt { "Process" } dd { (process.process.pid) ": " (plain::line(&command)) } }
            div { dt { "Bytes" } dd { (bytes(total.bytes)) (error) ", " (of.text()) } }
            div { dt { "Sample" } dd { (spans) } }
        }
    }
}

fn table(stacks: &Stacks, of: Of, symbols: &mut Symbols, total: f64) -> Markup {
    let paths = paths::of(stacks, symbols, |_, site: &Site| of.estimate(site));
    let paths: Vec<_> = paths.iter().filter(|one| one.bytes >= 0.5).collect();
    html! {
        section id="paths" {
            h2 { "The call paths with the most bytes" }
            p { "Without frames of allocators and standard libraries where a path begins." }
            div.scroll.rows tabindex="0" role="region" aria-label="Call paths" {
                table {
                    thead { tr {
                        th scope="col" { "path, the innermost function first" }
                        th.number scope="col" { "bytes" } th.number scope="col" { "share" }
                    } }
                    tbody { @for one in paths.iter().take(PATHS) { tr {
                        th scope="row" {
                            @for name in one.functions.iter().take(FUNCTIONS) {
                                (plain::line(name)) br;
                            }
                            @if one.functions.len() > FUNCTIONS {
                                "... " (one.functions.len() - FUNCTIONS) " more"
                            }
                        }
                        td.number { (bytes(one.bytes)) }
                        td.number { (format!("{:.1} %", 100.0 * one.bytes / total)) }
                    } } }
                }
            }
            @if paths.len() > PATHS { p { (paths.len() - PATHS) " other paths." } }
        }
    }
}
