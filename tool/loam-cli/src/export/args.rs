//! `loam export`: its arguments.

use clap::Args;
use regex_lite::Regex;

use crate::export::listen::Listen;

/// Offer the counters of all processes on Loam to Prometheus.
///
/// Every scrape of `/metrics` looks at every process on Loam that you may look into, and answers in
/// OpenMetrics. A process that ends leaves no series; one that can not be read costs only its own.
/// The address is one of this machine only, unless you say otherwise: whoever can connect reads
/// names and sizes of your processes.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Where to listen: HOST:PORT, or :PORT
    ///
    /// A name stands for the first of its addresses that can be listened on, those of IPv4 first.
    /// Without a host it is this machine's own address, or every one with --allow-remote.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    listen: Listen,

    /// Only processes whose name this regular expression matches somewhere
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<Regex>,

    /// Add figures of each size class: some hundred series a process
    #[arg(long)]
    classes: bool,

    /// Allow an address that other machines can reach
    #[arg(long)]
    allow_remote: bool,
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
}

impl ExportArgs {
    /// Resolves the arguments into plain options.
    pub fn resolve(self) -> ExportOptions {
        ExportOptions {
            listen: self.listen,
            pattern: self.pattern,
            classes: self.classes,
            allow_remote: self.allow_remote,
        }
    }
}
