//! Requests with metrics: the families of a look, process by process.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use loam_counters::watch::sampler::Tick;
use loam_format::counters::list::Kind;

use super::resource::{self, nanos, text, Machine};
use crate::families::{self, Family, Series};

/// So many figures are in one request at most: some 3 MB, which is far below what collectors take
/// (20 MiB by default).
const MOST: usize = 20_000;

/// Where a figure is: place of the family, place of the series.
type Place = (usize, usize);

/// A look's requests. They are made one by one, so that no more than one is in memory.
pub struct Requests {
    tick: Tick,
    families: Vec<Family>,
    /// For each resource its figures; none: the exporter itself.
    figures: Vec<(Option<usize>, Vec<Place>)>,
    time: Duration,
}

impl Requests {
    /// Of one look, made at `time`.
    pub fn new(tick: Tick, classes: bool, time: Duration) -> Requests {
        let families = families::of(&tick, classes);
        let mut by_resource: Vec<Vec<Place>> = vec![Vec::new(); tick.samples.len() + 1];
        for (place, family) in families.iter().enumerate() {
            for (at, series) in family.series.iter().enumerate() {
                // The exporter's own come first.
                by_resource[series.of.map_or(0, |of| of + 1)].push((place, at));
            }
        }
        let figures = by_resource.into_iter().enumerate();
        let mut figures: Vec<_> = figures
            .map(|(resource, figures)| (resource.checked_sub(1), figures))
            .filter(|(_, figures)| !figures.is_empty())
            .collect();
        // The next one is taken from the end.
        figures.reverse();
        for (_, figures) in &mut figures {
            figures.reverse();
        }
        Requests {
            tick,
            families,
            figures,
            time,
        }
    }

    /// The next request and the number of its figures; none: all were made.
    pub fn next(&mut self, machine: &Machine) -> Option<(ExportMetricsServiceRequest, usize)> {
        let mut request = ExportMetricsServiceRequest::default();
        let mut count = 0;
        while let Some((of, mut figures)) = self.figures.pop() {
            let now = figures.split_off(figures.len().saturating_sub(MOST - count));
            count += now.len();
            let (resource, start) = match of {
                Some(at) => {
                    let identity = &self.tick.samples[at].identity;
                    (machine.process(identity), machine.start_of(identity))
                }
                None => (machine.exporter(), self.time),
            };
            request
                .resource_metrics
                .push(self.resource(resource, start, now.into_iter().rev()));
            if !figures.is_empty() {
                self.figures.push((of, figures));
            }
            if count >= MOST {
                break;
            }
        }
        (count > 0).then_some((request, count))
    }

    fn resource(
        &self,
        resource: Resource,
        start: Duration,
        figures: impl Iterator<Item = Place>,
    ) -> ResourceMetrics {
        let mut metrics: Vec<Metric> = Vec::new();
        for (place, at) in figures {
            let family = &self.families[place];
            let point = self.point(family, &family.series[at], start);
            let name = family.convention_name();
            let last = metrics.last_mut().filter(|last| last.name == name);
            match last.and_then(|last| last.data.as_mut()) {
                Some(Data::Sum(sum)) => sum.data_points.push(point),
                Some(Data::Gauge(gauge)) => gauge.data_points.push(point),
                _ => metrics.push(metric(family, name, point)),
            }
        }
        ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(resource::scope()),
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }
    }

    fn point(&self, family: &Family, series: &Series, start: Duration) -> NumberDataPoint {
        let labels = series.labels.iter();
        let mut attributes: Vec<_> = labels
            .map(|(label, value)| text(&format!("loam.{label}"), value))
            .collect();
        if let Some((key, value)) = family.attribute() {
            attributes.push(text(key, value));
        }
        let value = match family.is_whole() {
            true => Value::AsInt(series.value as i64),
            false => Value::AsDouble(series.value),
        };
        NumberDataPoint {
            attributes,
            start_time_unix_nano: if is_sum(family) { nanos(start) } else { 0 },
            time_unix_nano: nanos(self.time),
            value: Some(value),
            ..NumberDataPoint::default()
        }
    }
}

fn is_sum(family: &Family) -> bool {
    family.kind == Kind::Counter || family.is_of_the_conventions()
}

fn metric(family: &Family, name: String, point: NumberDataPoint) -> Metric {
    let data_points = vec![point];
    let data = match is_sum(family) {
        true => Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: family.kind == Kind::Counter,
        }),
        false => Data::Gauge(Gauge { data_points }),
    };
    Metric {
        name,
        description: family.meaning.to_owned(),
        unit: family.ucum(),
        data: Some(data),
        ..Metric::default()
    }
}
