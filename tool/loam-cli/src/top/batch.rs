//! `loam top --batch`: prints one look after the other, as tables for people or records for
//! programs.

use std::fmt::Write;
use std::time::SystemTime;

use anyhow::Result;

use loam_counters::live::state::State;
use loam_counters::live::{records, rows};
use loam_format::words;

use crate::top::args::Form;

/// The text of a look. The first look has no rates, because there is no look before it.
pub fn page(form: Form, state: &State, now: SystemTime, is_first: bool) -> Result<String> {
    match form {
        Form::Table => Ok(table(state, now)),
        Form::Json => records::json(state, now),
        Form::Csv => records::csv(state, now, is_first),
    }
}

fn table(state: &State, now: SystemTime) -> String {
    const WIDTH: usize = 80;
    let sheet = rows::processes(state);
    let time = humantime::format_rfc3339_seconds(now);
    let processes = words::count_of(sheet.rows.len(), "process", "processes");
    let mut text = format!("loam top  {time}  {processes}");
    if state.tick.refused > 0 {
        let _ = write!(
            text,
            ", {} of other users not looked into",
            state.tick.refused
        );
    }
    text.push('\n');
    text += sheet.headings(WIDTH).trim_end();
    text.push('\n');
    for row in &sheet.rows {
        text += sheet.line(&row.cells, WIDTH).trim_end();
        text.push('\n');
    }
    for sample in state.processes() {
        // Notes on what is torn, missing, or older than the look.
        for note in sample
            .snapshot()
            .map_or(&[][..], |snapshot| &snapshot.notes)
        {
            let _ = writeln!(text, "{:>7} {note}", sample.identity.key.pid);
        }
        if let Err(error) = &sample.counters {
            let _ = writeln!(text, "{:>7} {error}", sample.identity.key.pid);
        }
    }
    text.push('\n');
    text
}
