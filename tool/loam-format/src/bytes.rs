//! Reads little-endian numbers and padded text from bytes that may end anywhere.

/// A number of four bytes.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let end = offset.checked_add(4)?;
    let word = bytes.get(offset..end)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

/// A number of eight bytes.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let end = offset.checked_add(8)?;
    let word = bytes.get(offset..end)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}

/// A number of 1, 2, 4 or 8 bytes.
pub fn number_at(bytes: &[u8], offset: usize, width: usize) -> Option<u64> {
    let end = offset.checked_add(width)?;
    let word = bytes.get(offset..end)?;
    let mut whole = [0; 8];
    whole.get_mut(..width)?.copy_from_slice(word);
    Some(u64::from_le_bytes(whole))
}

/// The text up to the first zero, made fit for a terminal.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let text = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]);
    crate::plain::printable(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_the_edge_are_none_and_no_panic() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(u32_at(&bytes, 4), Some(0x0807_0605));
        assert_eq!(u32_at(&bytes, 5), None);
        assert_eq!(u64_at(&bytes, usize::MAX), None);
        assert_eq!(number_at(&bytes, 6, 2), Some(0x0807));
        assert_eq!(number_at(&bytes, 0, 9), None);
        assert_eq!(text(b"ab\0c"), "ab");
        assert_eq!(text(b"\xff\x1b"), "\u{fffd}\u{fffd}");
    }
}
