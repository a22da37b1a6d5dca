//! `loam export`: its arguments.

use std::time::Duration;

use clap::Args;
use regex_lite::Regex;

use loam_export::listen::Listen;
use loam_export::otlp::collector::Collector;
use loam_export::otlp::sender::Delivery;

/// Offer the counters of all processes on Loam to Prometheus, or send them to OpenTelemetry.
///
/// Every scrape of `/metrics` looks at every process on Loam that you may look into, and answers in
/// OpenMetrics. A process that ends leaves no series; one that can not be read costs only its own.
/// The address is one of this machine only, unless you say otherwise: whoever can connect reads
/// names and sizes of your processes.
///
/// With `--otlp` nothing is listened on. The same figures go to an OpenTelemetry collector, by the
/// names of the semantic conventions, each process as a resource of its own.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Where to listen: HOST:PORT, or :PORT
    ///
    /// A name stands for the first of its addresses that can be listened on, those of IPv4 first.
    /// Without a host it is this machine's own address, or every one with --allow-remote.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9464",
        conflicts_with = "otlp"
    )]
    listen: Listen,

    /// Only processes whose name this regular expression matches somewhere
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<Regex>,

    /// Add figures of each size class: some hundred series a process
    #[arg(long)]
    classes: bool,

    /// Allow an address that other machines can reach
    #[arg(long, conflicts_with = "otlp")]
    allow_remote: bool,

    /// Send to the OpenTelemetry collector at this address, for instance http://localhost:4318
    ///
    /// OTLP over HTTP, without TLS: name a collector on this machine or in this pod, and let it
    /// pass the data on. What can not be delivered is tried again until the next look, and then
    /// dropped.
    #[arg(long, value_name = "URL")]
    otlp: Option<Collector>,

    /// With --otlp: how often: 60, 60s, 5m, 2h
    #[arg(long, value_name = "TIME", value_parser = pause, default_value = "60s")]
    #[arg(requires = "otlp", conflicts_with_all = LISTENING)]
    every: Duration,

    /// With --otlp: also profiles of what the live blocks are, by type, with this pause at least
    ///
    /// A census of each process on Loam. Censuses take at most 0.5 % of a processor, so large heaps
    /// come more rarely. A census of a heap of 4 GiB takes 0.5 GiB of memory for some seconds.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = pause,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10m",
        requires = "otlp",
        conflicts_with_all = LISTENING
    )]
    types: Option<Duration>,

    /// With --otlp: deliver one look and end; exit code 2 if it was not taken whole
    #[arg(long, requires = "otlp", conflicts_with = "every", conflicts_with_all = LISTENING)]
    once: bool,
}

/// What conflicts with --otlp: beside these, clap waives `requires = "otlp"`.
const LISTENING: [&str; 2] = ["listen", "allow_remote"];

/// A time between two rounds, in words of the command line.
pub fn pause(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("`{unit}` is no unit of time; write s, m or h")),
    };
    match digits.parse::<f64>().map(|number| number * factor) {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it is a time from 0.1s to 24h".to_owned()),
    }
}

/// The resolved arguments of `export`.
#[derive(Debug)]
pub struct ExportOptions {
    /// The address to listen on.
    pub listen: Listen,
    /// A pattern for the names of the processes to show.
    pub pattern: Option<Regex>,
    /// Whether to show size classes too.
    pub classes: bool,
    /// Whether other machines may connect.
    pub allow_remote: bool,
    /// What goes to a collector; none: nothing, scrapers come.
    pub delivery: Option<Delivery>,
}

impl ExportArgs {
    /// Resolves the arguments into plain options.
    pub fn resolve(self) -> ExportOptions {
        let delivery = self.otlp.map(|collector| Delivery {
            collector,
            every: self.every,
            once: self.once,
            classes: self.classes,
            types: self.types,
        });
        ExportOptions {
            listen: self.listen,
            pattern: self.pattern,
            classes: self.classes,
            allow_remote: self.allow_remote,
            delivery,
        }
    }
}
