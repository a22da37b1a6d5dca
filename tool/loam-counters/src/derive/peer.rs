//! The figures of another allocator, which a helper publishes under the names of our counters (`native/peer`).

use loam_format::counters::list::LIST;
use loam_format::counters::raw::{Raw, Row};

use crate::snapshot::{HeapFigures, Snapshot};

/// The table that has them: one record, one field a counter.
pub const TABLE: &str = "peer";

/// What the record says. A counter without a field is not known, and names that this reader does not know are left out.
pub fn snapshot(raw: &Raw, row: &Row<'_>) -> Snapshot {
    let mut snapshot = Snapshot {
        library: raw.directory.library.clone(),
        format_version: raw.directory.version,
        is_peer: true,
        ..Snapshot::default()
    };
    for counter in &LIST.counters {
        snapshot
            .process
            .set_known(&*counter.id, row.get(&counter.id));
    }
    snapshot.heaps = vec![HeapFigures {
        name: "default".to_owned(),
        values: snapshot.process.clone(),
        ..HeapFigures::default()
    }];
    snapshot
}
