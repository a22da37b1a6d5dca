//! The free bytes that a Loam heap keeps between live blocks, by size class.
//!
//! ```text
//! sum of classes + mixed spans = span_free_bytes + span_tail_bytes - unbacked_bytes
//! ```

use anyhow::{anyhow, bail, Result};
use loam_format::counters::ids;
use loam_process::allocator::GLIBC;
use loam_process::process::Identity;
use serde::Serialize;

use crate::snapshot::{ClassFigures, HeapFigures, Snapshot};
use crate::view::View;

/// A size class, summed over all heaps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Class {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Free bytes in backed pages of its spans.
    pub free_bytes: u64,
    /// Blocks that the program holds.
    pub live_blocks: u64,
    /// Bytes of these blocks.
    pub live_bytes: u64,
    /// Spans.
    pub spans: u64,
}

/// The free bytes of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The classes, those with the most free bytes first.
    pub classes: Vec<Class>,
    /// Free bytes in backed pages of spans that serve several classes.
    pub mixed_bytes: u64,
    /// The sum over classes and mixed spans.
    pub free_bytes: u64,
    /// Freed bytes in threads' caches. They are not part of `free_bytes`.
    pub cached_bytes: u64,
}

/// What a process allocates with, as far as its blocks can be seen.
#[derive(Debug)]
pub enum Seen {
    /// glibc's malloc: its heap can be walked.
    Glibc,
    /// Loam: its counters.
    Loam(Kept),
}

/// Looks which heap a process has; an error where its blocks can not be seen.
pub fn heap_of(identity: &Identity) -> Result<Seen> {
    let view = View::of(identity.clone())?;
    if let Some(snapshot) = view.snapshot().filter(|found| !found.is_peer) {
        return Ok(Seen::Loam(of(snapshot)));
    }
    view.counters.as_ref().map_err(|error| anyhow!("{error}"))?;
    let allocator = view.allocator.as_ref();
    let name = allocator.map_or("an unknown allocator", |one| &one.name);
    if name == GLIBC {
        return Ok(Seen::Glibc);
    }
    let (program, pid) = (&identity.name, identity.key.pid);
    if allocator.is_some_and(|one| !one.can_be_preceded()) {
        bail!(
            "{program} ({pid}) is on {name}, whose blocks neither a look from outside nor a \
             preloaded recorder sees: `loam record --pid {pid}` samples which blocks stay"
        );
    }
    bail!(
        "{program} ({pid}) is on {name}, whose blocks can not be seen from outside: record it with \
         `loam record --stacks -- COMMAND`, and name the trace instead"
    )
}

/// Computes the figures over all heaps.
pub fn of(snapshot: &Snapshot) -> Kept {
    let mut kept = Kept::default();
    for heap in &snapshot.heaps {
        kept.free_bytes += free(heap);
        kept.cached_bytes += heap.values.whole(ids::CACHED_BYTES);
        for class in &heap.classes {
            add(&mut kept.classes, class);
        }
    }
    let of_classes: u64 = kept.classes.iter().map(|class| class.free_bytes).sum();
    kept.mixed_bytes = kept.free_bytes.saturating_sub(of_classes);
    kept.classes
        .sort_by_key(|class| std::cmp::Reverse((class.free_bytes, class.block_bytes)));
    kept
}

fn free(heap: &HeapFigures) -> u64 {
    let value = |id| heap.values.whole(id);
    (value(ids::SPAN_FREE_BYTES) + value(ids::SPAN_TAIL_BYTES))
        .saturating_sub(value(ids::UNBACKED_BYTES))
}

fn add(classes: &mut Vec<Class>, figures: &ClassFigures) {
    let value = |id| figures.values.whole(id);
    let bytes = figures.block_bytes;
    let free = value(ids::CLASS_FREE_BLOCKS) * bytes + value(ids::CLASS_TAIL_BYTES);
    let place = classes.iter().position(|class| class.block_bytes == bytes);
    let place = place.unwrap_or_else(|| {
        classes.push(Class {
            block_bytes: bytes,
            ..Class::default()
        });
        classes.len() - 1
    });
    let class = &mut classes[place];
    class.free_bytes += free.saturating_sub(value(ids::CLASS_UNBACKED_BYTES));
    class.live_blocks += value(ids::CLASS_LIVE_BLOCKS);
    class.live_bytes += value(ids::CLASS_LIVE_BLOCKS) * bytes;
    class.spans += value(ids::CLASS_SPANS);
}
