//! Makes texts from outside fit for a terminal: names of files and processes, arguments, contents
//! of files.
//!
//! A character that is not visible is written as JSON writes it, `\u001b`: characters that control
//! a terminal, reorder a line (U+202E), break it, are invisible or not assigned. The same form is
//! valid in JSON, where it means the character.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

/// Whether the character is visible. Rust's `Debug` knows this: it leaves only printable characters
/// as they are. It would also escape combining marks, but not after another character.
pub fn shows(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let mut pair = [b'a', 0, 0, 0, 0];
    let length = 1 + c.encode_utf8(&mut pair[1..]).len();
    let pair = std::str::from_utf8(&pair[..length]).unwrap_or_default();
    pair.escape_debug().nth(1) == Some(c)
}

/// The text as a single line.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| None)
}

/// The name of a file, for a message.
pub fn path(path: &Path) -> String {
    line(&path.to_string_lossy()).into_owned()
}

/// The last check before a terminal. It lets through lines, tabs and the three styles that we use:
/// bold, dim and neither.
pub fn page(text: &str) -> Cow<'_, str> {
    const STYLES: [&str; 3] = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m"];
    escaped(text, |rest| {
        if rest.starts_with(['\n', '\t']) {
            return Some(1);
        }
        let style = STYLES.iter().find(|style| rest.starts_with(**style));
        style.map(|style| style.len())
    })
}

/// The text with its lines, without any style.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |rest| rest.starts_with(['\n', '\t']).then_some(1))
}

/// Escapes a text. `passes` gets the rest of the text at each invisible character, and returns how
/// many bytes of it may stay.
fn escaped(text: &str, passes: impl Fn(&str) -> Option<usize>) -> Cow<'_, str> {
    if text.chars().all(shows) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if shows(first) {
            clean.push(first);
            first.len_utf8()
        } else if let Some(length) = passes(rest) {
            clean.push_str(&rest[..length]);
            length
        } else {
            for unit in first.encode_utf16(&mut [0; 2]) {
                let _ = write!(clean, "\\u{unit:04x}");
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    Cow::Owned(clean)
}

/// The text as a single line, fit for a terminal and of the same length: a mark replaces each
/// invisible character.
pub fn printable(text: &str) -> String {
    let clean = |c: char| if shows(c) { c } else { '\u{fffd}' };
    text.chars().map(clean).collect()
}

/// A word of a command for copying, in a form that a shell reads.
pub fn word(text: &str) -> Cow<'_, str> {
    // A command line can not contain a zero byte, so such a text is not a word of a command.
    let quoted = shlex::try_quote(text).unwrap_or(Cow::Borrowed("''"));
    match line(&quoted) {
        Cow::Borrowed(_) => quoted,
        // The escaped text would name another file. Shells read `\u001b` within $'...'.
        Cow::Owned(_) => {
            let text = text.replace('\\', "\\\\").replace('\'', "\\'");
            Cow::Owned(format!("$'{}'", line(&text)))
        }
    }
}

/// The words of a command, in a form that a shell reads.
pub fn command<S: AsRef<str>>(words: &[S]) -> String {
    let words: Vec<Cow<str>> = words.iter().map(|text| word(text.as_ref())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shows_itself_stays() {
        for text in [
            "",
            "server",
            "a b\\c'd\"e",
            "größe",
            "名前",
            "e\u{301}",
            "❤\u{fe0f}",
            "█▁",
        ] {
            assert!(matches!(line(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn controls_bidi_marks_and_line_breaks_do_not() {
        for (text, shown) in [
            ("\u{1b}[31mred", "\\u001b[31mred"),
            ("a\nb\tc\r", "a\\u000ab\\u0009c\\u000d"),
            ("\u{7f}\u{9b}2J", "\\u007f\\u009b2J"),
            ("gnp.\u{202e}exe", "gnp.\\u202eexe"),
            (
                "\u{2066}\u{2069}\u{200f}\u{61c}",
                "\\u2066\\u2069\\u200f\\u061c",
            ),
            ("a\u{2028}b\u{2029}", "a\\u2028b\\u2029"),
            ("\u{200b}\u{feff}\u{ad}", "\\u200b\\ufeff\\u00ad"),
            ("\u{e0041}", "\\udb40\\udc41"),
        ] {
            assert_eq!(line(text), shown);
            let json: String = serde_json::from_str(&format!("\"{}\"", line(text))).unwrap();
            assert_eq!(json, text, "the same character for a program");
        }
    }

    #[test]
    fn a_page_keeps_its_lines_and_our_styles_and_nothing_else() {
        let text = "\u{1b}[1mNAME\u{1b}[0m\n\u{1b}[31mx\u{1b}]0;title\u{7}";
        assert_eq!(
            page(text),
            "\u{1b}[1mNAME\u{1b}[0m\n\\u001b[31mx\\u001b]0;title\\u0007"
        );
        assert_eq!(lines("a\n\u{1b}[1mb"), "a\n\\u001b[1mb");
    }

    #[test]
    fn a_word_for_a_shell_is_one_word() {
        assert_eq!(word("server"), "server");
        assert_eq!(word("server;rm x"), "'server;rm x'");
        assert_eq!(word(""), "''");
        for text in [
            "a'b",
            "$(x)",
            "`x`",
            "a\nb",
            "\u{1b}[31m'\\",
            "-x",
            "~",
            "#a",
            "*",
            "名 前",
        ] {
            let script = format!("printf %s {}", word(text));
            let output = std::process::Command::new("bash")
                .env("LC_ALL", "C.UTF-8")
                .args(["-c", &script])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{script}");
            assert!(!word(text).contains(|c| !shows(c)), "{script}");
        }
    }
}
