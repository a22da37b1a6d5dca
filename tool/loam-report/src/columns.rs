//! Texts in columns of a terminal. A character may be zero, one or two columns wide.

use unicode_truncate::{Alignment, UnicodeTruncateStr};
use unicode_width::UnicodeWidthStr;

/// How many columns a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// As much of the text as fits, padded on the right to this many columns.
pub fn left(text: &str, columns: usize) -> String {
    text.unicode_pad(columns, Alignment::Left, true)
        .into_owned()
}

/// As much of the text as fits, padded on the left to this many columns.
pub fn right(text: &str, columns: usize) -> String {
    // The text is cut at its end first, because padding on the left would cut its beginning.
    let cut = cut(text, columns);
    cut.unicode_pad(columns, Alignment::Right, false)
        .into_owned()
}

/// As much of the text as fits.
pub fn cut(text: &str, columns: usize) -> &str {
    text.unicode_truncate(columns).0
}

/// Lines of at most this many columns, broken at blanks. A word that is longer is broken anywhere.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(2);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let needed = width(word);
        if used > 0 && used + 1 + needed > columns {
            lines.push(String::new());
            used = 0;
        }
        if used > 0 {
            lines.last_mut().expect("never empty").push(' ');
            used += 1;
        }
        let mut rest = word;
        while used + width(rest) > columns {
            let piece = cut(rest, columns - used);
            if piece.is_empty() {
                break;
            }
            lines.last_mut().expect("never empty").push_str(piece);
            lines.push(String::new());
            (rest, used) = (&rest[piece.len()..], 0);
        }
        lines.last_mut().expect("never empty").push_str(rest);
        used += width(rest);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_takes_the_columns_that_it_is_given() {
        for text in [
            "",
            "ab",
            "名前がとても長い",
            "e\u{301}e\u{301}",
            "👨\u{200d}👩\u{200d}👧",
            "🇩🇪🇫🇷",
            "❤\u{fe0f}x",
        ] {
            for columns in 0..12 {
                assert_eq!(width(&left(text, columns)), columns, "{text} {columns}");
                assert_eq!(width(&right(text, columns)), columns, "{text} {columns}");
            }
        }
        assert_eq!(left("名前", 3), "名 ");
        assert_eq!(right("名前", 3), " 名");
        assert_eq!(right("12345", 3), "123");
    }

    #[test]
    fn lines_break_at_blanks_by_columns() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("名前 名前", 6), ["名前", "名前"]);
        assert_eq!(wrap("abcdefg h", 3), ["abc", "def", "g h"]);
        assert_eq!(wrap("", 9), [""]);
    }
}
