//! The figures of another allocator, which a helper publishes under the names of our counters
//! (`native/peer`).

use loam_format::counters::list::LIST;
use loam_format::counters::raw::{Raw, Row};

use crate::snapshot::{HeapFigures, Snapshot};

/// The table of a peer's figures: one record with one field for each counter.
pub const TABLE: &str = "peer";

/// The figures of the record. A counter without a field is unknown. Names that this reader does not
/// know are left out.
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
