//! `loam trace export --format flame`: its page in headless Chromium, of a trace whose names are
//! hostile.

use std::fs;
use std::path::Path;

use crate::common::browser::{browser, look, watch};
use crate::common::{loam, skip, Ran};
use loam_format::trace::{
    AllocFamily, End, Event, Frame, Header, Module, Named, Process, Record, Stack, Writer,
};
use serde_json::{json, Value};

/// A script that uses the page and records what it finds.
const PROBE: &str = r#"<script>
  const probe = () => {
    const frames = [...document.querySelectorAll('#frames > g')];
    const text = (group) => group.querySelector('title').textContent;
    const shown = () => frames.filter((one) => !one.classList.contains('hide')).length;
    const marked = () => frames.filter((one) =>
      one.querySelector('rect').getAttribute('fill') === searchcolor).map(text);
    const find = (term) => {
      document.getElementById('term').value = term;
      document.querySelector('#find button').click();
      return [marked(), document.getElementById('found').textContent];
    };
    const click = (node) => node.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    const found = {
      seen, frames: frames.map(text), title: document.title,
      facts: document.querySelector('.facts').textContent,
      table: document.querySelector('#paths').textContent,
      overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      requests: performance.getEntriesByType('resource').map((e) => e.name),
      elements: document.querySelectorAll('b, img').length,
      wide: document.querySelector('.flame > svg').getBoundingClientRect().width,
    };
    found.keeps = find('keeps');
    found.wrong = find('operator new(');
    found.none = find('no such function');
    found.all = shown();
    click(frames.find((one) => text(one).startsWith('keeps')).querySelector('rect'));
    found.zoomed = shown();
    click(document.getElementById('unzoom'));
    found.back = shown();
    parent.postMessage(JSON.stringify(found), '*');
  };
  const wait = () => (window.svg && document.getElementById('term') ? setTimeout(probe, 100)
    : setTimeout(wait, 50));
  wait();
</script>"#;

const HOSTILE: &str = "</title></svg><script>document.body.append(document.createElement('b'))\
                       </script><img src=x onerror=alert(1)>;\u{1b}[31m 12345";
const NAMES: [&str; 4] = ["main", "keeps", HOSTILE, "operator new(unsigned long)"];
const WEIGHT: u64 = 3;

/// Blocks of 1,000 bytes for `main; keeps; HOSTILE; operator new`, and a third of them for `main`
/// alone.
fn trace(folder: &Path, sampled: &str) {
    let header = Header {
        stack_bytes: 1,
        weighted: true,
        sampled: sampled.to_owned(),
        started: "2026-01-02T03:04:05Z".to_owned(),
        ..Header::default()
    };
    let path = folder.join("t.trace");
    let mut writer = Writer::new(fs::File::create(path).unwrap(), &header).unwrap();
    let names = NAMES.iter().enumerate().map(|(at, name)| Named {
        address: at as u64,
        name: (*name).to_owned(),
        ..Named::default()
    });
    let process = Process {
        pid: 4711,
        program: "/usr/bin/sh<b>op".to_owned(),
        arguments: vec!["shop".to_owned(), "--name=<b>".to_owned()],
        modules: vec![Module {
            path: "/no/such/shop".to_owned(),
            names: names.collect(),
            ..Module::default()
        }],
        ..Process::default()
    };
    let stream = writer.process(&process).unwrap();
    for number in 0..NAMES.len() as u64 {
        let frame = Frame {
            number: Some(number),
            caller: number.checked_sub(1),
            module: Some(0),
            address: Some(number),
        };
        writer.frame(stream, frame).unwrap();
    }
    for number in 0..40 {
        let event = Event::Allocate {
            family: AllocFamily::Malloc,
            address: 0x10_0000 + number * 0x1000,
            size: 1000,
            alignment: 0,
        };
        let record = Record {
            time: number,
            thread: 0,
            event,
        };
        writer.push(stream, &record).unwrap();
        let stack = Stack {
            event: Some(number),
            frame: Some(if number % 4 == 0 { 0 } else { 3 }),
            cut: Some(0),
            weight: Some(1000 * WEIGHT),
        };
        writer.stack(stream, stack).unwrap();
    }
    writer.end(stream, End::default()).unwrap();
    writer.finish().unwrap();
}

fn export(folder: &Path, options: &[&str]) -> Ran {
    let mut command = loam();
    command.current_dir(folder);
    command.args(["trace", "export", "t.trace", "--format", "flame"]);
    command.args(["--output", "t.html"]).args(options);
    Ran::of(command.output().unwrap())
}

fn has(found: &Value, what: &str, texts: &[&str]) {
    let said = found[what].as_str().unwrap();
    for text in texts {
        assert!(said.contains(text), "{what} has no {text}: {said}");
    }
}

#[test]
fn a_flame_graph_is_drawn_searched_and_enlarged_and_names_are_only_text() {
    let folder = tempfile::tempdir().unwrap();
    trace(folder.path(), "each block stands for others");
    let ran = export(folder.path(), &["--of", "end"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    let page = fs::read_to_string(folder.path().join("t.html")).unwrap();
    let Some(browser) = browser() else {
        skip("no Chromium here, which draws the page (Debian package chromium)");
        return;
    };
    watch(folder.path(), &page, PROBE);
    for (width, dark) in [(1440, false), (390, true)] {
        let found = look(browser, folder.path(), width, dark);
        for empty in ["seen", "requests"] {
            assert_eq!(found[empty], json!([]), "{empty}: {found}");
        }
        assert_eq!(found["overflow"], 0, "{found}");
        assert_eq!(found["elements"], 0, "{found}");
        assert!(found["wide"].as_f64().unwrap() > 0.9 * f64::from(width).min(1344.0) - 80.0);
        // 40 blocks of 1,000 bytes stand for three each.
        let frames = found["frames"].as_array().unwrap();
        let frame = |begin: &str| {
            let texts = frames.iter().filter_map(Value::as_str);
            let texts: Vec<&str> = texts.filter(|text| text.starts_with(begin)).collect();
            assert_eq!(texts.len(), 1, "{begin}: {found}");
            texts[0].to_owned()
        };
        assert_eq!(frames.len(), 5, "{found}");
        assert_eq!(frame("all"), "all (120,000 bytes, 100%)");
        assert_eq!(frame("main"), "main (120,000 bytes, 100.00%)");
        assert_eq!(frame("keeps"), "keeps (90,000 bytes, 75.00%)");
        let hostile = frame("</title></svg><script>");
        assert!(
            hostile.ends_with("12345 (90,000 bytes, 75.00%)"),
            "{hostile}"
        );
        has(&found, "title", &["sh<b>op", "live at the end"]);
        let wanted = [
            "t.trace",
            "2026-01-02T03:04:05Z",
            "4711: shop --name=<b>",
            "117 KiB +- ",
            "live at the end",
            "sampled: each block stands for others",
        ];
        has(&found, "facts", &wanted);
        has(&found, "table", &["keeps", "75.0 %"]);
        assert_eq!(
            found["keeps"],
            json!([["keeps (90,000 bytes, 75.00%)"], "in these: 75.0%"])
        );
        assert_eq!(found["wrong"][0].as_array().unwrap().len(), 1, "{found}");
        let none = json!([[], "no frame that is shown has this name"]);
        assert_eq!(found["none"], none);
        assert_eq!((&found["all"], &found["back"]), (&json!(5), &json!(5)));
        // The frames below and above it, and itself.
        assert_eq!(found["zoomed"], 5, "{found}");
    }
}

#[test]
fn a_page_says_whether_it_shows_a_sample_and_an_empty_one_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    trace(folder.path(), "");
    assert_eq!(export(folder.path(), &[]).code, Some(0));
    let page = fs::read_to_string(folder.path().join("t.html")).unwrap();
    assert!(page.contains("whole: all blocks are counted") && page.contains("live at the peak"));
    assert!(!page.contains("sampled: "));
    fs::remove_file(folder.path().join("t.html")).unwrap();
    let header = Header {
        stack_bytes: 0,
        ..Header::default()
    };
    let path = folder.path().join("t.trace");
    let mut writer = Writer::new(fs::File::create(path).unwrap(), &header).unwrap();
    let stream = writer.process(&Process::default()).unwrap();
    writer.end(stream, End::default()).unwrap();
    writer.finish().unwrap();
    let ran = export(folder.path(), &[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("has no stacks"), "{}", ran.err);
    assert!(!folder.path().join("t.html").exists());
}
