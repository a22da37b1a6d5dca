//! Makes a profile for the Firefox Profiler. It has a process with one thread, tracks of live and
//! resident bytes, and the program's marks. If the trace has stacks, it also has the sampled
//! allocations and their frees. Weights are the bytes that a sampled block stands for.

use std::io::{BufWriter, Write};
use std::time::SystemTime;

use anyhow::Result;
use fxprof_processed_profile::{
    CategoryHandle, CounterHandle, FrameFlags, FrameInfo, MarkerTiming, Profile,
    ReferenceTimestamp, SamplingInterval, StackHandle, StaticSchemaMarker, StaticSchemaMarkerField,
    StringHandle, ThreadHandle, Timestamp,
};

use loam_lab::replay;
use loam_lab::traces::{live, marks, stacks};
use loam_process::symbols::Symbols;

use super::rows::Visible;
use super::Export;

/// How many spans of time the track of live bytes has points for. It is more than a screen is wide.
const SPANS: u64 = 4_000;

/// Writes the profile of a process. Returns the trace's faults and the doubts about the functions'
/// names.
pub fn write(export: &Export, out: impl Write) -> Result<Vec<String>> {
    let survey = replay::survey(&export.trace)?;
    let stream = survey.choose(export.process)?;
    let process = &survey.processes[&stream];
    let name = match process.process.program.as_str() {
        "" => "program",
        path => path.rsplit('/').next().unwrap_or(path),
    };
    let started = humantime::parse_rfc3339_weak(&survey.header.started);
    let reference = ReferenceTimestamp::from_system_time(started.unwrap_or(SystemTime::UNIX_EPOCH));
    let mut profile = Profile::new(name, reference, SamplingInterval::from_millis(1));
    profile.set_symbolicated(true);
    let begins = at(process.process.at.min(process.first_time));
    let pid = process.process.pid;
    let owner = profile.add_process(name, pid, begins);
    let thread = profile.add_thread(owner, pid, begins, true);
    profile.set_process_end_time(owner, at(process.until()));
    profile.set_thread_name(thread, name);

    let lived = profile.add_counter(owner, "live", "Memory", "Bytes requested and not freed");
    let mut before = 0;
    for point in live::of(&survey, stream, SPANS)? {
        let calls = u32::try_from(point.calls).unwrap_or(u32::MAX);
        add(
            &mut profile,
            lived,
            point.time,
            &mut before,
            point.bytes,
            calls,
        );
    }
    let heap = "Resident bytes of the heap, as the recorder saw them";
    let resident = profile.add_counter(owner, "resident", "Memory", heap);
    let mut before = 0;
    for sample in &process.samples {
        if let (Some(time), Some(bytes)) = (sample.time, sample.resident_heap) {
            add(&mut profile, resident, time, &mut before, bytes, 0);
        }
    }
    for mark in marks::of(&survey, stream)? {
        let name = profile.intern_string(&mark.name);
        profile.add_marker(thread, MarkerTiming::Instant(at(mark.time)), Named(name));
    }
    let mut symbols = Symbols::default();
    if let Some((stacks, changes)) = stacks::with_changes(&survey, stream)? {
        let handles: Vec<_> = stacks
            .sites
            .iter()
            .map(|site| stack(&mut profile, thread, &stacks.names(site, &mut symbols)))
            .collect();
        for change in changes {
            let (stack, bytes) = (handles[change.site], change.bytes.round() as i64);
            profile.add_allocation_sample(thread, at(change.time), stack, change.address, bytes);
        }
    }
    let mut out = BufWriter::new(Visible::new(out));
    serde_json::to_writer(&mut out, &profile)?;
    out.flush()?;
    let mut told = survey.faults(&[stream]);
    told.extend(symbols.doubts());
    Ok(told)
}

fn at(nanoseconds: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(nanoseconds)
}

/// Adds a point to a track. Tracks store differences.
fn add(
    profile: &mut Profile,
    counter: CounterHandle,
    time: u64,
    before: &mut u64,
    bytes: u64,
    calls: u32,
) {
    let difference = bytes as f64 - *before as f64;
    *before = bytes;
    profile.add_counter_sample(counter, at(time), difference, calls);
}

/// A stack of named frames, the outermost first.
fn stack(profile: &mut Profile, thread: ThreadHandle, names: &[String]) -> Option<StackHandle> {
    let mut stack = None;
    for name in names {
        let label = profile.intern_string(name);
        let info = FrameInfo {
            frame: fxprof_processed_profile::Frame::Label(label),
            category_pair: CategoryHandle::OTHER.into(),
            flags: FrameFlags::empty(),
        };
        let frame = profile.intern_frame(thread, info);
        stack = Some(profile.intern_stack(thread, stack, frame));
    }
    stack
}

/// A mark of the program.
struct Named(StringHandle);

impl StaticSchemaMarker for Named {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "loam_mark";
    const DESCRIPTION: Option<&'static str> =
        Some("A moment that the program named by loam_mark()");
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.0
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _field: u32) -> StringHandle {
        self.0
    }

    fn number_field_value(&self, _field: u32) -> f64 {
        0.0
    }
}
