//! The page for scrapers: OpenMetrics text from one look at all processes.
//!
//! Names, types and units come from `formats/counters.toml`. Times are nanoseconds in the heap and seconds here, as
//! the standard requires; the library adds `_total` to counters.

use std::fmt::{Error, Write};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use loam_counters::snapshot::Values;
use loam_counters::watch::sampler::{Sample, Tick};
use loam_format::counters::list::{Counter, Kind, Scope, LIST};

/// Labels of a series.
type Labels = Vec<(&'static str, String)>;

/// The page.
pub fn page(tick: Tick, classes: bool) -> Result<String, Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Look { tick, classes }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The page in the older text format, in which a counter's `_total` is part of its name.
pub fn classic(page: &str) -> String {
    let counters: std::collections::HashSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::with_capacity(page.len());
    for line in page.lines().filter(|line| *line != "# EOF") {
        let named = ["# HELP ", "# TYPE "].into_iter().find_map(|start| {
            let (name, rest) = line.strip_prefix(start)?.split_once(' ')?;
            counters
                .contains(name)
                .then(|| format!("{start}{name}_total {rest}"))
        });
        text += named.as_deref().unwrap_or(line);
        text.push('\n');
    }
    text
}

/// One look, as a source of metrics.
#[derive(Debug)]
struct Look {
    tick: Tick,
    classes: bool,
}

impl Collector for Look {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let found = self
            .tick
            .samples
            .iter()
            .filter(|sample| sample.snapshot().is_some());
        let unreadable = self
            .tick
            .samples
            .iter()
            .filter(|sample| sample.counters.is_err());
        plain(
            &mut encoder,
            "loam_processes",
            "processes on Loam, and on allocators that tell of themselves, whose counters were read",
            found.count(),
        )?;
        plain(
            &mut encoder,
            "loam_processes_unreadable",
            "processes on Loam whose counters can not be read",
            unreadable.count(),
        )?;
        for counter in &LIST.counters {
            if let Some(name) = &counter.openmetrics {
                self.family(&mut encoder, name, counter)?;
            }
        }
        self.resident(&mut encoder)
    }
}

fn plain(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    value: usize,
) -> Result<(), Error> {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value as u64 as f64).encode(metric)
}

fn labels(sample: &Sample) -> Labels {
    vec![
        ("pid", sample.identity.key.pid.to_string()),
        ("comm", sample.identity.name.clone()),
    ]
}

impl Look {
    /// All series of one counter.
    fn family(
        &self,
        encoder: &mut DescriptorEncoder,
        name: &str,
        counter: &Counter,
    ) -> Result<(), Error> {
        let mut series: Vec<(Labels, f64)> = Vec::new();
        let mut add = |labels: Labels, values: &Values| {
            if let Some(value) = values.real(&counter.id) {
                let is_time = counter.unit == "nanoseconds";
                series.push((labels, if is_time { value * 1e-9 } else { value }));
            }
        };
        for sample in &self.tick.samples {
            let Some(snapshot) = sample.snapshot() else {
                continue;
            };
            match counter.scope {
                Scope::Process => add(labels(sample), &snapshot.process),
                Scope::Heap => {
                    for heap in &snapshot.heaps {
                        let mut labels = labels(sample);
                        labels.push(("heap", heap.label()));
                        add(labels, &heap.values);
                    }
                }
                Scope::Class if self.classes => {
                    for (heap, class) in snapshot
                        .heaps
                        .iter()
                        .flat_map(|heap| heap.classes.iter().map(move |c| (heap, c)))
                    {
                        let mut labels = labels(sample);
                        labels.push(("heap", heap.label()));
                        labels.push(("class", class.block_bytes.to_string()));
                        add(labels, &class.values);
                    }
                }
                Scope::Class | Scope::Lock => {}
            }
        }
        // If two heaps have the same name, their series would be the same, which no scraper accepts. Their values are
        // added.
        series.sort_by(|a, b| a.0.cmp(&b.0));
        series.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 += next.1;
            }
            is_same
        });
        write_family(encoder, name, counter, &series)
    }

    /// The system's own figure, for comparison with the heap's.
    fn resident(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let help = "resident memory of the process in bytes, the heap's and all other";
        let mut metric = encoder.encode_descriptor(
            "loam_process_resident_bytes",
            help,
            None,
            MetricType::Gauge,
        )?;
        for sample in self
            .tick
            .samples
            .iter()
            .filter(|sample| sample.snapshot().is_some())
        {
            let labels = labels(sample);
            ConstGauge::new(sample.outline.resident as f64)
                .encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn write_family(
    encoder: &mut DescriptorEncoder,
    name: &str,
    counter: &Counter,
    series: &[(Labels, f64)],
) -> Result<(), Error> {
    if series.is_empty() {
        return Ok(());
    }
    let mut help = counter.meaning.clone();
    if counter.unit != "ratio" {
        write!(
            help,
            ", in {}",
            counter.unit.replace("nanoseconds", "seconds")
        )?;
    }
    let kind = match counter.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge | Kind::Ratio => MetricType::Gauge,
    };
    let mut metric = encoder.encode_descriptor(name, &help, None, kind)?;
    for (labels, value) in series {
        let one = metric.encode_family(labels)?;
        match kind {
            MetricType::Counter => ConstCounter::new(*value).encode(one)?,
            _ => ConstGauge::new(*value).encode(one)?,
        }
    }
    Ok(())
}
