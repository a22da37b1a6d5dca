//! `loam top` from outside: batches, and terminals that can not be drawn on.

use crate::common;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::common::Ran;

#[test]
fn a_batch_is_plain_text_with_one_table_a_look() {
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = child.id().to_string();
    let output = common::loam()
        .args(["top", "--batch", "-n", "2", "-d", "0.2", &pid])
        .output()
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = Ran::of(output);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out.matches("PID NAME").count(), 2, "{}", ran.out);
    assert_eq!(
        ran.out.matches(&format!("{pid} sleep")).count(),
        2,
        "{}",
        ran.out
    );
    assert!(!ran.out.contains('\u{1b}'));
}

#[test]
fn a_batch_ends_when_everybody_it_was_asked_for_has() {
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let mut reader = common::loam()
        .args(["top", "--batch", "-d", "0.1", &child.id().to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The process must be seen alive before it ends.
    let mut page = BufReader::new(reader.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains(" sleep") {
        assert_ne!(page.read_line(&mut text).unwrap(), 0, "{text}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    page.read_to_string(&mut text).unwrap();
    assert_eq!(reader.wait().unwrap().code(), Some(0), "{text}");
    assert!(text.contains(" 0 processes"), "{text}");
}

#[test]
fn where_nothing_can_be_drawn_the_way_out_is_named() {
    let ran = Ran::of(common::loam().arg("top").output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("--batch") && ran.err.contains("loam stats"),
        "{}",
        ran.err
    );
    let ran = Ran::of(
        common::loam()
            .args(["top", "--interval", "0"])
            .output()
            .unwrap(),
    );
    assert!(
        ran.code == Some(2) && ran.err.contains("0.1 to 86400"),
        "{ran:?}"
    );
}
