//! Spans that hold blocks of several classes: a table of shards.

use loam_format::counters::raw::Raw;

/// The sums over all shards of mixed spans. Older libraries have one shard.
#[derive(Default)]
pub struct Mixed {
    /// Blocks by class.
    pub blocks: Vec<u64>,
    pub spans: u64,
    pub free_granules: u64,
    pub unbacked_pages: u64,
    pub taken: u64,
    pub given: u64,
}

impl Mixed {
    pub fn of(raw: &Raw) -> Option<Mixed> {
        let mut sum = Mixed::default();
        for row in raw.rows("mixed")? {
            let grow = |sum: &mut u64, field| {
                *sum = sum.saturating_add(row.get(field).unwrap_or(0));
            };
            grow(&mut sum.spans, "spans");
            grow(&mut sum.free_granules, "free_granules");
            grow(&mut sum.unbacked_pages, "unbacked_pages");
            grow(&mut sum.taken, "taken");
            grow(&mut sum.given, "given");
            let blocks = row.all("blocks");
            sum.blocks.resize(blocks.len().max(sum.blocks.len()), 0);
            for (class, more) in blocks.into_iter().enumerate() {
                sum.blocks[class] = sum.blocks[class].saturating_add(more);
            }
        }
        Some(sum)
    }
}
