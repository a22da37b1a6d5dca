//! Loads a page in headless Chromium. The page reports what happened.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A script that runs before everything else on the page and records forbidden events.
const WATCH: &str = "<script>
  window.seen = [];
  addEventListener('error', (e) => seen.push('error: ' + (e.message || e.target.tagName)), true);
  addEventListener('unhandledrejection', (e) => seen.push('rejection: ' + e.reason));
  document.addEventListener('securitypolicyviolation',
    (e) => seen.push('blocked: ' + e.violatedDirective + ' ' + e.blockedURI));
  for (const level of ['error', 'warn'])
    console[level] = (...words) => seen.push(level + ': ' + words.join(' '));
</script>";

/// Holds the page in a frame of any width (a window of headless Chromium is at least 500 wide) and
/// stores the page's report.
fn frame(width: u32) -> String {
    format!(
        "<!doctype html><body><iframe src=\"watched.html\" width=\"{width}\" height=\"900\">\
         </iframe><script>addEventListener('message', (event) => {{
            const note = document.createElement('pre');
            note.id = 'found';
            note.textContent = event.data;
            document.body.append(note);
         }});</script>"
    )
}

/// Chromium, if it is installed.
pub fn browser() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| {
            let version = Command::new(name)
                .arg("--version")
                .stderr(Stdio::null())
                .output();
            version.is_ok_and(|output| output.status.success())
        })
}

/// The result of the probe on the watched page in a folder.
pub fn look(browser: &str, folder: &Path, width: u32, dark: bool) -> Value {
    let page = folder.join("frame.html");
    fs::write(&page, frame(width)).unwrap();
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
    ]);
    command.args([
        "--disable-background-networking",
        "--virtual-time-budget=10000",
        "--dump-dom",
    ]);
    command.arg(format!(
        "--user-data-dir={}",
        folder.join("profile").display()
    ));
    command.arg("--window-size=1600,1000");
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    let output = command
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let mark = "<pre id=\"found\">";
    let said = String::from_utf8_lossy(&output.stderr);
    let start = dom
        .find(mark)
        .unwrap_or_else(|| panic!("the probe did not run: {said}"));
    let start = start + mark.len();
    let end = start + dom[start..].find("</pre>").unwrap();
    let text = dom[start..end]
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    serde_json::from_str(&text).unwrap()
}

/// Writes the page with the watch before everything else and the probe after it.
pub fn watch(folder: &Path, page: &str, probe: &str) {
    let mut watched = page.replacen("<head>", &format!("<head>{WATCH}"), 1);
    // Uses the last occurrence: the chart library has another one in a text.
    let end = watched.rfind("</body>").unwrap();
    watched.insert_str(end, probe);
    fs::write(folder.join("watched.html"), watched).unwrap();
}
