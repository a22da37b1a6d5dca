//! The report in a real browser: headless Chromium draws it, and the page reports what happened.
//!
//! Nothing is installed for this: without Chromium the test reports that it was skipped.

use crate::common;
use crate::common::recorded;
use std::collections::HashSet;
use std::fs;

use crate::common::browser::{browser, look, watch};
use crate::common::{Lab, GOOD};
use serde_json::Value;

/// A script that runs after everything else. It uses the page and records what it finds.
const PROBE: &str = r#"<script>
  setTimeout(() => {
    const { views, svg, csv } = loamReport;
    const found = {
      seen, width: innerWidth,
      overflow: document.documentElement.scrollWidth
        - document.documentElement.clientWidth,
      charts: views.map((view) => ({
        id: view.chart.id,
        drawn: view.node.querySelectorAll('svg path').length,
        texts: [...view.node.querySelectorAll('svg text')].map((t) => t.textContent),
        smallest: Math.min(...[...view.node.querySelectorAll('svg text')]
          .map((t) => parseFloat(getComputedStyle(t).fontSize))),
        reachable: view.node.tabIndex,
        csv: csv(view.chart).trim().split('\n').length,
        svg: svg(view).startsWith('<svg'),
      })),
      requests: performance.getEntriesByType('resource').map((e) => e.name),
    };
    const first = views[0];
    first.node.focus();
    first.node.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
    found.tip = first.node.textContent.includes('1000/s');
    first.legend.querySelector('button').click();
    found.hidden = first.legend.querySelector('button').getAttribute('aria-pressed');
    first.legend.querySelector('button').click();
    const details = document.querySelector('.chart-figure details');
    details.open = true;
    setTimeout(() => {
      found.table = details.querySelectorAll('td').length;
      dispatchEvent(new Event('beforeprint'));
      found.printed = first.node.querySelector('svg').getAttribute('width');
      dispatchEvent(new Event('afterprint'));
      parent.postMessage(JSON.stringify(found), '*');
    }, 200);
  }, 300);
</script>"#;

/// The same for a report of every experiment: opens everything that is closed, and presses every
/// button.
const PROBE_ALL: &str = r#"<script>
  setTimeout(() => {
    for (const details of document.querySelectorAll('details')) details.open = true;
    const saved = [];
    window.Blob = function (parts) { this.whole = parts.join(''); };
    URL.createObjectURL = (blob) => (saved.push(blob.whole), 'about:blank');
    HTMLAnchorElement.prototype.click = function () { saved.push(this.download); };
    setTimeout(() => {
      const { views, data } = loamReport;
      const problems = [];
      for (const { chart, node, legend } of views) {
        const texts = [...node.querySelectorAll('svg text')];
        const paths = node.querySelectorAll('svg path').length;
        if (paths < 3 || texts.length < 3) problems.push(`${chart.id}: not drawn`);
        if (chart.curves.every((c) => c.points.length === 0)) problems.push(`${chart.id}: empty`);
        if (texts.some((t) => parseFloat(getComputedStyle(t).fontSize) < 12))
          problems.push(`${chart.id}: small print`);
        if (texts.some((t) => /NaN|undefined|Infinity/.test(t.textContent)))
          problems.push(`${chart.id}: no number`);
        const places = chart.x.categories || [];
        for (const place of new Set(places))
          if (!texts.some((t) => t.textContent === place))
            problems.push(`${chart.id}: no ${place}`);
        if (node.tabIndex !== 0) problems.push(`${chart.id}: not reachable`);
        const figure = node.closest('figure');
        saved.length = 0;
        for (const action of ['svg', 'csv'])
          figure.querySelector(`[data-action=${action}]`).click();
        const [svg, svgName, csv, csvName] = saved;
        const parsed = new DOMParser().parseFromString(svg, 'image/svg+xml');
        if (svgName !== `${chart.id}.svg` || parsed.querySelector('parsererror')
          || parsed.documentElement.localName !== 'svg' || !parsed.querySelector('path'))
          problems.push(`${chart.id}: bad SVG`);
        const lines = csv.trim().split('\n');
        const points = chart.curves.reduce((sum, c) => sum + c.points.length, 0);
        if (csvName !== `${chart.id}.csv` || lines.length !== points + 1)
          problems.push(`${chart.id}: bad CSV`);
        node.focus();
        node.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
        if (document.activeElement !== node) problems.push(`${chart.id}: takes no focus`);
        if (figure.querySelectorAll('details td').length < 1)
          problems.push(`${chart.id}: no table`);
        if (legend.querySelectorAll('button').length !== chart.curves.length)
          problems.push(`${chart.id}: legend`);
      }
      for (const node of document.querySelectorAll('button, a[href], select, summary'))
        if (node.tabIndex < 0) problems.push(`not reachable: ${node.outerHTML.slice(0, 80)}`);
      const small = [...document.querySelectorAll('main *')].filter((node) =>
        !node.closest('svg') && node.childElementCount === 0 && node.textContent.trim()
        && parseFloat(getComputedStyle(node).fontSize) < 12);
      for (const node of small) problems.push(`small print: ${node.textContent.slice(0, 40)}`);
      parent.postMessage(JSON.stringify({
        seen, problems, width: innerWidth, charts: views.length,
        ids: views.map((view) => view.chart.id),
        sections: [...document.querySelectorAll('main > section')].map((s) => s.id),
        claims: document.querySelectorAll('.claims > div').length,
        overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        requests: performance.getEntriesByType('resource').map((e) => e.name),
      }), '*');
    }, 1500);
  }, 300);
</script>"#;

/// A results file of all experiments in a tiny form.
const EVERY_EXPERIMENT: &str = include_str!("../../loam-lab/tests/data/every-experiment.json");

#[test]
fn every_chart_of_every_experiment_is_drawn_and_can_be_saved() {
    let Some(browser) = browser() else {
        common::skip("no Chromium here, which draws the report (Debian package chromium)");
        return;
    };
    let lab = Lab::new();
    fs::write(lab.path("r.json"), EVERY_EXPERIMENT).unwrap();
    let mut show = common::loam();
    show.current_dir(lab.path(""))
        .args(["lab", "show", "r.json"]);
    let shown = common::Ran::of(show.args(["--html", "r.html"]).output().unwrap());
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let page = fs::read_to_string(lab.path("r.html")).unwrap();
    watch(&lab.path(""), &page, PROBE_ALL);
    for (width, dark) in [(1440, false), (390, true)] {
        let found = look(browser, &lab.path(""), width, dark);
        assert_eq!(found["width"], width, "{found}");
        for empty in ["seen", "problems", "requests"] {
            assert_eq!(found[empty], serde_json::json!([]), "{width}, {empty}");
        }
        assert_eq!(
            found["overflow"], 0,
            "{width}: nothing is wider than the window"
        );
        let order = serde_json::json!(["summary", "findings", "charts", "method"]);
        assert_eq!(found["sections"], order, "findings first, method last");
        // The articles' charts, and further charts that show their findings.
        let ids = found["ids"].as_array().unwrap();
        for id in [
            "lfh-overhead",
            "lfh-faults",
            "lfh-speed",
            "contention-collisions",
            "contention-speed",
            "tokens-time",
            "tokens-ratio",
            "tokens-designs",
            "buffer-cache-used",
            "buffer-cache-histogram",
            "queue-containers-system",
            "queue-ways-system",
            "sizes-cost",
            "sizes-65536",
            "levels-drop",
            "phase-resident",
            "sparse-parts",
            "handoff-speed",
        ] {
            assert!(ids.iter().any(|other| other == id), "{id}: {ids:?}");
        }
        assert!(found["claims"].as_u64().unwrap() >= 20, "{found}");
    }
}

#[test]
fn the_report_draws_itself_in_a_browser_without_errors_or_requests() {
    let Some(browser) = browser() else {
        common::skip("no Chromium here, which draws the report (Debian package chromium)");
        return;
    };
    let lab = Lab::new();
    let library = lab.allocator("other");
    lab.workload(
        "fake",
        &format!("case $LD_PRELOAD in *other*) RATE=2000;; esac\n{GOOD}"),
    );
    let ran = lab.compare(&library, &["--trials", "2"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let page = fs::read_to_string(lab.path("r.html")).unwrap();
    for word in ["src=\"", "@import", "url("] {
        assert!(
            !page.split("<script").next().unwrap().contains(word),
            "{word}"
        );
    }
    watch(&lab.path(""), &page, PROBE);

    for (width, dark) in [(1440, false), (1440, true), (390, false), (390, true)] {
        let found = look(browser, &lab.path(""), width, dark);
        assert_eq!(found["width"], width, "{found}");
        assert_eq!(found["seen"], serde_json::json!([]), "{width}: {found}");
        assert_eq!(found["requests"], serde_json::json!([]), "{width}");
        assert_eq!(
            found["overflow"], 0,
            "{width}: nothing is wider than the window"
        );
        let charts = found["charts"].as_array().unwrap();
        assert_eq!(charts.len(), 4, "{found}");
        for chart in charts {
            assert!(chart["drawn"].as_u64().unwrap() > 5, "{chart}");
            assert!(chart["texts"].as_array().unwrap().len() > 4, "{chart}");
            assert!(chart["smallest"].as_f64().unwrap() >= 12.0, "{chart}");
            assert_eq!(chart["reachable"], 0, "{chart}");
            assert_eq!(
                chart["csv"], 7,
                "a heading and three points of two curves: {chart}"
            );
            assert_eq!(chart["svg"], true, "{chart}");
        }
        assert_eq!(found["tip"], true, "the arrow key shows figures: {found}");
        assert_eq!(found["hidden"], "false", "{found}");
        assert_eq!(found["table"], 6, "{found}");
        assert_eq!(found["printed"], "660", "{found}");
    }
}

/// Reports which texts of a chart are drawn, and where the dashed lines are.
const PROBE_MARKS: &str = r#"<script>
  setTimeout(() => {
    const { views } = loamReport;
    const view = views.find((view) => view.chart.marks);
    parent.postMessage(JSON.stringify({
      seen, marks: view.chart.marks,
      texts: [...view.node.querySelectorAll('svg text')].map((t) => t.textContent),
      lines: [...view.node.querySelectorAll('svg path')]
        .filter((p) => p.getAttribute('stroke-dasharray')).length,
      swatches: [...view.legend.querySelectorAll('svg')].map((one) => one.innerHTML),
    }), '*');
  }, 500);
</script>"#;

#[test]
fn a_replay_is_drawn_with_its_moments_and_each_curve_looks_its_own_way() {
    let Some(browser) = browser() else {
        common::skip("no Chromium here, which draws the report (Debian package chromium)");
        return;
    };
    if common::replayer().is_none() {
        return;
    }
    let lab = Lab::new();
    let mut program = recorded::Program::record(&lab.path("t.trace"));
    program.step = 1_000_000;
    for phase in ["load", "serve & <wait>"] {
        program.mark(phase);
        for _ in 0..200 {
            program.allocate(0, 5_000);
        }
    }
    program.end();
    let other = lab.allocator("other");
    let ran = common::loam_in(
        &lab.path(""),
        &[
            "replay",
            "t.trace",
            "--allocators",
            &format!("system,{}", other.display()),
            "--trials",
            "1",
            "--json",
            "r.json",
        ],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let marks = &lab.results("r.json")["experiments"][0]["trace"]["marks"];
    assert_eq!(marks[0]["name"], "load");
    assert!(
        (marks[1]["seconds"].as_f64().unwrap() - 0.2).abs() < 0.002,
        "{marks}"
    );
    watch(
        &lab.path("."),
        &fs::read_to_string(lab.path("r.html")).unwrap(),
        PROBE_MARKS,
    );
    for (width, dark) in [(1440, false), (390, true)] {
        let found = look(browser, &lab.path("."), width, dark);
        assert_eq!(found["seen"], serde_json::json!([]), "{found}");
        let texts = found["texts"].as_array().unwrap();
        for name in ["load", "serve & <wait>"] {
            assert!(texts.iter().any(|text| text == name), "{name}: {found}");
        }
        assert!(found["lines"].as_u64().unwrap() >= 2, "{found}");
        // Two allocators, what lived, and perhaps what was recorded.
        let swatches = found["swatches"].as_array().unwrap();
        let looks: HashSet<_> = swatches.iter().map(Value::to_string).collect();
        assert!(looks.len() >= 3 && looks.len() == swatches.len(), "{found}");
    }
}
