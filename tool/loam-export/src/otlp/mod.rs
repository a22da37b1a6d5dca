//! What an OpenTelemetry collector takes: metrics, and profiles of what is live.

pub mod collector;
pub mod metrics;
pub mod profile;
pub mod resource;
pub mod sender;
