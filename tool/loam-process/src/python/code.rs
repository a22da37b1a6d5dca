//! The names and lines of CPython's code objects, read from the process's memory.
//!
//! A code is believed if its type is that of codes, the instruction lies in it, and its names are
//! texts and its lines are bytes by their types. Nothing else is told.

use std::collections::HashMap;

use loam_format::bytes::{u32_at, u64_at};
use loam_format::memory::Memory;
use loam_format::trace::Named;

use super::layout::Layout;
use super::Interpreter;

/// Bytes of a code before its instructions, at most.
pub const MOST_HEAD: u64 = 512;
/// The longest text, in characters; the longest table of lines; the most instructions and lines.
const LONGEST_TEXT: u64 = 1_024;
const LONGEST_LINES: u64 = 1 << 20;
const MOST_INSTRUCTIONS: u64 = 1 << 24;
const MOST_LINES: u32 = 1 << 24;
/// More codes than these are not remembered.
const MOST_CODES: usize = 1 << 16;
/// Where every object has its type, and those of variable length their length and content.
const TYPE: usize = 8;
const LENGTH: usize = 16;
const CONTENT: u64 = 32;
/// Bytes of an instruction.
const UNIT: u64 = 2;

/// What must not have changed of a code that is known by its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    length: u64,
    file: u64,
    name: u64,
    lines: u64,
    first_line: u32,
}

#[derive(Debug)]
struct Function {
    head: Head,
    file: String,
    name: String,
    lines: Vec<u8>,
    /// Numbers by instruction.
    numbers: HashMap<u64, u64>,
}

/// The functions that were seen, each place in them with a number.
#[derive(Debug, Default)]
pub struct Codes {
    functions: HashMap<u64, Function>,
    numbers: HashMap<(String, String, u32), u64>,
}

impl Codes {
    /// The number of a place in the code, and its name if the number is new. None: it is not
    /// believed to be one.
    pub fn number(
        &mut self,
        interpreter: &Interpreter,
        memory: &impl Memory,
        code: u64,
        instruction: u64,
    ) -> Option<(u64, Option<Named>)> {
        let layout = &interpreter.layout;
        let begin = code.checked_add(layout.instructions)?;
        let head = head(interpreter, memory, code)?;
        // Before its first instruction a frame of 3.11 or 3.12 tells the place before.
        let offset = instruction.wrapping_add(UNIT).wrapping_sub(begin);
        if offset % UNIT != 0 || offset > head.length * UNIT {
            return None;
        }
        let unit = (offset / UNIT).saturating_sub(1);
        if self.functions.len() >= MOST_CODES {
            self.functions.clear();
        }
        let is_known = self
            .functions
            .get(&code)
            .is_some_and(|one| one.head == head);
        if !is_known {
            let function = Function {
                head,
                file: text(interpreter, memory, head.file)?,
                name: text(interpreter, memory, head.name)?,
                lines: bytes(interpreter, memory, head.lines)?,
                numbers: HashMap::new(),
            };
            self.functions.insert(code, function);
        }
        let function = self.functions.get_mut(&code)?;
        if let Some(number) = function.numbers.get(&unit) {
            return Some((*number, None));
        }
        let line = line(&function.lines, head.first_line, unit).unwrap_or(head.first_line);
        let next = self.numbers.len() as u64 + 1;
        let key = (function.file.clone(), function.name.clone(), line);
        let number = *self.numbers.entry(key).or_insert(next);
        function.numbers.insert(unit, number);
        let named = (number == next).then(|| {
            let file = function.file.rsplit('/').next().unwrap_or_default();
            Named {
                address: number,
                name: format!("{} ({file}:{line})", function.name),
                file: Some(function.file.clone()),
                line: Some(line),
            }
        });
        Some((number, named))
    }
}

fn head(interpreter: &Interpreter, memory: &impl Memory, code: u64) -> Option<Head> {
    let layout = &interpreter.layout;
    let record = memory.bytes(code, layout.instructions as usize).ok()?;
    let word = |at: u64| u64_at(&record, at as usize);
    let head = Head {
        length: u64_at(&record, LENGTH)?,
        file: word(layout.file)?,
        name: word(layout.name)?,
        lines: word(layout.lines)?,
        first_line: u32_at(&record, layout.first_line as usize)?,
    };
    let is_code = u64_at(&record, TYPE)? == interpreter.code_type
        && (1..MOST_INSTRUCTIONS).contains(&head.length)
        && head.first_line < MOST_LINES;
    is_code.then_some(head)
}

/// A text of letters that people can read.
fn text(interpreter: &Interpreter, memory: &impl Memory, address: u64) -> Option<String> {
    let Layout {
        text_kind,
        text_shift,
        characters,
        ..
    } = interpreter.layout;
    let record = memory.bytes(address, characters[0] as usize).ok()?;
    let length = u64_at(&record, LENGTH)?;
    let bits = u32_at(&record, text_kind as usize)? >> text_shift;
    let (width, is_compact, is_ascii) = (bits & 7, bits >> 3 & 1 == 1, bits >> 4 & 1 == 1);
    let is_text = u64_at(&record, TYPE)? == interpreter.text_type
        && is_compact
        && matches!(width, 1 | 2 | 4)
        && (!is_ascii || width == 1)
        && (1..=LONGEST_TEXT).contains(&length);
    if !is_text {
        return None;
    }
    let at = address.checked_add(characters[usize::from(!is_ascii)])?;
    let bytes = memory.bytes(at, length as usize * width as usize).ok()?;
    let letters = bytes.chunks_exact(width as usize).map(|letter| {
        let number = letter
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        char::from_u32(number).filter(|letter| !letter.is_control())
    });
    letters.collect()
}

fn bytes(interpreter: &Interpreter, memory: &impl Memory, address: u64) -> Option<Vec<u8>> {
    let record = memory.bytes(address, CONTENT as usize).ok()?;
    let length = u64_at(&record, LENGTH)?;
    let is_bytes = u64_at(&record, TYPE)? == interpreter.bytes_type && length <= LONGEST_LINES;
    is_bytes.then(|| {
        memory
            .bytes(address.checked_add(CONTENT)?, length as usize)
            .ok()
    })?
}

/// The line of an instruction, by a table as of PEP 626: entries of some instructions each, with
/// the distance to the line of the entry before. None: it belongs to no line, or the table is cut.
fn line(table: &[u8], first: u32, unit: u64) -> Option<u32> {
    /// Kinds of entries: those with a whole number as distance, without a column and with it, and
    /// one without a line. Those from `NEAR` on are as many lines further.
    const NEAR: u8 = 10;
    const FAR: u8 = 13;
    const FAR_WITH_COLUMNS: u8 = 14;
    const NOWHERE: u8 = 15;
    let (mut line, mut begin, mut at) = (i64::from(first), 0, 0);
    loop {
        let head = *table.get(at)?;
        if head & 0x80 == 0 {
            return None;
        }
        at += 1;
        let kind = head >> 3 & 15;
        if matches!(kind, FAR | FAR_WITH_COLUMNS) {
            let mut number = 0u64;
            for shift in (0..60).step_by(6) {
                let part = *table.get(at)?;
                at += 1;
                number |= u64::from(part & 63) << shift;
                if part & 64 == 0 {
                    break;
                }
            }
            let size = (number >> 1) as i64;
            line += if number & 1 == 1 { -size } else { size };
        } else if (NEAR..FAR).contains(&kind) {
            line += i64::from(kind - NEAR);
        }
        begin += u64::from(head & 7) + 1;
        if unit < begin {
            let is_somewhere = kind != NOWHERE;
            return u32::try_from(line).ok().filter(|_| is_somewhere);
        }
        // Columns: only the heads of entries have their highest bit.
        at += table
            .get(at..)?
            .iter()
            .take_while(|byte| **byte & 0x80 == 0)
            .count();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use loam_format::memory::ReadError;
    use proptest::prelude::*;

    use super::super::layout::tests::table;
    use super::*;

    const CODE_TYPE: u64 = 0x1000;
    const TEXT_TYPE: u64 = 0x2000;
    const BYTES_TYPE: u64 = 0x3000;

    #[derive(Default)]
    struct Fake(BTreeMap<u64, Vec<u8>>);

    impl Memory for Fake {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
            let length = buffer.len();
            let found = self
                .0
                .range(..=address)
                .next_back()
                .and_then(|(begin, all)| {
                    let from = (address - begin) as usize;
                    all.get(from..from + length)
                });
            buffer.copy_from_slice(found.ok_or(ReadError::Unmapped { address, length })?);
            Ok(())
        }
    }

    fn put(bytes: &mut [u8], at: u64, value: u64, width: usize) {
        bytes[at as usize..at as usize + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }

    fn interpreter(minor: u8) -> Interpreter {
        Interpreter {
            layout: Layout::of(minor, &table(minor)).unwrap(),
            runtime: 0,
            code_type: CODE_TYPE,
            text_type: TEXT_TYPE,
            bytes_type: BYTES_TYPE,
        }
    }

    fn object(kind: u64, length: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        put(&mut bytes, TYPE as u64, kind, 8);
        put(&mut bytes, LENGTH as u64, length, 8);
        bytes
    }

    fn letters(layout: &Layout, text: &str) -> Vec<u8> {
        let letters: Vec<u16> = text.encode_utf16().collect();
        let is_ascii = text.is_ascii();
        let width = if is_ascii { 1 } else { 2 };
        let begin = layout.characters[usize::from(!is_ascii)] as usize;
        let mut bytes = object(
            TEXT_TYPE,
            letters.len() as u64,
            begin + width * letters.len(),
        );
        let bits = width as u64 | 8 | if is_ascii { 16 } else { 0 };
        put(&mut bytes, layout.text_kind, bits << layout.text_shift, 4);
        for (place, letter) in letters.iter().enumerate() {
            put(
                &mut bytes,
                (begin + place * width) as u64,
                u64::from(*letter),
                width,
            );
        }
        bytes
    }

    /// A function of ten instructions at `0x10000`, whose lines are 7, 9, none, 4, 4.
    fn function(layout: &Layout, name: &str) -> Fake {
        let mut code = object(CODE_TYPE, 10, layout.instructions as usize + 20);
        put(&mut code, layout.file, 0x20000, 8);
        put(&mut code, layout.name, 0x30000, 8);
        put(&mut code, layout.lines, 0x40000, 8);
        put(&mut code, layout.first_line, 7, 4);
        // Two instructions each, in all kinds of entries: with columns, two lines further, without
        // a line, five lines back, and short.
        let lines = [
            0x80 | 10 << 3 | 1,
            4,
            9,
            0x80 | 12 << 3 | 1,
            4,
            9,
            0x80 | 15 << 3 | 1,
            0x80 | 13 << 3 | 1,
            5 << 1 | 1,
            0x80 | 2 << 3 | 1,
            0x11,
        ];
        let mut table = object(BYTES_TYPE, lines.len() as u64, 32);
        table.extend(lines);
        let parts = [
            (0x10000, code),
            (0x20000, letters(layout, "/srv/app.py")),
            (0x30000, letters(layout, name)),
            (0x40000, table),
        ];
        Fake(parts.into_iter().collect())
    }

    #[test]
    fn functions_of_all_versions_have_names_and_lines() {
        for minor in 11..=14 {
            let interpreter = interpreter(minor);
            let memory = function(&interpreter.layout, "Шоп.handle");
            let mut codes = Codes::default();
            let begin = 0x10000 + interpreter.layout.instructions;
            let mut at = |unit: u64| {
                let place = begin.wrapping_add(unit.wrapping_mul(UNIT));
                codes.number(&interpreter, &memory, 0x10000, place)
            };
            let (number, named) = at(1).unwrap();
            let named = named.unwrap();
            assert_eq!((number, named.address, named.line), (1, 1, Some(7)));
            assert_eq!(named.name, "Шоп.handle (app.py:7)");
            assert_eq!(named.file.as_deref(), Some("/srv/app.py"));
            // The place before the first instruction, and the same line again.
            assert_eq!(at(u64::MAX), Some((1, None)));
            assert_eq!(at(0), Some((1, None)));
            let lines = [3, 4, 6, 8].map(|unit| at(unit).unwrap().1.and_then(|named| named.line));
            assert_eq!(lines, [Some(9), None, Some(4), None]);
            // Behind its end, and between two instructions.
            assert_eq!(at(11), None);
            assert_eq!(
                codes.number(&interpreter, &memory, 0x10000, begin + 1),
                None
            );
        }
    }

    #[test]
    fn what_is_not_a_code_by_its_types_has_no_name() {
        let interpreter = interpreter(12);
        let begin = 0x10000 + interpreter.layout.instructions;
        for part in [0x10000, 0x20000, 0x30000, 0x40000] {
            for place in [TYPE, LENGTH] {
                let mut memory = function(&interpreter.layout, "handle");
                let bytes = memory.0.get_mut(&part).unwrap();
                put(bytes, place as u64, 1 << 40, 8);
                let found = Codes::default().number(&interpreter, &memory, 0x10000, begin);
                assert_eq!(found, None, "{part:x} {place}");
            }
        }
    }

    #[test]
    fn another_function_at_the_place_of_one_that_went_has_its_own_name() {
        let interpreter = interpreter(13);
        let begin = 0x10000 + interpreter.layout.instructions;
        let mut memory = function(&interpreter.layout, "handle");
        let mut codes = Codes::default();
        let number = |codes: &mut Codes, memory: &Fake| {
            codes.number(&interpreter, memory, 0x10000, begin).unwrap()
        };
        assert_eq!(number(&mut codes, &memory).0, 1);
        let other = letters(&interpreter.layout, "serve");
        memory.0.insert(0x50000, other);
        let code = memory.0.get_mut(&0x10000).unwrap();
        put(code, interpreter.layout.name, 0x50000, 8);
        let (second, named) = number(&mut codes, &memory);
        assert_eq!(
            (second, named.unwrap().name.as_str()),
            (2, "serve (app.py:7)")
        );
    }

    proptest! {
        #[test]
        fn any_table_of_lines_is_read_without_a_fault(
            table in proptest::collection::vec(any::<u8>(), 0..64),
            first in any::<u32>(),
            unit in 0u64..200,
        ) {
            let _ = line(&table, first, unit);
        }
    }
}
