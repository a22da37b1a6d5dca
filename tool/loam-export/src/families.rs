//! The one table of metrics, for scrapers and for collectors: families of series from one look at
//! all processes.
//!
//! Names, kinds and units come from `formats/counters.toml`. Times are nanoseconds in the heap and
//! seconds here, as both standards require. Each family has two names:
//!
//! ```text
//! OpenMetrics                  OpenTelemetry, with its unit
//! loam_live_bytes              loam.live               By        the unit is no part of the name
//! loam_process_minor_faults    process.paging.faults   {fault}   from the semantic conventions
//! ```

use loam_counters::snapshot::Values;
use loam_counters::watch::sampler::{Sample, Tick};
use loam_format::counters::list::{Counter, Kind, Scope, LIST};

/// One metric with all its series.
#[derive(Debug)]
pub struct Family {
    /// The name in OpenMetrics, without the suffix `_total` of counters.
    pub name: &'static str,
    /// What it is, without the unit.
    pub meaning: &'static str,
    /// The unit in words; seconds for times, "ratio" for a share.
    pub unit: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Its series, sorted.
    pub series: Vec<Series>,
}

/// One figure of a family.
#[derive(Debug)]
pub struct Series {
    /// The place of its process among the look's samples; none: it is of the exporter itself.
    pub of: Option<usize>,
    /// The part of the process.
    pub labels: Vec<(&'static str, String)>,
    /// The figure.
    pub value: f64,
}

/// A name of the semantic conventions, for a family of ours.
struct Convention {
    ours: &'static str,
    name: &'static str,
    attribute: Option<(&'static str, &'static str)>,
}

const CONVENTIONS: [Convention; 4] = [
    Convention {
        ours: "loam_process_resident_bytes",
        name: "process.memory.usage",
        attribute: None,
    },
    Convention {
        ours: "loam_process_virtual_bytes",
        name: "process.memory.virtual",
        attribute: None,
    },
    Convention {
        ours: "loam_process_minor_faults",
        name: "process.paging.faults",
        attribute: Some(("system.paging.fault.type", "minor")),
    },
    Convention {
        ours: "loam_process_major_faults",
        name: "process.paging.faults",
        attribute: Some(("system.paging.fault.type", "major")),
    },
];

impl Family {
    fn convention(&self) -> Option<&'static Convention> {
        CONVENTIONS.iter().find(|one| one.ours == self.name)
    }

    /// The name in OpenTelemetry. The rule is the inverse of the one by which a collector names
    /// metrics for Prometheus, so both ways lead to the same series.
    pub fn convention_name(&self) -> String {
        if let Some(known) = self.convention() {
            return known.name.to_owned();
        }
        let bare = match self.unit {
            "bytes" => self.name.trim_end_matches("_bytes"),
            "seconds" => self.name.trim_end_matches("_seconds"),
            _ => self.name,
        };
        bare.replacen('_', ".", 1)
    }

    /// What tells this family from another one of the same name in OpenTelemetry.
    pub fn attribute(&self) -> Option<(&'static str, &'static str)> {
        self.convention()?.attribute
    }

    /// Whether it adds up over processes, so that OpenTelemetry has it as a sum that goes up and
    /// down.
    pub fn is_of_the_conventions(&self) -> bool {
        self.convention().is_some()
    }

    /// The unit by the Unified Code for Units of Measure; what is counted stands in braces.
    pub fn ucum(&self) -> String {
        match self.unit {
            "bytes" => "By".to_owned(),
            "seconds" => "s".to_owned(),
            "ratio" => "1".to_owned(),
            "processes" => "{process}".to_owned(),
            counted => format!("{{{}}}", counted.strip_suffix('s').unwrap_or(counted)),
        }
    }

    /// Whether its figures are whole numbers.
    pub fn is_whole(&self) -> bool {
        !matches!(self.unit, "seconds" | "ratio")
    }
}

/// All families of a look. `classes` adds the figures of size classes.
pub fn of(tick: &Tick, classes: bool) -> Vec<Family> {
    let found = tick.samples.iter().filter(|one| one.snapshot().is_some());
    let unreadable = tick.samples.iter().filter(|one| one.counters.is_err());
    let mut families = vec![
        own(
            "loam_processes",
            "processes on Loam, and on allocators that tell of themselves, whose counters were \
             read",
            found.count(),
        ),
        own(
            "loam_processes_unreadable",
            "processes on Loam whose counters can not be read",
            unreadable.count(),
        ),
    ];
    for counter in &LIST.counters {
        if let Some(name) = &counter.openmetrics {
            families.push(family(tick, classes, name, counter));
        }
    }
    families.push(of_system(
        tick,
        "loam_process_resident_bytes",
        "resident memory of the process, the heap's and all other",
        |sample| sample.outline.resident,
    ));
    families.push(of_system(
        tick,
        "loam_process_virtual_bytes",
        "address space of the process, the heap's and all other",
        |sample| sample.outline.virtual_bytes,
    ));
    families.retain(|family| !family.series.is_empty());
    families
}

/// A figure of the exporter itself.
fn own(name: &'static str, meaning: &'static str, value: usize) -> Family {
    let series = vec![Series {
        of: None,
        labels: Vec::new(),
        value: value as u64 as f64,
    }];
    Family {
        name,
        meaning,
        unit: "processes",
        kind: Kind::Gauge,
        series,
    }
}

/// The system's own figure, for comparison with the heap's.
fn of_system(
    tick: &Tick,
    name: &'static str,
    meaning: &'static str,
    value: impl Fn(&Sample) -> u64,
) -> Family {
    let samples = tick.samples.iter().enumerate();
    let series = samples
        .filter(|(_, sample)| sample.snapshot().is_some())
        .map(|(at, sample)| Series {
            of: Some(at),
            labels: Vec::new(),
            value: value(sample) as f64,
        })
        .collect();
    Family {
        name,
        meaning,
        unit: "bytes",
        kind: Kind::Gauge,
        series,
    }
}

/// All series of one counter.
fn family(tick: &Tick, classes: bool, name: &'static str, counter: &'static Counter) -> Family {
    let is_time = counter.unit == "nanoseconds";
    let mut series: Vec<Series> = Vec::new();
    let mut add = |at: usize, labels: Vec<(&'static str, String)>, values: &Values| {
        if let Some(value) = values.real(&counter.id) {
            let value = if is_time { value * 1e-9 } else { value };
            let of = Some(at);
            series.push(Series { of, labels, value });
        }
    };
    for (at, sample) in tick.samples.iter().enumerate() {
        let Some(snapshot) = sample.snapshot() else {
            continue;
        };
        match counter.scope {
            Scope::Process => add(at, Vec::new(), &snapshot.process),
            Scope::Heap => {
                for heap in &snapshot.heaps {
                    add(at, vec![("heap", heap.label())], &heap.values);
                }
            }
            Scope::Class if classes => {
                for heap in &snapshot.heaps {
                    for class in &heap.classes {
                        let size = class.block_bytes.to_string();
                        let labels = vec![("heap", heap.label()), ("class", size)];
                        add(at, labels, &class.values);
                    }
                }
            }
            Scope::Class | Scope::Lock => {}
        }
    }
    // If two heaps have the same name, their series would be the same, which no reader accepts.
    // Their values are added.
    series.sort_by(|a, b| (a.of, &a.labels).cmp(&(b.of, &b.labels)));
    series.dedup_by(|next, kept| {
        let is_same = (next.of, &next.labels) == (kept.of, &kept.labels);
        if is_same {
            kept.value += next.value;
        }
        is_same
    });
    Family {
        name,
        meaning: &counter.meaning,
        unit: if is_time { "seconds" } else { &counter.unit },
        kind: counter.kind,
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> Vec<Family> {
        let named = LIST.counters.iter().filter_map(|counter| {
            let name = counter.openmetrics.as_deref()?;
            Some(family(&Tick::default(), true, name, counter))
        });
        named.collect()
    }

    #[test]
    fn a_name_has_its_unit_in_one_place_only() {
        for family in all() {
            let name = family.convention_name();
            assert!(
                !name.contains("bytes") && !name.ends_with("seconds"),
                "{name}"
            );
            if !family.is_of_the_conventions() {
                // What a collector makes of it for Prometheus: dots to underscores, the unit
                // behind.
                let suffix = match family.ucum().as_str() {
                    "By" => "_bytes",
                    "s" => "_seconds",
                    _ => "",
                };
                assert_eq!(name.replace('.', "_") + suffix, family.name);
            }
        }
    }

    #[test]
    fn units_are_those_of_the_conventions_and_names_are_told_apart() {
        let units: BTreeSet<String> = all().iter().map(Family::ucum).collect();
        let known = [
            "1",
            "By",
            "s",
            "{block}",
            "{call}",
            "{fault}",
            "{operation}",
            "{thread}",
        ];
        let strange: Vec<_> = units
            .iter()
            .filter(|u| !known.contains(&u.as_str()))
            .collect();
        assert!(strange.is_empty(), "{strange:?}");
        let named = all();
        let names: BTreeSet<_> = named
            .iter()
            .map(|family| (family.convention_name(), family.attribute()))
            .collect();
        assert_eq!(names.len(), named.len());
    }
}
