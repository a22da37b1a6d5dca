//! The counters of one process at one moment.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use loam_format::counters::formula::Number;
use loam_format::counters::ids;

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Bytes, operations and the like.
    Whole(u64),
    /// Ratios and rates.
    Real(f64),
}

impl Value {
    /// As a number to calculate with.
    pub fn real(self) -> f64 {
        match self {
            Value::Whole(value) => value as f64,
            Value::Real(value) => value,
        }
    }
}

/// Figures by the ids of `formats/counters.toml`, in their order. A missing figure is unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values(Vec<(Cow<'static, str>, Value)>);

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl Values {
    fn put(&mut self, id: Cow<'static, str>, value: Value) {
        // Most figures are set in the order of their ids.
        if self.0.last().is_none_or(|(last, _)| *last < id) {
            return self.0.push((id, value));
        }
        match self.0.binary_search_by(|(known, _)| known.cmp(&id)) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (id, value)),
        }
    }

    /// Sets a whole number.
    pub fn set(&mut self, id: impl Into<Cow<'static, str>>, value: u64) {
        self.put(id.into(), Value::Whole(value));
    }

    /// Sets a ratio or a rate, unless it is not a number.
    pub fn set_real(&mut self, id: impl Into<Cow<'static, str>>, value: f64) {
        if value.is_finite() {
            self.put(id.into(), Value::Real(value));
        }
    }

    /// Sets a whole number if it is known.
    pub fn set_known(&mut self, id: impl Into<Cow<'static, str>>, value: Option<u64>) {
        if let Some(value) = value {
            self.set(id, value);
        }
    }

    /// Sets the result of a formula, if it is known.
    pub fn set_number(&mut self, id: &'static str, value: Option<Number>) {
        match value {
            Some(Number::Whole(value)) => self.set(id, value),
            Some(Number::Real(value)) => self.set_real(id, value),
            None => {}
        }
    }

    /// A whole number, if it is known.
    pub fn known(&self, id: &str) -> Option<u64> {
        self.get(id).map(|_| self.whole(id))
    }

    /// The figure, if it is known.
    pub fn get(&self, id: &str) -> Option<Value> {
        let place = self.0.binary_search_by(|(known, _)| (**known).cmp(id));
        place.ok().map(|place| self.0[place].1)
    }

    /// A whole number; 0 if it is not known.
    pub fn whole(&self, id: &str) -> u64 {
        match self.get(id) {
            Some(Value::Whole(value)) => value,
            Some(Value::Real(value)) if value > 0.0 => value as u64,
            _ => 0,
        }
    }

    /// A number to calculate with, if it is known.
    pub fn real(&self, id: &str) -> Option<f64> {
        self.get(id).map(Value::real)
    }

    /// Every figure that is known.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value)> {
        self.0.iter().map(|(id, value)| (&**id, *value))
    }
}

/// The figures of one size class.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ClassFigures {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The counters of scope `class`.
    #[serde(flatten)]
    pub values: Values,
    /// Spans by their share of used slots, in eighths; the last are full.
    pub occupancy: Vec<u64>,
    /// Pages of a span of the class, with those that a partial span lacks.
    #[serde(skip)]
    pub span_pages: u64,
    /// Slots of such a span.
    #[serde(skip)]
    pub span_slots: u64,
    /// Spans without a used slot. Libraries that do not tell them count as having none.
    #[serde(skip)]
    pub empty_spans: u64,
}

impl ClassFigures {
    /// Bytes in blocks that are not live: free, cached, and behind the last slots.
    pub fn waste(&self) -> u64 {
        let blocks = self
            .values
            .whole(ids::CLASS_FREE_BLOCKS)
            .saturating_add(self.values.whole(ids::CLASS_CACHED_BLOCKS));
        blocks
            .saturating_mul(self.block_bytes)
            .saturating_add(self.values.whole(ids::CLASS_TAIL_BYTES))
            .saturating_sub(self.values.whole(ids::CLASS_UNBACKED_BYTES))
    }

    /// Bytes in live blocks.
    pub fn live_bytes(&self) -> u64 {
        self.values
            .whole(ids::CLASS_LIVE_BLOCKS)
            .saturating_mul(self.block_bytes)
    }
}

/// The figures of one heap.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HeapFigures {
    /// 0 is the default heap.
    pub number: u64,
    /// The program's name for it; the default heap is `default`.
    pub name: String,
    /// The counters of scope `heap`.
    pub values: Values,
    /// Classes that have spans or ever had blocks.
    pub classes: Vec<ClassFigures>,
}

impl HeapFigures {
    /// The name for people, never empty.
    pub fn label(&self) -> String {
        if self.name.is_empty() {
            format!("heap {}", self.number)
        } else {
            self.name.clone()
        }
    }
}

/// The figures of one lock.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LockFigures {
    /// `class-48`, `page_heap`...
    pub name: String,
    /// The heap that it belongs to; none for locks that all heaps share.
    pub heap: Option<u64>,
    /// Acquisitions.
    pub taken: u64,
    /// Acquisitions that had to wait.
    pub waited: u64,
    /// Tries that found the lock taken and did not wait for it.
    pub refused: u64,
}

impl LockFigures {
    /// Whether the lock was never taken. A heap has a lock for each size class, and most programs
    /// never take most of them.
    pub fn is_unused(&self) -> bool {
        self.taken + self.waited + self.refused == 0
    }
}

/// All counters of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// The library's own version, as text.
    pub library: String,
    /// The version of the format in the process.
    pub format_version: u32,
    /// Whether another allocator reports these figures (`loam run --allocator`): `library` is then
    /// its name and version.
    pub is_peer: bool,
    /// Whether every table was read at a moment when no thread changed it.
    pub consistent: bool,
    /// The age of free runs, extents and records, if this look did not read them.
    #[serde(skip)]
    pub age: Option<Duration>,
    /// Counters of scope `process`, and the sums of those of scope `heap`.
    pub process: Values,
    /// The heaps, the default heap first.
    pub heaps: Vec<HeapFigures>,
    /// Every lock.
    pub locks: Vec<LockFigures>,
    /// Distributions, by id.
    pub histograms: BTreeMap<String, Vec<u64>>,
    /// What could not be read, and the consequences.
    pub notes: Vec<String>,
    /// Address ranges of blocks: start and end.
    #[serde(skip)]
    pub block_ranges: Vec<(u64, u64)>,
    /// Address ranges into which the heap may grow. In a program that locks its memory they are not
    /// reserved, and anything may lie there.
    #[serde(skip)]
    pub reserved_ranges: Vec<(u64, u64)>,
    /// Address ranges of free pages, without those in parked runs.
    #[serde(skip)]
    pub free_ranges: Arc<Vec<(u64, u64)>>,
    /// Bytes in these that the heap counts as backed.
    #[serde(skip)]
    pub free_backed_bytes: u64,
    /// Addresses of records. The mappings around them, without the blocks, are the heap's metadata.
    #[serde(skip)]
    pub record_addresses: Vec<u64>,
}

impl Snapshot {
    /// The allocator's name and version.
    pub fn allocator(&self) -> String {
        match self.is_peer {
            true => self.library.clone(),
            false => format!("Loam {}", self.library).trim_end().to_owned(),
        }
    }

    /// The allocator's name.
    pub fn family(&self) -> &str {
        let name = self
            .library
            .rsplit_once(' ')
            .map_or(self.library.as_str(), |(name, _)| name);
        if self.is_peer {
            name
        } else {
            "Loam"
        }
    }

    /// Whether it reports live bytes, so that the heap's memory can be divided by its use.
    pub fn is_accounted(&self) -> bool {
        !self.is_peer || self.process.get(ids::LIVE_BYTES).is_some()
    }

    /// The heap of that number or name.
    pub fn heap(&self, wanted: &str) -> Option<&HeapFigures> {
        self.heaps
            .iter()
            .find(|heap| heap.name == wanted || heap.number.to_string() == wanted)
    }
}
