//! Selects processes by name.

use regex_lite::{Regex, RegexBuilder};

/// A regular expression that must match some part of a name. Upper and lower case are equal.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    text: String,
    pattern: Option<Regex>,
}

impl Filter {
    /// An empty text lets every name pass. A text that is not a regular expression, as happens
    /// while the user types one, is searched as plain text.
    pub fn new(text: &str) -> Filter {
        let build = |text: &str| RegexBuilder::new(text).case_insensitive(true).build().ok();
        Filter {
            text: text.to_owned(),
            pattern: match text.is_empty() {
                true => None,
                false => build(text).or_else(|| build(&regex_lite::escape(text))),
            },
        }
    }

    /// The text that the user typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a process of that name is shown.
    pub fn passes(&self, name: &str) -> bool {
        self.pattern
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(name))
    }

    /// The filter with another character at its end.
    pub fn longer(&self, letter: char) -> Filter {
        Filter::new(&format!("{}{letter}", self.text))
    }

    /// The filter without its last character.
    pub fn shorter(&self) -> Filter {
        let mut text = self.text.clone();
        text.pop();
        Filter::new(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_somewhere_in_any_case_and_half_an_expression_is_plain_text() {
        assert!(Filter::new("").passes("x"));
        assert!(Filter::new("SER").passes("my-server"));
        assert!(Filter::new("^my").passes("my-server") && !Filter::new("^ser").passes("my-server"));
        let half = Filter::new("a(");
        assert!(half.passes("a(b") && !half.passes("ab"));
        assert_eq!(half.shorter().text(), "a");
        assert_eq!(half.longer('é').text(), "a(é");
    }
}
