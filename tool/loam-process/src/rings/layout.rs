//! The numbers of `native/recorder/ring.h`; a test compares the two.

use loam_format::bytes::{text, u32_at, u64_at};

/// The first bytes of the drainer's page and of every file.
pub const MAGIC: u64 = 0x3147_4e49_524d_4c00;
/// The version of the interface.
pub const VERSION: u32 = 5;
/// The number of slots in a file.
pub const SLOTS: u64 = 65_536;
/// The length of the first page.
pub const CONTROL_BYTES: u64 = 4_096;
/// The length of a slot.
pub const SLOT_BYTES: u64 = 128;
/// The length of a unit.
pub const UNIT_BYTES: u64 = 16;
/// The place in a slot to which the drainer writes.
pub const TAIL_OFFSET: u64 = 64;
/// The possible sizes of a ring.
pub const RING_BYTES: [u64; 2] = [64 * 1024, 1024 * 1024];
/// The most bytes of a stack that are copied.
pub const STACK_BYTES: u64 = 32 * 1024;
/// How much of the first page is read.
pub const CONTROL_READ: usize = 1_416;

/// Where the drainer tells a process what that does not know itself.
pub const TOLD: u64 = 1_388;
/// The file is not drained any more.
pub const IS_LEFT: u32 = 1;
/// A filter restricts the process's system calls.
pub const IS_FILTERED: u32 = 2;

/// Offsets in the drainer's page.
pub mod session {
    /// Its heartbeat.
    pub const HEARTBEAT: u64 = 24;
    /// Whether recording has ended.
    pub const IS_OVER: u64 = 32;
    /// Bytes between two stacks, on average.
    pub const STACK_BYTES: usize = 40;
}

/// The contents of a file's first page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Control {
    /// The version of the interface.
    pub version: u32,
    /// The process.
    pub pid: u32,
    /// When it began, in ticks since the machine's start.
    pub start: u64,
    /// The rate of stamps; 0 if the processor does not tell it.
    pub ticks_per_second: u64,
    /// One moment by three clocks.
    pub stamp: u64,
    /// `CLOCK_MONOTONIC`.
    pub monotonic: u64,
    /// `CLOCK_REALTIME`.
    pub realtime: u64,
    /// By exec or by fork.
    pub how: u32,
    /// Running, ended, switched off.
    pub state: u32,
    /// Slots that may be in use.
    pub slots_made: u64,
    /// Events that found no room.
    pub lost: u64,
    /// The number of the fork in the parent; 0 if it was not announced.
    pub fork_number: u32,
    /// The parent's process.
    pub parent: u32,
    /// The parent's file.
    pub parent_file: String,
    /// Why recording was switched off.
    pub why: String,
    /// The program's file.
    pub program: String,
    /// The file of its real malloc.
    pub allocator: String,
    /// The inodes of its PID and time namespaces; 0: unknown.
    pub spaces: (u64, u64),
    /// The slot of the thread whose events may share stamps.
    pub holder: Option<usize>,
}

impl Control {
    /// Reads the page; `None` while its process still writes it.
    pub fn parse(page: &[u8]) -> Option<Control> {
        if u64_at(page, 0)? != MAGIC {
            return None;
        }
        Some(Control {
            version: u32_at(page, 8)?,
            pid: u32_at(page, 12)?,
            start: u64_at(page, 16)?,
            ticks_per_second: u64_at(page, 24)?,
            stamp: u64_at(page, 32)?,
            monotonic: u64_at(page, 40)?,
            realtime: u64_at(page, 48)?,
            how: u32_at(page, 56)?,
            state: u32_at(page, 60)?,
            slots_made: u64::from(u32_at(page, 64)?).min(SLOTS),
            lost: u64_at(page, 88)?,
            fork_number: u32_at(page, 96)?,
            parent: u32_at(page, 100)?,
            parent_file: text(page.get(104..136)?),
            why: text(page.get(136..392)?),
            program: text(page.get(392..904)?),
            allocator: text(page.get(904..1_388)?),
            spaces: (u64_at(page, 1_392)?, u64_at(page, 1_400)?),
            holder: (u32_at(page, 1_408)? as usize).checked_sub(1),
        })
    }
}

/// The contents of a slot for the drainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The bytes published so far.
    pub head: u64,
    /// The place of its ring.
    pub offset: u64,
    /// How large it is.
    pub bytes: u64,
}

impl Slot {
    /// Reads a slot; `None` while it has no ring, or an impossible one.
    pub fn parse(slot: &[u8]) -> Option<Slot> {
        let slot = Slot {
            head: u64_at(slot, 8)?,
            offset: u64_at(slot, 16)?,
            bytes: u64_at(slot, 24)?,
        };
        let is_sound = slot.offset >= CONTROL_BYTES
            && RING_BYTES.contains(&slot.bytes)
            && slot.head % UNIT_BYTES == 0;
        is_sound.then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::super::unit;
    use super::*;

    /// What the header declares, as a C compiler sees it.
    #[test]
    fn the_numbers_are_those_of_the_recorders_header() {
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../native/recorder/ring.h");
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("numbers.c");
        let mut code = format!("#include \"{header}\"\n");
        for (what, value) in [
            ("LOAM_RING_MAGIC", MAGIC),
            ("kRingVersion", VERSION.into()),
            ("kSlots", SLOTS),
            ("kControlBytes", CONTROL_BYTES),
            ("sizeof(Slot)", SLOT_BYTES),
            ("sizeof(Unit)", UNIT_BYTES),
            ("kSmallRing", RING_BYTES[0]),
            ("kLargeRing", RING_BYTES[1]),
            ("kStackBytes", STACK_BYTES),
            ("kStack", unit::STACK),
            ("kMark", unit::MARK),
            ("offsetof(Slot, head)", 8),
            ("offsetof(Slot, ring_offset)", 16),
            ("offsetof(Slot, ring_bytes)", 24),
            ("offsetof(Slot, tail)", TAIL_OFFSET),
            ("offsetof(Session, heartbeat)", session::HEARTBEAT),
            ("offsetof(Session, is_over)", session::IS_OVER),
            ("offsetof(Session, drops_when_full)", 36),
            (
                "offsetof(Session, stack_bytes)",
                session::STACK_BYTES as u64,
            ),
            ("offsetof(Control, pid)", 12),
            ("offsetof(Control, start)", 16),
            ("offsetof(Control, ticks_per_second)", 24),
            ("offsetof(Control, stamp)", 32),
            ("offsetof(Control, realtime)", 48),
            ("offsetof(Control, how)", 56),
            ("offsetof(Control, state)", 60),
            ("offsetof(Control, slots_made)", 64),
            ("offsetof(Control, lost)", 88),
            ("offsetof(Control, fork_number)", 96),
            ("offsetof(Control, parent)", 100),
            ("offsetof(Control, parent_file)", 104),
            ("offsetof(Control, why)", 136),
            ("offsetof(Control, program)", 392),
            ("offsetof(Control, allocator)", 904),
            ("offsetof(Control, told)", TOLD),
            ("kIsLeft", IS_LEFT.into()),
            ("kIsFiltered", IS_FILTERED.into()),
            ("offsetof(Control, space)", 1_392),
            ("offsetof(Control, time_space)", 1_400),
            ("offsetof(Control, lease)", 1_408),
        ] {
            code += &format!("_Static_assert(({what}) == UINT64_C({value}), \"{what}\");\n");
        }
        std::fs::write(&source, code).unwrap();
        let done = std::process::Command::new("cc")
            .args(["-std=c11", "-fsyntax-only"])
            .arg(&source)
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    #[test]
    fn what_can_be_no_ring_is_none() {
        let slot = |head: u64, offset: u64, bytes: u64| {
            let mut raw = [0; SLOT_BYTES as usize];
            raw[8..16].copy_from_slice(&head.to_le_bytes());
            raw[16..24].copy_from_slice(&offset.to_le_bytes());
            raw[24..32].copy_from_slice(&bytes.to_le_bytes());
            Slot::parse(&raw)
        };
        assert!(slot(16, 1 << 24, 65_536).is_some());
        assert_eq!(slot(16, 0, 65_536), None);
        assert_eq!(slot(16, 1 << 24, u64::MAX), None);
        assert_eq!(slot(15, 1 << 24, 65_536), None);
        assert_eq!(Control::parse(&[0; 16]), None);
    }
}
