//! Counters and censuses in the forms that monitoring systems take.
//!
//! ```text
//! watch::sampler -> looks: a page for all scrapes of a time -> metrics (OpenMetrics)
//!                -> otlp: metrics, profile -> collector (HTTP)
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod connections;
pub mod families;
pub mod listen;
pub mod looks;
pub mod metrics;
pub mod otlp;
