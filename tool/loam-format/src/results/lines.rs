//! The lines that a workload prints: a start, checkpoints and an end. Each is one JSON object.
//!
//! Unknown keys are kept in `extra`. Every figure may be missing or null, because not every
//! experiment has every figure (an overhead needs live bytes).

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use thiserror::Error;

/// A line of a workload.
#[derive(Debug, Clone)]
pub enum Line {
    /// The first line.
    Start(Map<String, Value>),
    /// One measurement.
    Checkpoint(Box<Checkpoint>),
    /// The last line.
    End(Map<String, Value>),
    /// A type that this version does not know; ignored.
    Other,
}

/// Why a line is not valid.
#[derive(Debug, Error)]
pub enum LineError {
    /// The line is not JSON, or not an object.
    #[error("is not a JSON object: `{excerpt}`")]
    NotAnObject {
        /// The line's beginning.
        excerpt: String,
    },
    /// The object has no type.
    #[error("has no \"type\": `{excerpt}`")]
    NoType {
        /// The line's beginning.
        excerpt: String,
    },
    /// A known key has a value of the wrong kind.
    #[error("is no checkpoint: {reason}: `{excerpt}`")]
    BadCheckpoint {
        /// What is wrong.
        reason: String,
        /// The line's beginning.
        excerpt: String,
    },
}

/// Latency of sampled operations.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Longest.
    pub max: Option<f64>,
}

/// One measurement.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Checkpoint {
    /// The experiment's design; `malloc` if there is only one.
    pub variant: String,
    /// The curve of the variant.
    pub series: String,
    /// Its place in the series, from 0.
    pub index: u64,
    /// Its place on the x axis.
    pub x: Option<f64>,
    /// What the x axis counts.
    pub x_unit: String,
    /// Operations since the last checkpoint.
    pub operations: Option<f64>,
    /// Seconds since the last checkpoint.
    pub seconds: Option<f64>,
    /// The rate since the last checkpoint.
    pub operations_per_second: Option<f64>,
    /// Latency of sampled operations since the last checkpoint.
    pub latency_ns: Option<Latency>,
    /// Bytes that were requested and not yet freed.
    pub live_bytes: Option<f64>,
    /// Resident bytes now.
    pub resident_bytes: Option<f64>,
    /// The most resident bytes so far.
    pub peak_resident_bytes: Option<f64>,
    /// Resident bytes that were freed lazily: the kernel may take them at any time.
    pub lazyfree_bytes: Option<f64>,
    /// Bytes in huge pages.
    pub huge_bytes: Option<f64>,
    /// Minor faults since the start.
    pub minor_faults: Option<f64>,
    /// Major faults since the start.
    pub major_faults: Option<f64>,
    /// Time in user mode since the start.
    pub user_seconds: Option<f64>,
    /// Time in the system since the start.
    pub system_seconds: Option<f64>,
    /// Lines of /proc/self/maps.
    pub mappings: Option<f64>,
    /// (resident - baseline) / live - 1.
    pub overhead: Option<f64>,
    /// All other keys.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Checkpoint {
    /// A figure by its key, the experiment's own ones included.
    pub fn number(&self, key: &str) -> Option<f64> {
        match key {
            "x" => self.x,
            "operations" => self.operations,
            "seconds" => self.seconds,
            "operations_per_second" => self.operations_per_second,
            "latency_p50" => self.latency_ns.as_ref()?.p50,
            "latency_p99" => self.latency_ns.as_ref()?.p99,
            "latency_p999" => self.latency_ns.as_ref()?.p999,
            "latency_max" => self.latency_ns.as_ref()?.max,
            "live_bytes" => self.live_bytes,
            "resident_bytes" => self.resident_bytes,
            "peak_resident_bytes" => self.peak_resident_bytes,
            "lazyfree_bytes" => self.lazyfree_bytes,
            "huge_bytes" => self.huge_bytes,
            "faults" => Some(self.minor_faults? + self.major_faults.unwrap_or(0.0)),
            "user_seconds" => self.user_seconds,
            "system_seconds" => self.system_seconds,
            "mappings" => self.mappings,
            "overhead" => self.overhead,
            other => self.extra.get(other)?.as_f64(),
        }
    }
}

/// Reads one line.
pub fn parse(raw: &RawValue) -> Result<Line, LineError> {
    parse_text(raw.get())
}

/// Reads one line of text.
pub fn parse_text(text: &str) -> Result<Line, LineError> {
    let excerpt = || crate::words::excerpt(text, 80);
    let object: Map<String, Value> =
        serde_json::from_str(text).map_err(|_| LineError::NotAnObject { excerpt: excerpt() })?;
    match object.get("type").and_then(Value::as_str) {
        Some("start") => Ok(Line::Start(object)),
        Some("end") => Ok(Line::End(object)),
        Some("checkpoint") => serde_json::from_str(text)
            .map(Line::Checkpoint)
            .map_err(|error| LineError::BadCheckpoint {
                reason: error.to_string(),
                excerpt: excerpt(),
            }),
        Some(_) => Ok(Line::Other),
        None => Err(LineError::NoType { excerpt: excerpt() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_keeps_what_it_does_not_know() {
        let text = r#"{"type":"checkpoint","variant":"malloc","series":"s","index":1,"x":10,
            "minor_faults":3,"major_faults":1,"overhead":null,"depth":4,
            "latency_ns":{"p50":20,"p99":30,"p999":40,"max":50,"samples":9}}"#;
        let Line::Checkpoint(point) = parse_text(text).unwrap() else {
            panic!()
        };
        assert_eq!(point.number("faults"), Some(4.0));
        assert_eq!(point.number("latency_p99"), Some(30.0));
        assert_eq!(point.number("depth"), Some(4.0));
        assert_eq!(point.number("overhead"), None);
        assert_eq!(point.number("resident_bytes"), None);
    }

    #[test]
    fn what_is_no_line_says_what_it_is_instead() {
        assert!(matches!(
            parse_text("hello"),
            Err(LineError::NotAnObject { .. })
        ));
        assert!(matches!(
            parse_text("[1]"),
            Err(LineError::NotAnObject { .. })
        ));
        assert!(matches!(parse_text("{}"), Err(LineError::NoType { .. })));
        let wrong = r#"{"type":"checkpoint","seconds":"long"}"#;
        assert!(matches!(
            parse_text(wrong),
            Err(LineError::BadCheckpoint { .. })
        ));
        assert!(matches!(
            parse_text(r#"{"type":"remark"}"#),
            Ok(Line::Other)
        ));
    }
}
