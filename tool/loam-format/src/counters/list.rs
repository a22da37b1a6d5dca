//! The list of counters in `formats/counters.toml`, as it was when the tool was built.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// The list. A tool that can not read its own list is broken; a test reads it.
pub static LIST: LazyLock<List> = LazyLock::new(|| {
    let text = include_str!("../../../../formats/counters.toml");
    toml::from_str(text).expect("formats/counters.toml is read by a test")
});

/// The whole file.
#[derive(Debug, Deserialize)]
pub struct List {
    /// The version of the list and of the data in a process.
    pub version: u32,
    /// The symbol of the directory in a process.
    pub symbol: String,
    /// The tables that a reader finds in a process.
    #[serde(rename = "table")]
    pub tables: Vec<TableInfo>,
    /// Fields of those tables.
    pub fields: BTreeMap<String, Vec<FieldInfo>>,
    /// Quantities: named figures of formulas that are not counters.
    #[serde(rename = "quantity")]
    pub quantities: Vec<Quantity>,
    /// The counters, in the order of the documents.
    #[serde(rename = "counter")]
    pub counters: Vec<Counter>,
    /// Distributions.
    #[serde(rename = "histogram")]
    pub histograms: Vec<Histogram>,
}

/// A table of records in a process.
#[derive(Debug, Deserialize)]
pub struct TableInfo {
    /// Its name in the directory.
    pub name: String,
    /// How its records lie.
    pub kind: String,
    /// Whether each record has a lock word.
    #[serde(default)]
    pub lock: bool,
    /// The table of the parent's records.
    pub parent: Option<String>,
}

/// A field of a table.
#[derive(Debug, Deserialize)]
pub struct FieldInfo {
    /// Its name in the directory.
    pub name: String,
    /// What it counts.
    pub unit: String,
}

/// A figure that is not a counter, but has a name in formulas.
#[derive(Debug, Deserialize)]
pub struct Quantity {
    /// The name.
    pub id: String,
    /// What it means.
    pub meaning: String,
    /// Its formula.
    pub derive: String,
}

/// How a counter behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It goes up and down.
    Gauge,
    /// It only grows.
    Counter,
    /// A gauge between 0 and 1.
    Ratio,
}

/// The scope of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The process only.
    Process,
    /// Each heap, and the sum for the process.
    Heap,
    /// Each size class of a heap.
    Class,
    /// Each lock.
    Lock,
}

/// Where a counter comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Raw fields, which are always present.
    #[default]
    Live,
    /// Known only while the program runs with `LOAM_SAMPLE`.
    Sampling,
    /// A figure of the system.
    System,
}

/// One counter.
#[derive(Debug, Deserialize)]
pub struct Counter {
    /// The name in files and for programs.
    pub id: String,
    /// What it counts.
    pub unit: String,
    /// How it behaves.
    pub kind: Kind,
    /// Its scope.
    pub scope: Scope,
    /// Where it comes from.
    #[serde(default)]
    pub source: Source,
    /// Its meaning, in a sentence.
    pub meaning: String,
    /// Its formula, if it has one.
    pub derive: Option<String>,
    /// For a counter of heaps: the formula for the process.
    pub of_process: Option<String>,
    /// How it is obtained, if not by a formula.
    pub found: Option<String>,
    /// Its name among the counters of the Windows Heap object.
    pub perfmon: Option<String>,
    /// Its name in the exporter, without the suffix `_total` of counters; none: not exported.
    pub openmetrics: Option<String>,
}

/// One distribution over powers of two, or over eighths.
#[derive(Debug, Deserialize)]
pub struct Histogram {
    /// The name in files and for programs.
    pub id: String,
    /// What it counts.
    pub unit: String,
    /// Its scope.
    pub scope: Scope,
    /// Where it comes from.
    #[serde(default)]
    pub source: Source,
    /// Its meaning, in a sentence.
    pub meaning: String,
    /// Its name in the exporter; none: not exported.
    pub openmetrics: Option<String>,
}

impl List {
    /// The counter of that id.
    pub fn counter(&self, id: &str) -> Option<&Counter> {
        self.counters.iter().find(|counter| counter.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_and_every_counter_is_there_once() {
        let mut ids: Vec<&str> = LIST
            .counters
            .iter()
            .map(|counter| counter.id.as_str())
            .collect();
        ids.extend(
            LIST.histograms
                .iter()
                .map(|histogram| histogram.id.as_str()),
        );
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert!(count > 80 && ids.len() == count);
        assert_eq!(LIST.version, 1);
    }

    #[test]
    fn all_counters_of_the_windows_heap_object_have_a_successor() {
        let named = LIST
            .counters
            .iter()
            .filter(|counter| counter.perfmon.is_some());
        assert_eq!(named.count(), 24);
    }
}
