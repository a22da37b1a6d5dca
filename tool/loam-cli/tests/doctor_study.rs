//! The short form of `make doctor-study`: a few healthy programs of other projects, and the
//! patients that need no watch, on glibc's malloc and on Loam.

use crate::common;
use std::process::Command;

#[test]
fn the_doctor_names_the_sick_and_calls_no_healthy_program_ill() {
    if common::library().is_none() {
        return common::skip("doctor study: build/libloam.so is not built");
    }
    let study = common::root().join("tests/doctor/study");
    let loam = env!("CARGO_BIN_EXE_loam");
    let ran = Command::new(study)
        .args(["--short", "--jobs", "2", "--loam", loam])
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    if out.contains("its heap can not be read") {
        return common::skip("doctor study: this C library's heap can not be read");
    }
    assert!(ran.status.success(), "{out}");
}
