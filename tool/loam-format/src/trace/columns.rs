//! The columns of a chunk of events, and the bits of an event's operation byte.
//!
//! ```text
//!   bit  7      6 5 4    3 2 1 0
//!      +------+--------+---------+     kind      detail               flag
//!      | flag | kind   | detail  |     allocate  family               failed
//!      +------+--------+---------+     free      family               touched pages are known
//!                                      from      0                    touched pages are known
//!                                      to        0 moved, 1 in place  failed
//!                                      existing, begins, ends: 0      0
//!                                      other     0 fork, 1 exec,      an extra follows
//!                                                2 dropped, 3 trim    (from 3 on)
//! ```

/// Kinds, shifted to their place.
pub const ALLOCATE: u8 = 0 << 4;
/// A free.
pub const FREE: u8 = 1 << 4;
/// The first half of a resize.
pub const FROM: u8 = 2 << 4;
/// The second half of a resize.
pub const TO: u8 = 3 << 4;
/// A block that lived before recording began.
pub const EXISTING: u8 = 4 << 4;
/// A thread's first event.
pub const BEGINS: u8 = 5 << 4;
/// A thread's last event.
pub const ENDS: u8 = 6 << 4;
/// A rare event; the detail says which.
pub const OTHER: u8 = 7 << 4;

/// The bits of the kind.
pub const KIND: u8 = 0x70;
/// The bits of the detail.
pub const DETAIL: u8 = 0x0f;
/// The flag.
pub const FLAG: u8 = 0x80;

/// Detail of `TO`: the block stays where it is, and no address is stored.
pub const IN_PLACE: u8 = 1;
/// Detail of `OTHER`.
pub const FORK: u8 = 0;
/// Detail of `OTHER`.
pub const EXEC: u8 = 1;
/// Detail of `OTHER`.
pub const DROPPED: u8 = 2;
/// Detail of `OTHER`.
pub const TRIM: u8 = 3;

/// The columns of a chunk of events, in the file's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Column {
    /// One byte for each event.
    Operation,
    /// Runs of events of one thread: the thread, and the number of events.
    Thread,
    /// Units since the event before.
    Time,
    /// Requested bytes.
    Size,
    /// The logarithm of the alignment, plus one. 0: the alignment is not a power of two, and
    /// follows.
    Alignment,
    /// Resident pages.
    Touched,
    /// The size of a sized free minus the block's own size; the child of a fork; a number of
    /// dropped events.
    Extra,
    /// The address of an allocated block.
    Address,
    /// The block that is freed.
    Freed,
}

impl Column {
    /// All columns, in the file's order.
    pub const ALL: [Column; 9] = [
        Column::Operation,
        Column::Thread,
        Column::Time,
        Column::Size,
        Column::Alignment,
        Column::Touched,
        Column::Extra,
        Column::Address,
        Column::Freed,
    ];

    /// The name in the declared list.
    pub fn name(self) -> &'static str {
        match self {
            Column::Operation => "operation",
            Column::Thread => "thread",
            Column::Time => "time",
            Column::Size => "size",
            Column::Alignment => "alignment",
            Column::Touched => "touched",
            Column::Extra => "extra",
            Column::Address => "address",
            Column::Freed => "freed",
        }
    }
}
