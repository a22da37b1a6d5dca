//! What the bytes of a block without a type look like.

use crate::names;

/// How much of a block is looked at.
pub const LOOKED_AT: usize = 512;

/// What bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Content {
    /// Nothing of the others.
    Bytes,
    /// All are zero.
    Zeros,
    /// They can be printed, from the beginning to a zero.
    Text,
    /// Most words lead to blocks.
    Pointers,
    /// Most words are small integers or usual floating-point numbers.
    Numbers,
    /// They begin as such files begin.
    Image,
    /// See `Image`.
    Compressed,
    /// See `Image`.
    Document,
    /// See `Image`.
    Executable,
    /// See `Image`.
    Data,
    /// See `Image`.
    Media,
}

/// How files begin.
const MAGIC: [(&[u8], Content); 25] = [
    (b"\x89PNG\r\n\x1a\n", Content::Image),
    (b"\xff\xd8\xff", Content::Image),
    (b"GIF87a", Content::Image),
    (b"GIF89a", Content::Image),
    (b"II*\0", Content::Image),
    (b"MM\0*", Content::Image),
    (b"PK\x03\x04", Content::Compressed),
    (b"\x1f\x8b\x08", Content::Compressed),
    (b"\x28\xb5\x2f\xfd", Content::Compressed),
    (b"\x04\x22\x4d\x18", Content::Compressed),
    (b"BZh9", Content::Compressed),
    (b"\xfd7zXZ\0", Content::Compressed),
    (b"%PDF-", Content::Document),
    (b"\x7fELF", Content::Executable),
    (b"\0asm", Content::Executable),
    (b"\xca\xfe\xba\xbe", Content::Executable),
    (b"\x1bLua", Content::Executable),
    (b"SQLite format 3\0", Content::Data),
    (b"PAR1", Content::Data),
    (b"ARROW1", Content::Data),
    (b"\x89HDF\r\n\x1a\n", Content::Data),
    (b"\x93NUMPY", Content::Data),
    (b"RIFF", Content::Media),
    (b"OggS", Content::Media),
    (b"fLaC", Content::Media),
];

impl Content {
    /// All, in the order of their numbers.
    pub const ALL: [Content; 11] = [
        Content::Bytes,
        Content::Zeros,
        Content::Text,
        Content::Pointers,
        Content::Numbers,
        Content::Image,
        Content::Compressed,
        Content::Document,
        Content::Executable,
        Content::Data,
        Content::Media,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Content::Bytes => "bytes",
            Content::Zeros => "zeros",
            Content::Text => "text",
            Content::Pointers => "pointers",
            Content::Numbers => "numbers",
            Content::Image => "image file",
            Content::Compressed => "compressed file",
            Content::Document => "document file",
            Content::Executable => "executable file",
            Content::Data => "data file",
            Content::Media => "media file",
        }
    }

    /// What these bytes, the first ones of a block of that size, look like. `is_block` says whether
    /// a word leads to a block.
    pub fn of(bytes: &[u8], size: u64, mut is_block: impl FnMut(u64) -> bool) -> Content {
        let bytes = &bytes[..bytes.len().min(LOOKED_AT)];
        if bytes.iter().all(|byte| *byte == 0) {
            return Content::Zeros;
        }
        let begins = |magic: &[u8]| magic.first() == bytes.first() && bytes.starts_with(magic);
        let known = MAGIC.iter().find(|(magic, _)| begins(magic));
        if let Some((_, content)) = known {
            return *content;
        }
        if is_text(bytes) {
            return Content::Text;
        }
        let words = bytes.chunks_exact(8).filter_map(|word| word.first_chunk());
        let words = words.map(|word| u64::from_le_bytes(*word));
        let (mut some, mut pointers, mut numbers) = (0, 0, 0);
        for word in words.filter(|word| *word != 0) {
            some += 1;
            if is_block(word) {
                pointers += 1;
            } else if is_number(word) {
                numbers += 1;
            }
        }
        match some {
            0 => Content::Bytes,
            some if 2 * pointers > some => Content::Pointers,
            some if 4 * numbers >= 3 * some && size >= 16 => Content::Numbers,
            _ => Content::Bytes,
        }
    }
}

/// Bytes for people: as text if they are one, else as words in hexadecimal digits. Nothing in it
/// can speak to a terminal.
pub fn shown(bytes: &[u8]) -> String {
    if is_text(bytes) {
        let end = bytes.iter().position(|byte| *byte == 0);
        let text = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned();
        return format!("{:?}", names::printable(&text, LOOKED_AT));
    }
    let word = |word: &[u8]| {
        let digits = word.iter().rev().map(|byte| format!("{byte:02x}"));
        digits.collect::<String>()
    };
    bytes.chunks(8).map(word).collect::<Vec<_>>().join(" ")
}

/// At least four characters before a zero, or up to the end.
fn is_text(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|byte| *byte == 0);
    let text = &bytes[..end.unwrap_or(bytes.len())];
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t');
    if text.len() < 4 {
        return false;
    }
    if text.iter().all(|byte| is_plain(*byte)) {
        return true;
    }
    // The end may cut a character off.
    let valid = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && end.is_none() => {
            std::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or("")
        }
        Err(_) => return false,
    };
    valid.len() >= 8
        && valid
            .chars()
            .all(|one| !one.is_control() || "\n\r\t".contains(one))
}

/// Whether a word is an integer of 20 bits, two floats, or a double of a usual size.
fn is_number(word: u64) -> bool {
    let half = |word: u32| {
        let exponent = (word >> 23) & 0xff;
        !(1 << 20..=u32::MAX - (1 << 20)).contains(&word) || (97..=157).contains(&exponent)
    };
    let exponent = (word >> 52) & 0x7ff;
    (993..=1063).contains(&exponent) || half(word as u32) && half((word >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_and_can_not_speak_to_the_terminal() {
        assert_eq!(shown(b"a name\0\x1b[2J"), "\"a name\"");
        assert_eq!(shown(b"ab\x1b[2J"), "4a325b1b6261");
        assert!(!shown("ein Text \u{202e}mit Wendung".as_bytes()).contains('\u{202e}'));
        assert_eq!(shown(&[1, 0, 0, 0, 0, 0, 0, 0, 2]), "0000000000000001 02");
    }

    #[test]
    fn contents_are_told_apart() {
        let look =
            |bytes: &[u8]| Content::of(bytes, bytes.len() as u64, |word| word == 0x5555_0010);
        assert_eq!(look(&[0; 64]), Content::Zeros);
        assert_eq!(look(b"a name\0\x13\x88\xff"), Content::Text);
        assert_eq!(look("Grüße aus Köln".as_bytes()), Content::Text);
        assert_eq!(look(b"\x89PNG\r\n\x1a\n\0\0"), Content::Image);
        let words = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        };
        assert_eq!(
            look(&words(&[0x5555_0010, 0, 0x5555_0010, 7])),
            Content::Pointers
        );
        assert_eq!(look(&words(&[3, 17, 99, 1000])), Content::Numbers);
        let doubles: Vec<u64> = [1.5_f64, -300.25, 2e9, 1e-6].map(f64::to_bits).to_vec();
        assert_eq!(look(&words(&doubles)), Content::Numbers);
        assert_eq!(look(&[0x9d; 64]), Content::Bytes);
        for (place, content) in Content::ALL.iter().enumerate() {
            assert_eq!(*content as usize, place);
        }
    }
}
