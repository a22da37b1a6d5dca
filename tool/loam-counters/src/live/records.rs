//! Processes at a look as records for programs, as JSON lines or CSV.

use std::time::SystemTime;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use loam_format::counters::ids;
use loam_format::plain;

use super::state::State;
use crate::watch::rates;
use crate::watch::sampler::Sample;

/// One line for each process.
pub fn json(state: &State, now: SystemTime) -> Result<String> {
    let lines = records(state, now).map(|record| Ok(serde_json::to_string(&record)? + "\n"));
    // The text is escaped here, where it is known to be JSON.
    lines
        .map(|line: Result<String>| Ok(plain::lines(&line?).into_owned()))
        .collect()
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

/// Comma-separated values. The first look's have a header.
pub fn csv(state: &State, now: SystemTime, is_first: bool) -> Result<String> {
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
