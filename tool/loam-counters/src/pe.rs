//! Finds the block `loam_counters` in a program or a library of Windows that Wine has mapped.
//!
//! Wine maps the headers from the file and may read the rest into anonymous memory, so all parts
//! are read where they lie in the process. The process has no names of symbols, so the variables
//! are searched for the block.

use loam_format::bytes::{number_at, u32_at};
use loam_format::memory::{Memory, ReadError};

/// `IMAGE_DOS_HEADER`, with the offset of `IMAGE_NT_HEADERS`, and `IMAGE_SECTION_HEADER` of
/// <winnt.h>.
const OFFSET_OF_REST: usize = 0x3c;
const FILE_HEADER: usize = 24;
const SECTION: usize = 40;
/// `IMAGE_SCN_MEM_WRITE`.
const WRITABLE: u32 = 0x8000_0000;
/// The loader accepts no file with more sections.
const MOST_SECTIONS: u64 = 96;

/// Whether a file of that name may be a Windows program or library.
pub fn may_be(file_name: &str) -> bool {
    let name = file_name.to_ascii_lowercase();
    name.ends_with(".exe") || name.ends_with(".dll")
}

/// The places of the file's variables: offset from the first byte, and length. None if it is no
/// such file.
pub fn variables(memory: &impl Memory, start: u64) -> Result<Option<Vec<(u64, u64)>>, ReadError> {
    let first = memory.bytes(start, 64)?;
    let Some(rest) = u32_at(&first, OFFSET_OF_REST).filter(|_| first.starts_with(b"MZ")) else {
        return Ok(None);
    };
    let rest = start.wrapping_add(u64::from(rest));
    let header = memory.bytes(rest, FILE_HEADER)?;
    let sections = number_at(&header, 6, 2).unwrap_or(0);
    let optional = number_at(&header, 20, 2).unwrap_or(0);
    if !header.starts_with(b"PE\0\0") || sections > MOST_SECTIONS {
        return Ok(None);
    }
    let table = rest.wrapping_add(FILE_HEADER as u64 + optional);
    let bytes = memory.bytes(table, sections as usize * SECTION)?;
    let place = |section: &[u8]| {
        let length = u32_at(section, 8)?;
        let offset = u32_at(section, 12)?;
        let is_writable = u32_at(section, 36)? & WRITABLE != 0;
        is_writable.then_some((u64::from(offset), u64::from(length)))
    };
    Ok(Some(
        bytes.chunks_exact(SECTION).filter_map(place).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
            let (from, length) = (address as usize, buffer.len());
            let found = self.0.get(from..from.saturating_add(length));
            buffer.copy_from_slice(found.ok_or(ReadError::Unmapped { address, length })?);
            Ok(())
        }
    }

    fn image(sections: &[(u32, u32, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[..2].copy_from_slice(b"MZ");
        bytes[OFFSET_OF_REST] = 0x80;
        bytes[0x80..0x84].copy_from_slice(b"PE\0\0");
        bytes[0x86] = sections.len() as u8;
        bytes[0x94] = 0xf0;
        for (number, (length, offset, flags)) in sections.iter().enumerate() {
            let at = 0x80 + FILE_HEADER + 0xf0 + number * SECTION;
            for (place, word) in [(8, length), (12, offset), (36, flags)] {
                bytes[at + place..at + place + 4].copy_from_slice(&word.to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn what_may_be_written_is_where_variables_are() {
        let image = image(&[
            (0x100, 0x1000, 0x6000_0020),
            (0x200, 0x2000, 0xc000_0040),
            (0x300, 0x3000, 0x4000_0040),
            (0x400, 0x4000, 0xc000_0080),
        ]);
        let found = variables(&Bytes(image), 0).unwrap();
        assert_eq!(found, Some(vec![(0x2000, 0x200), (0x4000, 0x400)]));
    }

    #[test]
    fn other_files_have_none() {
        for damage in [0, 0x80, OFFSET_OF_REST + 1] {
            let mut image = image(&[(1, 1, WRITABLE)]);
            image[damage] = 1;
            let found = variables(&Bytes(image), 0);
            assert!(!matches!(found, Ok(Some(_))), "{damage:#x}");
        }
        assert!(may_be("Program.EXE") && may_be("loam.dll") && !may_be("libloam.so"));
    }
}
