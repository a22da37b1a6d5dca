//! `loam map`: its page in headless Chromium, for a small trace and for a heap of 4 GiB.

use std::fs;
use std::path::Path;

use crate::common::browser::{browser, look, watch};
use crate::common::recorded::{Block, Program, PAGE};
use crate::common::{loam, skip, Ran};
use serde_json::{json, Value};

/// A script that uses the page and records what it finds.
const PROBE: &str = r#"<script>
  const probe = () => {
    const { map, count, state, zoom, select, move } = loamMap;
    const canvas = document.getElementById('cells');
    const colours = () => {
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return new Set(new Uint32Array(data.buffer)).size;
    };
    const found = {
      seen, width: innerWidth, count, moments: map.moments.length, cell_bytes: map.cell_bytes,
      pixels: canvas.width * canvas.height,
      nodes: document.querySelectorAll('*').length,
      overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      requests: performance.getEntriesByType('resource').map((e) => e.name),
      first: document.getElementById('text').textContent,
      planes: map.planes.map((plane) => plane.title),
      colours: [],
    };
    for (const input of document.querySelectorAll('input[name=plane]')) {
      input.click();
      found.colours.push([colours(), document.getElementById('legend').textContent]);
    }
    document.querySelector('input[name=plane]').click();
    found.curves = document.querySelectorAll('#curves polyline').length;
    found.texts = [0, map.moments.length - 1].map((moment) => {
      if (document.getElementById('moment')) move(moment);
      return document.getElementById('text').textContent;
    });
    const before = state.scale;
    zoom(1);
    found.zoomed = state.scale > before && canvas.width * canvas.height >= count;
    zoom(-1);
    canvas.focus();
    canvas.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
    found.cell = document.getElementById('cell').textContent;
    select(count - 1);
    found.last = document.getElementById('cell').textContent;
    const theme = document.getElementById('theme');
    const colour = () => getComputedStyle(document.body).backgroundColor;
    const themes = ['light', 'dark'].map((name) => {
      theme.value = name;
      theme.dispatchEvent(new Event('change'));
      return colour();
    });
    found.themes = new Set(themes).size;
    const small = [...document.querySelectorAll('body *')].filter((node) =>
      !node.closest('svg') && node.childElementCount === 0 && node.textContent.trim()
      && !['SCRIPT', 'STYLE'].includes(node.tagName)
      && parseFloat(getComputedStyle(node).fontSize) < 12);
    found.small = small.map((node) => node.textContent.slice(0, 40));
    parent.postMessage(JSON.stringify(found), '*');
  };
  const wait = () => (window.loamMap ? probe() : setTimeout(wait, 50));
  wait();
</script>"#;

fn map(folder: &Path) -> String {
    let mut command = loam();
    command.current_dir(folder).args(["map", "t.trace"]);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    fs::read_to_string(folder.join("t-map.html")).unwrap()
}

/// A program that fills this many pages and then frees most blocks: in each eighth page a small
/// block stays. The seven pages between two of these have blocks of so many pages.
fn fill(path: &Path, pages: u64, block: u64) {
    let mut program = Program::record(path);
    program.step = 1_000_000;
    let mut gone: Vec<Block> = Vec::new();
    for _ in 0..pages / 8 {
        program.allocate(0, 496);
        gone.push(program.allocate(1, 3_600));
        gone.extend((0..7 / block).map(|_| program.allocate(0, block * PAGE)));
    }
    program.sample(Some(pages * PAGE));
    for block in gone {
        program.free(1, block);
    }
    program.end();
}

fn check(found: &Value) {
    for empty in ["seen", "requests", "small"] {
        assert_eq!(found[empty], json!([]), "{empty}: {found}");
    }
    assert_eq!(
        found["overflow"], 0,
        "nothing is wider than the window: {found}"
    );
    assert_eq!(found["zoomed"], true, "{found}");
    assert_eq!(found["themes"], 2, "{found}");
    assert_eq!(found["curves"], 2, "{found}");
    assert!(found["moments"].as_u64().unwrap() >= 45, "{found}");
    assert!(
        found["pixels"].as_u64() >= found["count"].as_u64(),
        "{found}"
    );
    let has = |what: &str, text: &str| {
        let said = found[what].as_str().unwrap();
        assert!(said.contains(text), "{what}: {said}");
    };
    has("first", "sparse pages cost most");
    has("cell", "0x7f00");
    has("last", " to 0x7f");
    let last = found["texts"][1].as_str().unwrap();
    assert!(last.contains("the end"), "{last}");
    for drawn in found["colours"].as_array().unwrap() {
        assert!(drawn[0].as_u64().unwrap() >= 2, "{drawn}");
    }
}

#[test]
fn a_small_heap_is_drawn_page_by_page_and_over_time() {
    let Some(browser) = browser() else {
        skip("no Chromium here, which draws the map (Debian package chromium)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fill(&folder.path().join("t.trace"), 2_000, 1);
    watch(folder.path(), &map(folder.path()), PROBE);
    for (width, dark) in [(1440, false), (1440, true), (390, false)] {
        let found = look(browser, folder.path(), width, dark);
        check(&found);
        assert_eq!(found["cell_bytes"], PAGE);
        assert!(found["count"].as_u64().unwrap() >= 2_000, "{found}");
        assert_eq!(
            found["planes"],
            json!(["live share", "block size", "age", "blocks"])
        );
    }
}

#[test]
fn a_heap_of_4_gib_has_a_page_as_small_as_any() {
    let folder = tempfile::tempdir().unwrap();
    fill(&folder.path().join("t.trace"), 1 << 20, 7);
    let page = map(folder.path());
    // Chosen: a mail or a bug report still accepts a file of this size.
    assert!(page.len() < 8 << 20, "{} bytes", page.len());
    let Some(browser) = browser() else {
        skip("no Chromium here, which draws the map (Debian package chromium)");
        return;
    };
    watch(folder.path(), &page, PROBE);
    let found = look(browser, folder.path(), 1440, false);
    check(&found);
    assert!(found["nodes"].as_u64().unwrap() < 400, "{found}");
    let bytes = found["count"].as_u64().unwrap() * found["cell_bytes"].as_u64().unwrap();
    assert!(bytes >= 4 << 30, "{found}");
    let cells = found["count"].as_u64().unwrap() * found["moments"].as_u64().unwrap();
    assert!(cells <= 4 << 20, "{found}");
}

#[test]
fn another_file_is_not_replaced_by_a_map_and_an_earlier_map_is() {
    let folder = tempfile::tempdir().unwrap();
    fill(&folder.path().join("t.trace"), 16, 1);
    map(folder.path());
    map(folder.path());
    fs::write(folder.path().join("mine.html"), "<p>mine").unwrap();
    let mut command = loam();
    command.current_dir(folder.path());
    command.args(["map", "t.trace", "--output", "mine.html"]);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let kept = fs::read_to_string(folder.path().join("mine.html")).unwrap();
    assert_eq!(kept, "<p>mine");
}
