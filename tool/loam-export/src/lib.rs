//! Counters, censuses and traces in the forms that other programs take.
//!
//! ```text
//! watch::sampler -> looks: a page for all scrapes of a time -> metrics (OpenMetrics) -> server
//!                -> otlp: metrics, profile -> sender -> collector (HTTP)
//! trims: what a keeper did -> server
//! loam_lab::traces -> traces: tables, profiles, datasets
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod connections;
pub mod families;
pub mod listen;
pub mod looks;
pub mod metrics;
pub mod otlp;
pub mod server;
pub mod traces;
#[cfg(target_arch = "x86_64")]
pub mod trims;

/// What an exporter tells the person who started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// All is as it should be.
    Line(String),
    /// Something is wrong.
    Warning(String),
}
