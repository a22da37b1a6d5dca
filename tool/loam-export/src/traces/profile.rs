//! A trace's stacks for programs that draw profiles: as collapsed lines, as pprof's profile.proto,
//! or drawn as a page (`flame`).

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use anyhow::{bail, Result};
use flate2::{write::GzEncoder, Compression};
use prost::Message;

use loam_format::plain;
use loam_lab::replay;
use loam_lab::traces::of::Of;
use loam_lab::traces::stacks::{self, Place, Site, Stacks};
use loam_process::symbols::{Function, Symbols};

use super::{flame, Export, Format};

/// Writes the stacks of a process. Returns the trace's faults and the doubts about the functions'
/// names.
pub fn write(export: &Export, mut out: impl Write) -> Result<Vec<String>> {
    let survey = replay::survey(&export.trace)?;
    let stream = survey.choose(export.process)?;
    let mut told = survey.faults(&[stream]);
    let Some(stacks) = stacks::of(&survey, stream)? else {
        if let Some(fault) = told.first() {
            bail!(
                "what can be read of {} has no stacks: {fault}",
                plain::path(&export.trace)
            );
        }
        bail!(
            "process {stream} of {} has no stacks: it asked for less than the {} bytes that `loam \
             record --stacks` leaves between two; record it with `--stacks=64K`, or name another \
             process with --process",
            plain::path(&export.trace),
            survey.header.stack_bytes
        );
    };
    let mut symbols = Symbols::default();
    match export.format {
        Format::Pprof => {
            let profile = pprof(&stacks, &mut symbols);
            let mut zip = GzEncoder::new(out, Compression::default());
            zip.write_all(&profile.encode_to_vec())?;
            zip.finish()?.flush()?;
        }
        Format::Flame => {
            let page = flame::page(&survey, stream, &stacks, export.of, &mut symbols)?;
            out.write_all(page.as_bytes())?;
            out.flush()?;
        }
        _ => {
            collapsed(&stacks, export.of, &mut symbols, &mut out)?;
            out.flush()?;
        }
    }
    told.extend(symbols.doubts());
    Ok(told)
}

/// A stack as one line, the outermost function first. Semicolons separate frames. The line may go
/// to a terminal.
pub fn joined(stacks: &Stacks, site: &Site, symbols: &mut Symbols) -> String {
    let names = stacks.names(site, symbols).into_iter();
    let names: Vec<String> = names.map(|name| name.replace([';', '\n'], ":")).collect();
    plain::line(&names.join(";")).into_owned()
}

fn collapsed(stacks: &Stacks, of: Of, symbols: &mut Symbols, out: &mut impl Write) -> Result<()> {
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for site in &stacks.sites {
        let names = joined(stacks, site, symbols);
        *lines.entry(names).or_default() += of.estimate(site).bytes;
    }
    for (names, bytes) in lines.into_iter().filter(|(_, bytes)| *bytes >= 0.5) {
        writeln!(out, "{names} {bytes:.0}")?;
    }
    Ok(())
}

/// The messages of profile.proto that are used here. Tags are the published ones.
mod proto {
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(message, optional, tag = "11")]
        pub period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub comment: Vec<i64>,
        #[prost(int64, tag = "14")]
        pub default_sample_type: i64,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub r#type: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub memory_limit: u64,
        #[prost(uint64, tag = "4")]
        pub file_offset: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(int64, tag = "6")]
        pub build_id: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub address: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
    }
}

/// A profile that is being made.
#[derive(Default)]
struct Tables {
    profile: proto::Profile,
    texts: HashMap<String, i64>,
    functions: HashMap<(String, Option<String>), u64>,
    locations: HashMap<Place, u64>,
}

impl Tables {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(known) = self.texts.get(text) {
            return *known;
        }
        let number = self.texts.len() as i64;
        self.texts.insert(text.to_owned(), number);
        self.profile.string_table.push(text.to_owned());
        number
    }

    fn kind(&mut self, what: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            r#type: self.text(what),
            unit: self.text(unit),
        }
    }

    fn function(&mut self, function: Function) -> u64 {
        let key = (function.name, function.file);
        if let Some(known) = self.functions.get(&key) {
            return *known;
        }
        let id = self.functions.len() as u64 + 1;
        let name = self.text(&key.0);
        let filename = key.1.as_deref().map_or(0, |file| self.text(file));
        self.profile.function.push(proto::Function {
            id,
            name,
            system_name: name,
            filename,
        });
        self.functions.insert(key, id);
        id
    }

    fn location(&mut self, stacks: &Stacks, place: &Place, symbols: &mut Symbols) -> u64 {
        if let Some(known) = self.locations.get(place) {
            return *known;
        }
        let id = self.locations.len() as u64 + 1;
        let line = stacks
            .functions(place, symbols)
            .into_iter()
            .map(|function| {
                let line = function.line.unwrap_or(0).into();
                let function_id = self.function(function);
                proto::Line { function_id, line }
            });
        let line = line.collect();
        self.profile.location.push(proto::Location {
            id,
            mapping_id: place.module.map_or(0, |module| module as u64 + 1),
            address: place.address,
            line,
        });
        self.locations.insert(place.clone(), id);
        id
    }
}

fn pprof(stacks: &Stacks, symbols: &mut Symbols) -> proto::Profile {
    let mut tables = Tables::default();
    tables.text("");
    let kinds = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    for (what, unit) in kinds {
        let kind = tables.kind(what, unit);
        tables.profile.sample_type.push(kind);
    }
    tables.profile.default_sample_type = tables.text("inuse_space");
    tables.profile.period_type = Some(tables.kind("space", "bytes"));
    tables.profile.period = stacks.mean as i64;
    let comment = tables.text("inuse: what lived when most bytes lived");
    tables.profile.comment.push(comment);
    for (at, module) in stacks.modules.iter().enumerate() {
        let filename = tables.text(&module.path);
        let build_id = module.build_id.as_deref().map_or(0, |id| tables.text(id));
        // Addresses are those of the file, so the mapping covers all of them.
        tables.profile.mapping.push(proto::Mapping {
            id: at as u64 + 1,
            memory_start: 0,
            memory_limit: u64::MAX >> 1,
            file_offset: 0,
            filename,
            build_id,
            has_functions: true,
        });
    }
    let cut = Place {
        module: None,
        address: 0,
    };
    for site in &stacks.sites {
        let places = site.frames.iter().chain(site.is_cut.then_some(&cut));
        let location_id = places
            .map(|place| tables.location(stacks, place, symbols))
            .collect();
        let value = [
            site.allocated.blocks,
            site.allocated.bytes,
            site.peak.blocks,
            site.peak.bytes,
        ];
        tables.profile.sample.push(proto::Sample {
            location_id,
            value: value.map(|value| value.round() as i64).to_vec(),
        });
    }
    tables.profile
}
