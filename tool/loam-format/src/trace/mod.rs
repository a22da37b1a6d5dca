//! The trace of a program's allocations: one file, written while the program runs, and read in one
//! pass. `formats/trace.md` explains the format and `formats/trace.toml` declares it. Tests hold
//! both equal to this code.
//!
//! ```text
//! Event -> encode (columns) -> chunk (zstd, checksum) -> Writer -> impl Write
//! impl Read -> Reader (chunks) -> decode -> Items (events, samples, processes)
//!           -> Ordered (live blocks)
//! ```
//!
//! A *stream* is one process image: a program after its start, its `exec` or its `fork`. The events
//! of a stream are in one order, that of the process. A *chunk* does not depend on other chunks: if
//! a chunk is lost, only its own events are lost. Times are nanoseconds since the recording began,
//! stored in units of `unit_ns`.
//!
//! Limits: the reader's memory is bounded by the largest chunk (`MAX_RAW`, `MAX_ROWS`) and by what
//! it holds of all streams' descriptions (`MOST_DESCRIBED`), never by a length that a file claims.

mod chunk;
mod columns;
mod decode;
mod encode;
mod event;
mod header;
mod items;
mod ordered;
mod predict;
mod reader;
mod table;
mod varint;
mod writer;

#[cfg(test)]
mod tests;

pub use chunk::{ChunkKind, FILE_HEAD, MAGIC, MAX_RAW, MAX_ROWS, VERSION};
pub use columns::Column;
pub use decode::DecodeError;
pub use encode::{Encoder, Source};
pub use event::{AllocFamily, Event, FreeFamily, Record};
pub use header::{Clock, End, Ended, Header, How, Mark, Module, Named, Origin, Process, Stay};
pub use items::{Batch, Item, Items, Wanted};
pub use ordered::{Act, Action, Block, ByAddress, Ordered, Repairs};
pub use reader::{Chunk, Damage, ReadError, Reader, Wrong};
pub use table::{chance, Frame, Sample, Stack, Touch};
pub use writer::{ColumnBytes, Statistics, Stream, WriteError, Writer};
