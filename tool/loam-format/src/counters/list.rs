//! The declared list of counters, `formats/counters.toml`, as the tool was built with it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// The list. A tool whose own list can not be read is broken, and a test reads it.
pub static LIST: LazyLock<List> = LazyLock::new(|| {
    let text = include_str!("../../../../formats/counters.toml");
    toml::from_str(text).expect("formats/counters.toml is read by a test")
});

/// The file as a whole.
#[derive(Debug, Deserialize)]
pub struct List {
    /// The version of the list and of what a process shows.
    pub version: u32,
    /// The symbol by which it is found in a process.
    pub symbol: String,
    /// What a reader finds.
    #[serde(rename = "table")]
    pub tables: Vec<TableInfo>,
    /// Fields of those tables.
    pub fields: BTreeMap<String, Vec<FieldInfo>>,
    /// What formulas have a name for beside the counters.
    #[serde(rename = "quantity")]
    pub quantities: Vec<Quantity>,
    /// The counters, in the order of documents.
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
    /// The table whose records it is in.
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

/// A figure that is no counter and has a name in formulas.
#[derive(Debug, Deserialize)]
pub struct Quantity {
    /// The name.
    pub id: String,
    /// What it says.
    pub meaning: String,
    /// Its formula.
    pub derive: String,
}

/// How a counter behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows.
    Counter,
    /// A gauge between 0 and 1.
    Ratio,
}

/// What a counter is about.
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
    /// Raw fields, always there.
    #[default]
    Live,
    /// Known only while the program runs with `LOAM_SAMPLE`.
    Sampling,
    /// The system's word.
    System,
}

/// One counter.
#[derive(Debug, Deserialize)]
pub struct Counter {
    /// What files and programs call it.
    pub id: String,
    /// What it counts.
    pub unit: String,
    /// How it behaves.
    pub kind: Kind,
    /// What it is about.
    pub scope: Scope,
    /// Where it comes from.
    #[serde(default)]
    pub source: Source,
    /// What it says, in a sentence.
    pub meaning: String,
    /// Its formula, if one does.
    pub derive: Option<String>,
    /// Of a counter of heaps: the process's formula.
    pub of_process: Option<String>,
    /// How it comes about, where a formula does not do.
    pub found: Option<String>,
    /// Its name among the counters of the Windows Heap object.
    pub perfmon: Option<String>,
    /// Its name for the exporter, without a counter's `_total`; none: not exported.
    pub openmetrics: Option<String>,
}

/// One distribution over powers of two, or over eighths.
#[derive(Debug, Deserialize)]
pub struct Histogram {
    /// What files and programs call it.
    pub id: String,
    /// What it counts.
    pub unit: String,
    /// What it is about.
    pub scope: Scope,
    /// Where it comes from.
    #[serde(default)]
    pub source: Source,
    /// What it says, in a sentence.
    pub meaning: String,
    /// Its name for the exporter; none: not exported.
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
