//! The version of all of Loam is in `include/loam/loam.h` as a number. This script makes it a text.

use std::fs;

const HEADER: &str = "../../include/loam/loam.h";
const NAME: &str = "#define LOAM_HEADER_VERSION ";

fn main() {
    println!("cargo::rerun-if-changed={HEADER}");
    println!("cargo::rerun-if-changed=build.rs");
    let text = fs::read_to_string(HEADER).unwrap_or_else(|error| panic!("{HEADER}: {error}"));
    let number = text.lines().find_map(|line| line.strip_prefix(NAME));
    let number: Option<u32> = number.and_then(|text| text.trim().parse().ok());
    let number = number.unwrap_or_else(|| panic!("{HEADER}: no line `{NAME}NUMBER`"));
    println!(
        "cargo::rustc-env=LOAM_VERSION={}.{}.{}",
        number / 10_000,
        number / 100 % 100,
        number % 100
    );
}
