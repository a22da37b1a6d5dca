//! `loam top --batch`: one table of plain text a look, like any log.

use std::fmt::Write;

use super::rows;
use super::state::State;
use crate::output::words;

/// One look. The first has no rates, for there is nothing to compare with.
pub fn page(state: &State, now: std::time::SystemTime) -> String {
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
        // What is torn, missing, or not of this moment.
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
