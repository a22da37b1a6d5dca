//! Names of types, variables and files: demangled, short, and safe to print. A target chooses all
//! of them.

use cpp_demangle::{DemangleOptions, Symbol};

/// The longest name that is kept, in characters.
pub const LONGEST: usize = 400;

/// A name without control characters, and no longer than that.
pub fn printable(name: &str, most: usize) -> String {
    let is_odd = |one: char| {
        one.is_control()
            || matches!(
                one,
                '\u{200b}'..='\u{200f}'
                    | '\u{2028}'..='\u{202e}'
                    | '\u{2060}'..='\u{206f}'
                    | '\u{feff}'
            )
    };
    let mut text = String::new();
    for (place, one) in name.chars().enumerate() {
        if place >= most {
            text.push('…');
            break;
        }
        match is_odd(one) {
            true => text.extend(one.escape_unicode()),
            false => text.push(one),
        }
    }
    text
}

/// The C++ type of a mangled type's name, as `typeid(T).name()` gives it; none if it is no such
/// name.
pub fn of_type(mangled: &str) -> Option<String> {
    let mangled = mangled.strip_prefix('*').unwrap_or(mangled);
    if mangled.len() < 2 || !mangled.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let text = demangled(&format!("_ZTS{mangled}"))?;
    let name = text.strip_prefix("typeinfo name for ")?;
    Some(printable(&shortened(name), LONGEST))
}

/// The C++ type whose table of virtual functions a symbol names.
pub fn of_table(symbol: &str) -> Option<String> {
    let text = demangled(symbol.starts_with("_ZTV").then_some(symbol)?)?;
    let name = text.strip_prefix("vtable for ").or_else(|| {
        text.strip_prefix("{vtable(")
            .and_then(|rest| rest.strip_suffix(")}"))
    })?;
    Some(printable(&shortened(name), LONGEST))
}

/// A variable's name.
pub fn of_variable(symbol: &str) -> String {
    let name = demangled(symbol).unwrap_or_else(|| symbol.to_owned());
    printable(&shortened(&name), LONGEST)
}

fn demangled(symbol: &str) -> Option<String> {
    // The longest that is tried: demangling may write far more than it reads.
    const MOST: usize = 4096;
    if symbol.len() > MOST || !symbol.starts_with("_Z") {
        return None;
    }
    let symbol = Symbol::new(symbol).ok()?;
    symbol.demangle(&DemangleOptions::default()).ok()
}

/// Without what says nothing to a reader: default arguments of templates, and the library's inline
/// namespaces.
fn shortened(name: &str) -> String {
    let name = name
        .replace(
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
            "std::string",
        )
        .replace(
            "std::__1::basic_string<char, std::__1::char_traits<char>, std::__1::allocator<char> >",
            "std::string",
        )
        .replace("std::__cxx11::", "std::")
        .replace("std::__1::", "std::")
        .replace("[abi:cxx11]", "");
    without_allocators(&name)
}

/// Without `, std::allocator<...>` as a last argument.
fn without_allocators(name: &str) -> String {
    const ALLOCATOR: &str = ", std::allocator<";
    let mut text = String::new();
    let mut rest = name;
    while let Some(place) = rest.find(ALLOCATOR) {
        let behind = &rest[place + ALLOCATOR.len()..];
        let mut depth = 1;
        let end = behind.char_indices().find(|(_, one)| {
            depth += match one {
                '<' => 1,
                '>' => -1,
                _ => 0,
            };
            depth == 0
        });
        let Some((end, _)) = end else { break };
        let after = behind[end + 1..].trim_start();
        text.push_str(&rest[..place]);
        if !after.starts_with('>') {
            text.push_str(&rest[place..place + ALLOCATOR.len() + end + 1]);
            rest = &behind[end + 1..];
            continue;
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_their_programmer_wrote_them() {
        assert_eq!(of_type("N4shop7SessionE").as_deref(), Some("shop::Session"));
        assert_eq!(of_type("7Session").as_deref(), Some("Session"));
        assert_eq!(
            of_type("St6vectorIiSaIiEE").as_deref(),
            Some("std::vector<int>")
        );
        let shared = "St23_Sp_counted_ptr_inplaceI4PolySaIvELN9__gnu_cxx12_Lock_policyE2EE";
        assert!(of_type(shared).is_some());
        assert_eq!(of_table("_ZTV7Session").as_deref(), Some("Session"));
        for wrong in ["", "x", "hello world", "\u{1b}[31m", "123"] {
            assert_eq!(of_type(wrong), None, "{wrong}");
        }
        assert_eq!(of_variable("_ZN3app8sessionsE"), "app::sessions");
        assert_eq!(of_variable("plain"), "plain");
    }

    #[test]
    fn names_can_not_speak_to_the_terminal() {
        assert_eq!(
            printable("a\u{1b}[2J\u{202e}b", 99),
            "a\\u{1b}[2J\\u{202e}b"
        );
        assert_eq!(printable("abcdef", 3), "abc…");
    }
}
