//! `loam export`: counters for Prometheus, over HTTP; or for an OpenTelemetry collector.
//! `loam_export` does both.

pub mod args;

use anyhow::Result;

use loam_counters::watch::sampler::{Interest, Sampler};
use loam_export::looks::{self, Looks};
use loam_export::otlp::sender;
use loam_export::{server, Told};

use crate::exit::Exit;
use crate::output;
use args::ExportOptions;

/// Runs the verb until a signal ends it.
pub fn run(options: &ExportOptions) -> Result<Exit> {
    let interest = Interest::OnLoam(options.pattern.clone());
    let sampler = match options.classes {
        true => Sampler::new(interest),
        false => Sampler::brief(interest),
    };
    if let Some(delivery) = &options.delivery {
        sender::run(delivery.clone(), sampler, tell)?;
    } else {
        let looks = Looks::new(sampler, options.classes, looks::FRESH);
        server::serve(&options.listen, options.allow_remote, looks, tell)?;
    }
    Ok(Exit::Done)
}

/// Prints what an exporter tells.
pub fn tell(told: Told) {
    match told {
        Told::Line(text) => output::say(&text),
        Told::Warning(text) => output::print_warning(&text),
    }
}
