//! The page for scrapers: OpenMetrics text from one look at all processes (`families`).

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use loam_counters::watch::sampler::Tick;
use loam_format::counters::list::Kind;

use crate::families::{self, Family};

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
        for family in families::of(&self.tick, self.classes) {
            write_family(&mut encoder, &self.tick, &family)?;
        }
        Ok(())
    }
}

fn write_family(
    encoder: &mut DescriptorEncoder,
    tick: &Tick,
    family: &Family,
) -> Result<(), Error> {
    let help = match family.unit {
        "ratio" | "processes" => family.meaning.to_owned(),
        unit => format!("{}, in {unit}", family.meaning),
    };
    let kind = match family.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge | Kind::Ratio => MetricType::Gauge,
    };
    let mut metric = encoder.encode_descriptor(family.name, &help, None, kind)?;
    for series in &family.series {
        let Some(at) = series.of else {
            ConstGauge::new(series.value).encode(metric)?;
            return Ok(());
        };
        let identity = &tick.samples[at].identity;
        let mut labels = vec![
            ("pid", identity.key.pid.to_string()),
            ("comm", identity.name.clone()),
        ];
        labels.extend(series.labels.iter().cloned());
        let one = metric.encode_family(&labels)?;
        match kind {
            MetricType::Counter => ConstCounter::new(series.value).encode(one)?,
            _ => ConstGauge::new(series.value).encode(one)?,
        }
    }
    Ok(())
}
