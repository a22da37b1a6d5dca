//! Addresses for blocks of recordings that have none.

use std::collections::HashMap;

/// Where the first block lies: as good as any other, and no place of a program's.
const FIRST: u64 = 0x1_0000_0000;
/// Blocks are so far apart at least, as with common allocators.
const GRAIN: u64 = 16;

/// Hands out addresses. Live blocks have different ones; a freed place is used again for the same size.
#[derive(Debug)]
pub struct Places {
    freed: HashMap<u64, Vec<u64>>,
    fresh: u64,
}

impl Places {
    pub fn new() -> Places {
        Places {
            freed: HashMap::new(),
            fresh: FIRST,
        }
    }

    /// A place for so many bytes.
    pub fn take(&mut self, size: u64) -> u64 {
        let room = room(size);
        let freed = self.freed.get_mut(&room).and_then(Vec::pop);
        freed.unwrap_or_else(|| {
            let fresh = self.fresh;
            // A recording that claims more than all addresses begins anew: its blocks are not real either.
            self.fresh = fresh.checked_add(room).unwrap_or(FIRST);
            fresh
        })
    }

    /// The block of so many bytes there is gone.
    pub fn give(&mut self, address: u64, size: u64) {
        self.freed.entry(room(size)).or_default().push(address);
    }
}

fn room(size: u64) -> u64 {
    size.max(1).checked_next_multiple_of(GRAIN).unwrap_or(GRAIN)
}
