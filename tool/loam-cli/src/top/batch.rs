//! `loam top --batch`: prints one look after the other, as tables for people or records for
//! programs.

use std::fmt::Write;
use std::time::SystemTime;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use loam_counters::watch::rates;
use loam_counters::watch::sampler::Sample;
use loam_format::counters::ids;
use loam_format::{plain, words};

use crate::top::args::Form;
use crate::top::rows;
use crate::top::state::State;

/// The text of a look. The first look has no rates, because there is no look before it.
pub fn page(form: Form, state: &State, now: SystemTime, is_first: bool) -> Result<String> {
    match form {
        Form::Table => Ok(table(state, now)),
        Form::Json => {
            let lines =
                records(state, now).map(|record| Ok(serde_json::to_string(&record)? + "\n"));
            // The text is escaped here, where it is known to be JSON.
            lines
                .map(|line: Result<String>| Ok(plain::lines(&line?).into_owned()))
                .collect()
        }
        Form::Csv => csv(state, now, is_first),
    }
}

/// A process at a look, in plain numbers. A field is never removed and never changes its meaning.
#[derive(Debug, Default, Serialize)]
struct Record {
    time: String,
    pid: i32,
    name: String,
    user_id: u32,
    on_loam: bool,
    resident_bytes: u64,
    live_bytes: Option<u64>,
    free_ratio: Option<f64>,
    cached_bytes: Option<u64>,
    growth_bytes_per_second: Option<i64>,
    lock_waits_per_second: Option<f64>,
    cache_hit_ratio: Option<f64>,
    cache_hit_ratio_is_exact: Option<bool>,
    counters_error: Option<String>,
}

impl Record {
    fn of(state: &State, sample: &Sample, time: &str) -> Record {
        let values = sample.snapshot().map(|snapshot| &snapshot.process);
        let bytes = |id: &str| {
            values
                .and_then(|values| values.real(id))
                .map(|real| real as u64)
        };
        let before = state.before(sample.identity.key);
        let hits = before.and_then(|before| rates::cache_hits(before, sample));
        Record {
            time: time.to_owned(),
            pid: sample.identity.key.pid,
            name: sample.identity.name.clone(),
            user_id: sample.identity.user,
            on_loam: match sample.snapshot() {
                Some(snapshot) => !snapshot.is_peer,
                None => sample.counters.is_err(),
            },
            resident_bytes: sample.outline.resident,
            live_bytes: bytes(ids::LIVE_BYTES),
            free_ratio: values.and_then(rates::fragmentation),
            cached_bytes: bytes(ids::CACHED_BYTES),
            growth_bytes_per_second: state.growth(sample).map(|growth| growth.round() as i64),
            lock_waits_per_second: state.rate(sample, ids::LOCK_CONTENTIONS),
            cache_hit_ratio: hits.map(|hits| hits.share),
            cache_hit_ratio_is_exact: hits.map(|hits| hits.is_exact),
            counters_error: sample.counters.as_ref().err().map(ToString::to_string),
        }
    }
}

fn records(state: &State, now: SystemTime) -> impl Iterator<Item = Record> + '_ {
    let time = humantime::format_rfc3339_millis(now).to_string();
    let samples = state.processes().into_iter();
    samples.map(move |sample| Record::of(state, sample, &time))
}

fn csv(state: &State, now: SystemTime, is_first: bool) -> Result<String> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    if is_first {
        // The header is printed even if there is no process yet.
        if let Value::Object(fields) = serde_json::to_value(Record::default())? {
            writer.write_record(fields.keys())?;
        }
    }
    for record in records(state, now) {
        writer.serialize(record)?;
    }
    let text = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8(text)?)
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
