//! Counters, censuses and traces in the forms that other programs take.
//!
//! ```text
//! watch::sampler -> looks: a page for all scrapes of a time -> metrics (OpenMetrics)
//!                -> otlp: metrics, profile -> collector (HTTP)
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
pub mod traces;
