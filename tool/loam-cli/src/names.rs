//! What is said of the names of functions that a verb has shown.

use loam_process::symbols::Symbols;

use crate::output;

/// Names the files that differ, or may differ, from those that were recorded.
pub fn warn_of_other_files(symbols: &Symbols) {
    for path in symbols.other_files() {
        output::print_warning(&format!(
            "{path} is not the file that was recorded (its build id or its checksum differs): its \
             functions stay without names"
        ));
    }
    if let Some((first, rest)) = symbols.unsure_files().split_first() {
        let more = match rest.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        output::print_warning(&format!(
            "the recording does not say which files {first}{more} were: names are those of the \
             files that are here now"
        ));
    }
}
