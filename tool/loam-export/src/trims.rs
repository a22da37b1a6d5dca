//! What a keeper did, which trims again and again, as metrics.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use loam_process::trim::Outcome;

use crate::looks::{Page, Pages};

/// What was done until now.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<Sums>>);

impl Tally {
    /// A process of that name was trimmed.
    pub fn add(&self, name: &str, outcome: &Outcome) {
        let mut sums = self.sums();
        let of = sums.of.entry(name.to_owned()).or_default();
        of.trims += 1;
        of.given += outcome.bytes;
        of.stops += outcome.slices + outcome.futile;
        of.stood += outcome.stood;
        of.longest = of.longest.max(outcome.longest);
    }

    /// A trim or a look was not possible.
    pub fn refuse(&self, name: &str) {
        *self.sums().refused.entry(name.to_owned()).or_default() += 1;
    }

    /// All processes were gone through.
    pub fn end_round(&self, watched: usize, resting: usize) {
        let mut sums = self.sums();
        sums.rounds += 1;
        sums.watched = watched as u64;
        sums.resting = resting as u64;
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Default)]
struct Sums {
    rounds: u64,
    watched: u64,
    resting: u64,
    refused: BTreeMap<String, u64>,
    of: BTreeMap<String, OfName>,
}

/// Of all processes with one name.
#[derive(Debug, Clone, Default)]
struct OfName {
    trims: u64,
    given: u64,
    stops: u64,
    stood: Duration,
    longest: Duration,
}

impl Pages for Tally {
    async fn page(&self) -> Result<Arc<Page>, String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.sums().clone()));
        let mut text = String::new();
        encode(&mut text, &registry).map_err(|error| error.to_string())?;
        Ok(Arc::new(Page::new(text)))
    }
}

impl Collector for Sums {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let encoder = &mut encoder;
        let plain = |encoder: &mut DescriptorEncoder, name, help, value: u64| {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value as f64).encode(metric)
        };
        plain(
            encoder,
            "loam_trim_watched_processes",
            "processes that are looked at",
            self.watched,
        )?;
        plain(
            encoder,
            "loam_trim_resting_processes",
            "processes that are left alone because their pages came back within a minute",
            self.resting,
        )?;
        let rounds = encoder.encode_descriptor(
            "loam_trim_rounds",
            "how often all processes were gone through",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(self.rounds).encode(rounds)?;
        let of = |figure: fn(&OfName) -> f64| -> Vec<(String, f64)> {
            let all = self.of.iter();
            all.map(|(name, of)| (name.clone(), figure(of))).collect()
        };
        let refused: Vec<(String, f64)> = self
            .refused
            .iter()
            .map(|(name, count)| (name.clone(), *count as f64))
            .collect();
        for (name, help, is_sum, series) in [
            ("loam_trim_trims", "trims", true, of(|of| of.trims as f64)),
            (
                "loam_trim_given_back_bytes",
                "resident bytes given back",
                true,
                of(|of| of.given as f64),
            ),
            (
                "loam_trim_stops",
                "stops of a thread",
                true,
                of(|of| of.stops as f64),
            ),
            (
                "loam_trim_stopped_seconds",
                "how long threads stood, with waits for a processor",
                true,
                of(|of| of.stood.as_secs_f64()),
            ),
            (
                "loam_trim_longest_stop_seconds",
                "the longest stop, with waits for a processor",
                false,
                of(|of| of.longest.as_secs_f64()),
            ),
            (
                "loam_trim_refused",
                "trims and looks that were not possible",
                true,
                refused,
            ),
        ] {
            if series.is_empty() {
                continue;
            }
            let kind = if is_sum {
                MetricType::Counter
            } else {
                MetricType::Gauge
            };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for (name, value) in series {
                let labels = vec![("comm", name)];
                let one = metric.encode_family(&labels)?;
                match is_sum {
                    true => ConstCounter::new(value).encode(one)?,
                    false => ConstGauge::new(value).encode(one)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_sums_of_each_name_and_only_what_happened() {
        let tally = Tally::default();
        let outcome = Outcome {
            bytes: 4096,
            slices: 2,
            longest: Duration::from_millis(1),
            ..Outcome::default()
        };
        tally.add("server", &outcome);
        tally.add("server", &outcome);
        tally.end_round(3, 1);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let page = runtime.unwrap().block_on(tally.page()).unwrap();
        let text = String::from_utf8(page.openmetrics().to_vec()).unwrap();
        for line in [
            "loam_trim_given_back_bytes_total{comm=\"server\"} 8192",
            "loam_trim_stops_total{comm=\"server\"} 4",
            "loam_trim_longest_stop_seconds{comm=\"server\"} 0.001",
            "loam_trim_watched_processes 3",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(!text.contains("refused"), "{text}");
    }
}
