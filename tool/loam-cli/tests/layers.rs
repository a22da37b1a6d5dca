//! The crates of the tool: which crates each may use, and which calls it must not make.
//! `docs/architecture.md` has the picture.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates from the bottom up, each with those of our crates that it may use.
const CRATES: [(&str, &[&str]); 10] = [
    ("loam-format", &[]),
    ("loam-process", &["loam-format"]),
    ("loam-report", &["loam-format"]),
    (
        "loam-counters",
        &["loam-format", "loam-process", "loam-report"],
    ),
    (
        "loam-check",
        &["loam-format", "loam-process", "loam-counters"],
    ),
    (
        "loam-census",
        &[
            "loam-format",
            "loam-process",
            "loam-report",
            "loam-counters",
        ],
    ),
    ("loam-lab", &["loam-format", "loam-process", "loam-report"]),
    (
        "loam-export",
        &[
            "loam-format",
            "loam-process",
            "loam-report",
            "loam-counters",
            "loam-census",
            "loam-lab",
        ],
    ),
    (
        "loam-record",
        &[
            "loam-format",
            "loam-process",
            "loam-counters",
            "loam-census",
            "loam-lab",
        ],
    ),
    (
        "loam-cli",
        &[
            "loam-format",
            "loam-process",
            "loam-report",
            "loam-counters",
            "loam-check",
            "loam-census",
            "loam-lab",
            "loam-export",
            "loam-record",
        ],
    ),
];

fn tool() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names under a heading of a manifest; empty if there is no such heading.
fn names(manifest: &Path, heading: &str) -> Vec<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let found = table.get(heading).and_then(toml::Value::as_table);
    found.map_or_else(Vec::new, |names| names.keys().cloned().collect())
}

/// The files of a crate with their text, without the parts that are compiled only for tests.
fn sources(name: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![tool().join(name).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let is_of_tests = path.file_stem().is_some_and(|stem| stem == "tests");
            if is_of_tests {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
                found.push((path, code.to_owned()));
            }
        }
    }
    assert!(!found.is_empty(), "{name}");
    found
}

/// The lines of code in a crate that contain one of these texts, without comments.
fn lines_with(name: &str, wanted: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources(name) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if wanted.iter().any(|word| code.contains(word)) {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    found
}

#[test]
fn a_crate_uses_those_below_it_and_no_others() {
    let workspace = fs::read_to_string(tool().join("Cargo.toml")).unwrap();
    let workspace: toml::Table = workspace.parse().unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let members: Vec<&str> = members.iter().filter_map(toml::Value::as_str).collect();
    assert_eq!(members, CRATES.map(|(name, _)| name));
    for (name, allowed) in CRATES {
        let manifest = tool().join(name).join("Cargo.toml");
        for heading in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for own in names(&manifest, heading) {
                let is_ours = own.starts_with("loam-");
                assert!(
                    !is_ours || allowed.contains(&own.as_str()),
                    "{name} must not use {own} ({heading})"
                );
            }
        }
    }
}

/// The manifest has `autotests = false`, so that all files are one program. A file that nobody
/// names would never run.
#[test]
fn every_file_with_tests_is_a_module_of_their_program() {
    let folder = tool().join("loam-cli/tests");
    let program = fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.extension().is_some_and(|end| end == "rs") && name != "main" {
            let is_named = program.lines().any(|line| line == format!("mod {name};"));
            assert!(is_named, "tests/main.rs has no `mod {name};`");
        }
    }
}

#[test]
fn formats_and_reports_do_not_touch_the_system() {
    const SYSTEM: [&str; 7] = [
        "crossterm",
        "nix",
        "procfs",
        "rustix",
        "signal-hook",
        "tempfile",
        "tokio",
    ];
    const TOUCHES: [&str; 8] = [
        "std::env",
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "std::time",
        // A `Read` or `Write` that is passed in is allowed; opening a stream or a file is not.
        "io::stdin",
        "io::stdout",
    ];
    for name in ["loam-format", "loam-report"] {
        let used = names(&tool().join(name).join("Cargo.toml"), "dependencies");
        let used: Vec<&String> = used
            .iter()
            .filter(|used| SYSTEM.contains(&used.as_str()))
            .collect();
        assert!(used.is_empty(), "{name} uses {used:?}");
        let found = lines_with(name, &TOUCHES);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn computing_never_prints() {
    const PRINTS: [&str; 6] = [
        "println!", "print!(", "stdout()", "stderr()", "dbg!", "anstream",
    ];
    for (name, _) in CRATES.iter().filter(|(name, _)| *name != "loam-cli") {
        let found = lines_with(name, &PRINTS);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

#[test]
fn types_of_clap_stay_where_arguments_are_parsed() {
    for (name, _) in CRATES {
        for line in lines_with(name, &["clap::", "clap_"]) {
            let file = line.split(':').next().unwrap_or("");
            let is_at_home = ["args.rs", "cli.rs", "main.rs", "loam-cli/src/lib.rs"]
                .iter()
                .any(|end| file.ends_with(end))
                || file.ends_with("generate/mod.rs");
            assert!(name == "loam-cli" && is_at_home, "{line}");
        }
    }
}

#[test]
fn counters_are_named_by_the_generated_constants() {
    const BY_TEXT: [&str; 6] = [
        ".known(\"",
        ".real(\"",
        ".set(\"",
        ".set_known(\"",
        ".set_real(\"",
        ".whole(\"",
    ];
    for name in ["loam-counters", "loam-cli"] {
        let found = lines_with(name, &BY_TEXT);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

/// Calls of the system that no library offers: two queries (decision 102), the requests of a trim
/// (decision 131), the rings of samples (decision 117), and probes (decision 117).
#[test]
fn only_calls_of_the_system_that_no_library_offers_are_unsafe() {
    for (name, _) in CRATES {
        let text = fs::read_to_string(tool().join(name).join("src/lib.rs")).unwrap();
        let rule = match name {
            "loam-process" => "#![deny(unsafe_code)]",
            _ => "#![forbid(unsafe_code)]",
        };
        assert!(text.contains(rule), "{name}");
    }
    let allowed = lines_with("loam-process", &["allow(unsafe_code)"]);
    assert!(
        allowed.len() == 4
            && allowed.iter().any(|line| line.contains("queries.rs"))
            && allowed.iter().any(|line| line.contains("perf/system.rs"))
            && allowed.iter().any(|line| line.contains("probes/system.rs"))
            && allowed.iter().any(|line| line.contains("trim/system.rs")),
        "{}",
        allowed.join("\n")
    );
}
