//! What changed between two censuses.

use std::collections::BTreeMap;

use loam_format::units::bytes as of_bytes;
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

impl Change {
    /// What grows, how much, and how it is reached, in a sentence; none if it does not grow.
    pub fn in_words(&self) -> Option<String> {
        if self.bytes <= 0 {
            return None;
        }
        let amount = format!("{:+} blocks, +{}", self.blocks, of_bytes(self.bytes as f64));
        let lost = match self.lost_blocks {
            ..=0 => None,
            lost if lost >= self.blocks => {
                Some("no pointer leads to them: they are lost".to_owned())
            }
            lost => Some(format!("{lost} of them are lost")),
        };
        let path = (self.path.len() > 1).then(|| self.path.join(" -> "));
        Some(match (path, lost) {
            // The path is one to those that are held.
            (Some(path), None) => format!("{path}: {amount}"),
            (_, Some(lost)) => format!("{}: {amount}; {lost}", self.title()),
            (None, None) => format!("{}: {amount}", self.title()),
        })
    }

    /// The row's name, with what kind of row it is.
    pub fn title(&self) -> String {
        self.kind.title(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_with_its_path_or_as_lost() {
        let mut change = Change {
            name: "Session".into(),
            kind: Kind::Class,
            blocks: 6_021,
            bytes: 10 << 20,
            lost_blocks: 0,
            blocks_now: 7_000,
            bytes_now: 12 << 20,
            path: vec![
                "`sessions` (variable of app)".into(),
                "pointers of 24 B".into(),
                "Session".into(),
            ],
        };
        let said =
            "`sessions` (variable of app) -> pointers of 24 B -> Session: +6021 blocks, +10.0 MiB";
        assert_eq!(change.in_words().as_deref(), Some(said));
        change.lost_blocks = 6_021;
        let said = "Session: +6021 blocks, +10.0 MiB; no pointer leads to them: they are lost";
        assert_eq!(change.in_words().as_deref(), Some(said));
        change.bytes = -1;
        assert_eq!(change.in_words(), None);
    }
}
