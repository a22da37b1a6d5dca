//! The events of a program.

use serde::{Serialize, Serializer};

/// The function that allocated. The numbers are those in the file and never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AllocFamily {
    /// `malloc`, and `realloc` of a null pointer.
    Malloc = 0,
    /// `calloc`: zeroed.
    Calloc = 1,
    /// `memalign`, `aligned_alloc`, `posix_memalign`.
    Aligned = 2,
    /// `valloc`, `pvalloc`.
    Valloc = 3,
    /// `operator new`.
    New = 4,
    /// `operator new[]`.
    NewArray = 5,
    /// `operator new(std::align_val_t)`.
    AlignedNew = 6,
    /// `operator new[](std::align_val_t)`.
    AlignedNewArray = 7,
}

impl AllocFamily {
    /// All families, by number.
    pub const ALL: [AllocFamily; 8] = [
        AllocFamily::Malloc,
        AllocFamily::Calloc,
        AllocFamily::Aligned,
        AllocFamily::Valloc,
        AllocFamily::New,
        AllocFamily::NewArray,
        AllocFamily::AlignedNew,
        AllocFamily::AlignedNewArray,
    ];

    /// The name in the declared list.
    pub fn name(self) -> &'static str {
        match self {
            AllocFamily::Malloc => "malloc",
            AllocFamily::Calloc => "calloc",
            AllocFamily::Aligned => "aligned",
            AllocFamily::Valloc => "valloc",
            AllocFamily::New => "new",
            AllocFamily::NewArray => "new[]",
            AllocFamily::AlignedNew => "aligned-new",
            AllocFamily::AlignedNewArray => "aligned-new[]",
        }
    }

    /// Whether its events carry an alignment.
    pub const fn is_aligned(self) -> bool {
        matches!(
            self,
            AllocFamily::Aligned
                | AllocFamily::Valloc
                | AllocFamily::AlignedNew
                | AllocFamily::AlignedNewArray
        )
    }
}

/// The function that freed. The numbers are those in the file and never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FreeFamily {
    /// `free`, `cfree`.
    Free = 0,
    /// `free_sized`, `free_aligned_sized`.
    FreeSized = 1,
    /// `operator delete` without a size.
    Delete = 2,
    /// `operator delete` with a size.
    DeleteSized = 3,
    /// `operator delete[]` without a size.
    DeleteArray = 4,
    /// `operator delete[]` with a size.
    DeleteArraySized = 5,
}

impl FreeFamily {
    /// All families, by number.
    pub const ALL: [FreeFamily; 6] = [
        FreeFamily::Free,
        FreeFamily::FreeSized,
        FreeFamily::Delete,
        FreeFamily::DeleteSized,
        FreeFamily::DeleteArray,
        FreeFamily::DeleteArraySized,
    ];

    /// The name in the declared list.
    pub fn name(self) -> &'static str {
        match self {
            FreeFamily::Free => "free",
            FreeFamily::FreeSized => "free-sized",
            FreeFamily::Delete => "delete",
            FreeFamily::DeleteSized => "delete-sized",
            FreeFamily::DeleteArray => "delete[]",
            FreeFamily::DeleteArraySized => "delete[]-sized",
        }
    }

    /// Whether its events carry the size that the caller gave.
    pub fn is_sized(self) -> bool {
        self as u8 & 1 == 1
    }
}

impl Serialize for AllocFamily {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Serialize for FreeFamily {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One event. Addresses are the program's own. A failed allocation has address 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A block was handed out. `alignment` is 0 for families without one.
    Allocate {
        /// The function.
        family: AllocFamily,
        /// The address; 0: the request failed.
        address: u64,
        /// Bytes asked for.
        size: u64,
        /// The requested alignment; 0 unless the family is an aligned one.
        alignment: u64,
    },
    /// A block is about to be freed.
    Free {
        /// The function.
        family: FreeFamily,
        /// The block.
        address: u64,
        /// The size that the caller gave, for sized families; 0 otherwise.
        size: u64,
        /// Number of its resident pages, if a look counted them.
        touched: Option<u64>,
    },
    /// A block is about to be resized. It does not count as live until the same thread's
    /// `ResizeTo`.
    ///
    /// A resize is two events, because another thread may be given the old place before `realloc`
    /// returns.
    ResizeFrom {
        /// The block.
        address: u64,
        /// Number of its resident pages, if a look counted them.
        touched: Option<u64>,
    },
    /// The resize of the same thread is done.
    ResizeTo {
        /// The block's new address. 0: the request failed, and the block keeps its address and
        /// size.
        address: u64,
        /// Bytes asked for.
        size: u64,
    },
    /// A block that was live before recording began.
    Existing {
        /// Its address.
        address: u64,
        /// Its bytes.
        size: u64,
    },
    /// The thread's first event.
    ThreadBegins,
    /// The thread's last event.
    ThreadEnds,
    /// The process forked; the child's events are a stream of their own.
    Fork {
        /// The child's stream, or `u32::MAX` if it is not known.
        child: u32,
    },
    /// The process is about to become another program.
    Exec,
    /// Events of this thread that were not recorded.
    Dropped {
        /// How many.
        count: u64,
    },
    /// The program is about to ask its allocator to give memory back (`malloc_trim`).
    Trim {
        /// Bytes to keep at the top.
        keep: u64,
    },
}

/// An event with its time and thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Record {
    /// Nanoseconds since the recording began.
    pub time: u64,
    /// The thread, numbered within its stream from 0.
    pub thread: u32,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}
