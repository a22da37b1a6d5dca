//! What changed between two censuses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::census::Census;
use crate::types::Kind;

/// How a row changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The row's name.
    pub name: String,
    /// How it is known.
    pub kind: Kind,
    /// Blocks more than before.
    pub blocks: i64,
    /// Bytes with parts, more than before.
    pub bytes: i64,
    /// Lost blocks, more than before.
    pub lost_blocks: i64,
    /// Blocks now.
    pub blocks_now: u64,
    /// Bytes with parts now.
    pub bytes_now: u64,
    /// From a root to one of them, as the later census has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
}

/// The changes of rows, those by most bytes first.
pub fn of(before: &Census, after: &Census) -> Vec<Change> {
    let mut rows: BTreeMap<(Kind, &str), Change> = BTreeMap::new();
    for (census, sign) in [(before, -1), (after, 1)] {
        for row in &census.rows {
            let change = rows.entry((row.kind, &row.name)).or_insert_with(|| Change {
                name: row.name.clone(),
                kind: row.kind,
                blocks: 0,
                bytes: 0,
                lost_blocks: 0,
                blocks_now: 0,
                bytes_now: 0,
                path: Vec::new(),
            });
            let signed = |value: u64| sign * i64::try_from(value).unwrap_or(i64::MAX);
            change.blocks = change.blocks.saturating_add(signed(row.blocks));
            change.bytes = change.bytes.saturating_add(signed(row.with_parts_bytes));
            change.lost_blocks = change.lost_blocks.saturating_add(signed(row.lost_blocks));
            if sign > 0 {
                change.blocks_now = row.blocks;
                change.bytes_now = row.with_parts_bytes;
                change.path.clone_from(&row.path);
            }
        }
    }
    let mut changes: Vec<Change> = rows.into_values().collect();
    changes.retain(|one| one.blocks != 0 || one.bytes != 0);
    changes.sort_by_key(|one| {
        std::cmp::Reverse((one.bytes.unsigned_abs(), one.blocks.unsigned_abs()))
    });
    changes
}
