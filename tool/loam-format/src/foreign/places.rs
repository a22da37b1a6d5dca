//! Makes up addresses for blocks of recordings that have none.

use std::collections::HashMap;

/// The address of the first block. Any address serves that no real program uses.
const FIRST: u64 = 0x1_0000_0000;
/// The least distance of two blocks, as in common allocators.
const GRAIN: u64 = 16;

/// Hands out addresses. Live blocks have different ones. A freed place is used again for the same
/// size.
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

    /// A place for a block of this size.
    pub fn take(&mut self, size: u64) -> u64 {
        let room = room(size);
        let freed = self.freed.get_mut(&room).and_then(Vec::pop);
        freed.unwrap_or_else(|| {
            let fresh = self.fresh;
            // A recording whose blocks exceed the address space starts again: such blocks are not
            // real anyway.
            self.fresh = fresh.checked_add(room).unwrap_or(FIRST);
            fresh
        })
    }

    /// The block of this size at the address has ended.
    pub fn give(&mut self, address: u64, size: u64) {
        self.freed.entry(room(size)).or_default().push(address);
    }
}

fn room(size: u64) -> u64 {
    size.max(1).checked_next_multiple_of(GRAIN).unwrap_or(GRAIN)
}
