//! `loam census --html`: its page in headless Chromium, with a hundred types, ten thousand, and a
//! million.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::browser::{browser, look, watch};
use crate::common::{loam, skip, Ran};
use loam_census::tree::{self, Tree};
use loam_census::types::Kind;
use serde_json::{json, Value};

/// A script that uses the page and records what it finds.
const PROBE: &str = r#"<script>
  const probe = () => {
    const { places, inside, state, enter, name, data } = loamTreemap;
    const text = (id) => document.getElementById(id).textContent;
    const colours = () => {
      const canvas = document.querySelector('#areas canvas');
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return new Set(new Uint32Array(data.buffer)).size;
    };
    const found = {
      seen, places: places.length, colours: colours(), diff: data.before != null,
      nodes: document.querySelectorAll('*').length,
      overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      requests: performance.getEntriesByType('resource').map((e) => e.name),
      first: text('place'),
    };
    const largest = inside[0][0];
    document.querySelector('#inside button').click();
    found.entered = state.at === largest;
    found.listed = document.querySelectorAll('#inside tbody tr').length;
    found.deep = text('place');
    found.way = [...document.querySelectorAll('#way button')].map((node) => node.textContent);
    document.querySelector('#way button').click();
    found.back = state.at === 0;
    const theme = document.getElementById('theme');
    const themes = ['light', 'dark'].map((name) => {
      theme.value = name;
      theme.dispatchEvent(new Event('change'));
      return getComputedStyle(document.body).backgroundColor;
    });
    found.themes = new Set(themes).size;
    parent.postMessage(JSON.stringify(found), '*');
  };
  const wait = () => (window.loamTreemap ? probe() : setTimeout(wait, 50));
  wait();
</script>"#;

/// Variables that hold so many types, each of which holds text.
fn tree_of(types: u32, grown: u64) -> Tree {
    // Number 0 is all; then ten variables; then for each type an object and its text.
    let holder = |number: u32| match number {
        0..=10 => 0,
        number if number % 2 == 1 => 1 + number / 2 % 10,
        number => number - 1,
    };
    let count = 11 + 2 * types;
    let holders: Vec<u32> = (0..count).map(holder).collect();
    let is_text = |number: u32| number > 10 && number % 2 == 0;
    let key = |number| if is_text(number) { 0 } else { number + 1 };
    let name = |number| match number {
        number if is_text(number) => (Kind::Content, "text".to_owned()),
        0..=10 => (Kind::Root, format!("`pool{number}` (variable of app)")),
        number => (
            Kind::Class,
            format!("app::Type{number}<std::vector<int>> </script><b>"),
        ),
    };
    let size = |number: u32| (number > 10).then(|| 64 + u64::from(number % 4096) * grown);
    tree::of(&holders, key, name, size)
}

fn document(folder: &Path, name: &str, tree: &Tree) -> PathBuf {
    let bytes = tree.nodes[0].held_bytes;
    let sum = json!({ "blocks": 10, "bytes": bytes });
    let none = json!({ "blocks": 0, "bytes": 0 });
    let document = json!({
        "format": "loam-census", "version": 1, "pid": 1, "name": "app",
        "census": {
            "allocator": "glibc 2.36", "live": sum, "rows": [], "contents": {}, "lost": none,
            "groups": [], "doubtful": none, "fleeting": none, "between": null, "seconds": 1.0,
            "when": 1.0, "problems": [],
            "tree": tree,
        },
    });
    let path = folder.join(name);
    fs::write(&path, document.to_string()).unwrap();
    path
}

fn check(found: &Value) {
    for empty in ["seen", "requests"] {
        assert_eq!(found[empty], json!([]), "{empty}: {found}");
    }
    assert_eq!(found["overflow"], 0, "{found}");
    for right in ["entered", "back", "diff"] {
        assert_eq!(found[right], true, "{right}: {found}");
    }
    assert_eq!(found["themes"], 2, "{found}");
    assert!(found["colours"].as_u64().unwrap() > 3, "{found}");
    // A page has as many elements for a million types as for a hundred.
    assert!(found["nodes"].as_u64().unwrap() < 1_500, "{found}");
    let deep = found["deep"].as_str().unwrap();
    assert!(
        deep.contains("variable of app") && deep.contains("since then"),
        "{deep}"
    );
    assert_eq!(found["way"][0], "all live blocks");
}

#[test]
fn a_page_of_any_number_of_types_is_light_and_is_drawn() {
    let Some(browser) = browser() else {
        skip("no Chromium here, which draws the page (Debian package chromium)");
        return;
    };
    for types in [100, 10_000, 1_000_000] {
        let folder = tempfile::tempdir().unwrap();
        let a = document(folder.path(), "a.json", &tree_of(types, 1));
        let b = document(folder.path(), "b.json", &tree_of(types, 2));
        let page = folder.path().join("page.html");
        let ran = Ran::of(
            loam()
                .args(["census", "--diff"])
                .args([&a, &b])
                .arg("--html")
                .arg(&page)
                .output()
                .unwrap(),
        );
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.len() < 5 << 20, "{types}: {}", text.len());
        assert!(!text.contains("</script><b>"));
        watch(folder.path(), &text, PROBE);
        let sizes: &[(u32, bool)] = match types {
            100 => &[(1440, true), (390, false)],
            _ => &[(1440, false)],
        };
        for (width, dark) in sizes {
            let found = look(browser, folder.path(), *width, *dark);
            check(&found);
            let places = found["places"].as_u64().unwrap() as usize;
            assert_eq!(places, (11 + 2 * types as usize).min(tree::MOST), "{types}");
        }
    }
}

#[test]
fn a_page_replaces_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    let a = document(folder.path(), "a.json", &tree_of(10, 1));
    let mut command = loam();
    command.args(["census", "--diff"]).args([&a, &a]);
    let ran = Ran::of(command.arg("--html").arg(&a).output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(fs::read_to_string(&a).unwrap().contains("loam-census"));
}
