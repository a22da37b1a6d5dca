//! Where CPython 3.11 to 3.14 keep what leads to their frames.
//!
//! From 3.13 on the runtime begins with a table of its own offsets (`_Py_DebugOffsets`). For 3.11
//! and 3.12 they are constants: a minor version never changes them.

use loam_format::bytes::u64_at;

/// Bytes of a table that are read.
pub const TABLE: usize = 8 * 84;
/// How it begins.
const COOKIE: &[u8; 8] = b"xdebugpy";
/// Bytes of a frame that hold what is told of it; no version has more.
pub const FRAME: u64 = 88;
/// No record of an interpreter is longer. 3.13 has 0x50000 bytes.
const LONGEST: u64 = 1 << 24;

/// How it is told which Python frames a frame of C executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// In 3.11: by records on the stack of C, which lead to each other. Where such a record has its
    /// Python frame, and the record before it. The last Python frame of each says so.
    Records {
        /// The Python frame.
        frame: u64,
        /// The record before.
        before: u64,
    },
    /// From 3.12 on: by a frame without a function on the stack of C.
    Shims,
}

/// Offsets, each from the begin of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The version is 3 and this.
    pub minor: u8,
    /// How Python frames belong to frames of C.
    pub bounds: Bounds,
    /// Of the runtime: its first interpreter.
    pub interpreters: u64,
    /// Of an interpreter: the next one.
    pub next_interpreter: u64,
    /// Of an interpreter: its first thread.
    pub threads: u64,
    /// Of a thread: the next one.
    pub next_thread: u64,
    /// Of a thread: its interpreter.
    pub interpreter: u64,
    /// Of a thread: the number that the kernel gave it.
    pub number: u64,
    /// Of a thread: the record on the stack of C (3.11, 3.12), or the innermost frame.
    pub current: u64,
    /// Of that record: the innermost frame.
    pub of_record: Option<u64>,
    /// Of a frame: its code.
    pub code: u64,
    /// Of a frame: the one that called it.
    pub previous: u64,
    /// Of a frame: its instruction.
    pub instruction: u64,
    /// Of a frame, a byte: whose it is; in 3.11 whether it is the last of its frame of C.
    pub kind: u64,
    /// Of a code: the file's name, the function's, the lines.
    pub file: u64,
    /// The same for the function's name.
    pub name: u64,
    /// The same for its lines.
    pub lines: u64,
    /// Of a code: its first line.
    pub first_line: u64,
    /// Of a code: its instructions.
    pub instructions: u64,
    /// Of a text: its kind, in bits.
    pub text_kind: u64,
    /// The lowest of these bits that is read.
    pub text_shift: u32,
    /// Of a text: its characters, if all are ASCII, and otherwise.
    pub characters: [u64; 2],
}

/// The owner of a frame without a function: the stack of C. 3.14 has two such.
const OWNER_SHIM: u8 = 3;

impl Layout {
    /// That of a version, by the first bytes of its runtime if it has a table. None: an unknown
    /// version, or a build without a lock of the interpreter, whose records differ.
    pub fn of(minor: u8, runtime: &[u8]) -> Option<Layout> {
        match minor {
            11 => Some(Layout {
                minor,
                bounds: Bounds::Records {
                    frame: 8,
                    before: 16,
                },
                interpreters: 40,
                next_interpreter: 0,
                threads: 16,
                next_thread: 8,
                interpreter: 16,
                number: 160,
                current: 56,
                of_record: Some(8),
                code: 32,
                previous: 48,
                instruction: 56,
                kind: 68,
                file: 112,
                name: 128,
                lines: 136,
                first_line: 72,
                instructions: 184,
                text_kind: 32,
                text_shift: 2,
                characters: [48, 72],
            }),
            12 => Some(Layout {
                minor,
                bounds: Bounds::Shims,
                interpreters: 40,
                next_interpreter: 0,
                threads: 72,
                next_thread: 8,
                interpreter: 16,
                number: 144,
                current: 56,
                of_record: Some(0),
                code: 0,
                previous: 8,
                instruction: 56,
                kind: 70,
                file: 112,
                name: 128,
                lines: 136,
                first_line: 68,
                instructions: 192,
                text_kind: 32,
                text_shift: 2,
                characters: [40, 56],
            }),
            13 => Layout::told(minor, runtime, [3, 6, 19, 28, 34, 67]),
            14 => Layout::told(minor, runtime, [3, 6, 22, 31, 39, 77]),
            _ => None,
        }
    }

    /// From a table. `groups`: the words at which it tells of the runtime, of interpreters,
    /// threads, frames, codes and texts.
    fn told(minor: u8, table: &[u8], groups: [usize; 6]) -> Option<Layout> {
        let word = |at: usize| u64_at(table, 8 * at);
        let is_of_version = word(1)? >> 16 == 0x0300 | u64::from(minor);
        let is_free_threaded = word(2)? != 0;
        if table.get(..8)? != COOKIE || !is_of_version || is_free_threaded {
            return None;
        }
        // The first word of a group is the record's length, within which the others lie.
        let of = |group: usize, place: usize| {
            let length = word(groups[group])?;
            let offset = word(groups[group] + place)?;
            (length <= LONGEST && offset < length).then_some(offset)
        };
        let ascii = word(groups[5] + 3).filter(|bytes| *bytes <= FRAME)?;
        let found = Layout {
            minor,
            bounds: Bounds::Shims,
            interpreters: of(0, 2)?,
            next_interpreter: of(1, 2)?,
            threads: of(1, 3)?,
            next_thread: of(2, 2)?,
            interpreter: of(2, 3)?,
            current: of(2, 4)?,
            number: of(2, 6)?,
            of_record: None,
            previous: of(3, 1)?,
            code: of(3, 2)?,
            instruction: of(3, 3)?,
            kind: of(3, 5)?,
            file: of(4, 1)?,
            name: of(4, 3)?,
            lines: of(4, 4)?,
            first_line: of(4, 5)?,
            instructions: of(4, 9)?,
            text_kind: of(5, 1)?,
            text_shift: if minor >= 14 { 16 } else { 2 },
            characters: [ascii, ascii + 16],
        };
        let of_frame = [found.previous, found.code, found.instruction, found.kind];
        let is_near = of_frame.iter().all(|offset| offset + 8 <= FRAME);
        (is_near && found.instructions <= super::code::MOST_HEAD).then_some(found)
    }

    /// Whether a frame of this kind is that of a function.
    pub fn is_function(&self, kind: u8) -> bool {
        matches!(self.bounds, Bounds::Records { .. }) || kind < OWNER_SHIM
    }

    /// Whether a frame of this kind ends those of its frame of C.
    pub fn is_end(&self, kind: u8) -> bool {
        match self.bounds {
            Bounds::Records { .. } => kind != 0,
            Bounds::Shims => kind >= OWNER_SHIM,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The table of 3.13.0, or one of 3.14, with what CPython's headers say on x86-64.
    pub fn table(minor: u8) -> Vec<u8> {
        let groups_13: [&[u64]; 7] = [
            &[0x3_0d00, 0],
            &[282_296, 720, 632],
            &[
                274_144, 7_256, 7_264, 7_344, 7_584, 8_232, 8_288, 8_296, 7_536, 0, 0, 0, 0,
            ],
            &[336, 0, 8, 16, 72, 152, 160, 232, 36],
            &[80, 8, 0, 56, 72, 70],
            &[208, 112, 120, 128, 136, 68, 48, 96, 104, 200],
            &[
                16, 8, 416, 24, 88, 168, 32, 24, 16, 40, 24, 16, 48, 32, 40, 24, 16, 32, 16, 24,
                40, 16, 32, 64, 32, 16, 40,
            ],
        ];
        let groups_14: [&[u64]; 7] = [
            &[0x3_0e00, 0],
            &[389_312, 800, 688],
            &[
                288_000, 7_400, 7_408, 7_456, 7_472, 7_600, 8_240, 8_288, 8_296, 7_536, 0, 0, 0, 0,
                0, 0,
            ],
            &[480, 0, 8, 16, 72, 152, 160, 232, 36],
            &[88, 8, 0, 56, 80, 74, 64, 0],
            &[216, 112, 120, 128, 136, 68, 48, 96, 104, 208, 0],
            &[
                16, 8, 416, 24, 88, 168, 32, 24, 24, 40, 24, 16, 200, 24, 40, 32, 48, 32, 40, 24,
                16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40,
            ],
        ];
        let groups = if minor == 13 { groups_13 } else { groups_14 };
        let mut words: Vec<u64> = groups.concat();
        words[0] = words[0] << 8 | 0x00f0;
        let mut table = COOKIE.to_vec();
        table.extend(words.into_iter().flat_map(u64::to_le_bytes));
        table.resize(TABLE, 0);
        table
    }

    #[test]
    fn tables_of_versions_are_read() {
        let of = |minor: u8| Layout::of(minor, &table(minor)).unwrap();
        let (old, new) = (of(13), of(14));
        assert_eq!((old.interpreters, new.interpreters), (632, 688));
        assert_eq!((old.threads, new.threads), (7_344, 7_456));
        assert_eq!((old.current, old.number, new.number), (72, 160, 160));
        assert_eq!((old.kind, new.kind), (70, 74));
        assert_eq!((old.instructions, new.instructions), (200, 208));
        assert_eq!((old.characters, new.characters), ([40, 56], [40, 56]));
        assert_eq!((old.text_kind, old.text_shift, new.text_shift), (32, 2, 16));
        for minor in [11, 12] {
            assert_eq!(Layout::of(minor, &[]).unwrap().minor, minor);
        }
        for minor in [10, 15] {
            assert_eq!(Layout::of(minor, &table(14)), None);
        }
    }

    #[test]
    fn a_table_that_is_not_believed_gives_nothing() {
        let with = |at: usize, value: u64| {
            let mut table = table(13);
            table[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
            Layout::of(13, &table)
        };
        assert!(with(27, 5).is_some());
        // The cookie, the version, no lock, an offset behind its record, and one far away.
        let wrong = [
            (0, 1),
            (1, 0x030e_00f0),
            (2, 1),
            (23, 336),
            (5, 1 << 30),
            (33, 86),
        ];
        for (at, value) in wrong {
            assert_eq!(with(at, value), None, "{at}");
        }
        assert_eq!(Layout::of(13, &table(13)[..100]), None);
    }
}
