//! `loam export`: the page, which clients may reach it, how it ends, and a real Prometheus server
//! that scrapes it. The server is searched in PATH and in the folder of the tests' set-up.

use crate::common;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{export, get, on_loam, root, try_get, until, Ran, Running};

const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";

/// A program of Debian's package `prometheus`.
fn program(name: &str) -> Option<PathBuf> {
    let unpacked = root().join("build/prometheus/usr/bin").join(name);
    let found = which::which(name).ok().or(Some(unpacked))?;
    found.is_file().then_some(found)
}

#[test]
fn the_page_is_offered_in_both_formats_and_a_signal_ends_it_well() {
    let (mut exporter, address) = export(&[]);
    let page = get(&address, "/metrics", OPENMETRICS);
    assert!(
        page.contains("application/openmetrics-text") && page.trim_end().ends_with("# EOF"),
        "{page}"
    );
    assert!(page.contains("\nloam_processes "), "{page}");
    let classic = get(&address, "/metrics", "*/*");
    assert!(
        classic.contains("version=0.0.4") && !classic.contains("# EOF"),
        "{classic}"
    );
    assert!(get(&address, "/", "*/*").contains("/metrics"));
    assert!(get(&address, "/nothing", "*/*").starts_with("HTTP/1.1 404"));
    let pid = exporter.0.id().to_string();
    assert!(common::signal("INT", &pid));
    assert_eq!(exporter.0.wait().unwrap().code(), Some(0));
}

#[test]
fn an_address_that_others_reach_needs_to_be_meant() {
    let ran = Ran::of(
        common::loam()
            .args(["export", "--listen", "0.0.0.0:0"])
            .output()
            .unwrap(),
    );
    assert!(
        ran.code == Some(2) && ran.err.contains("--allow-remote"),
        "{ran:?}"
    );
    for address in [":0", "localhost:0"] {
        let child = common::loam()
            .args(["export", "--listen", address])
            .stderr(Stdio::piped())
            .spawn();
        let mut exporter = Running(child.unwrap());
        let mut line = String::new();
        let lines = exporter.0.stderr.take().unwrap();
        BufReader::new(lines).read_line(&mut line).unwrap();
        assert!(
            line.starts_with("loam: http://127.0.0.1:"),
            "{address}: {line}"
        );
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = Ran::of(
        common::loam()
            .args(["export", "--listen", &address])
            .output()
            .unwrap(),
    );
    assert!(
        ran.code == Some(2) && ran.err.contains("can not be listened on"),
        "{ran:?}"
    );
}

#[test]
fn rules_and_exposition_pass_promtool() {
    let Some(promtool) = program("promtool") else {
        common::skip("no promtool (Debian package prometheus)");
        return;
    };
    let folder = root().join("docs/monitoring");
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
    ] {
        let ran = Ran::of(
            Command::new(&promtool)
                .current_dir(&folder)
                .args(arguments)
                .output()
                .unwrap(),
        );
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let _program = on_loam();
    let (_exporter, address) = export(&["--classes"]);
    let answer = get(&address, "/metrics", "*/*");
    let (_, page) = answer.split_once("\r\n\r\n").unwrap();
    let mut check = Command::new(&promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check
        .stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let ran = Ran::of(check.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}\n{page}");
}

/// The words of a text that name one of our series.
fn series(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        .filter(|word| word.starts_with("loam_"))
        .collect()
}

#[test]
fn dashboard_and_alerts_name_series_that_are_offered() {
    let Some(_program) = on_loam() else {
        common::skip("no build/libloam.so (make build, or LOAM_LIBRARY)");
        return;
    };
    let (_exporter, address) = export(&[]);
    let page = get(&address, "/metrics", "*/*");
    let offered = series(&page);
    let folder = root().join("docs/monitoring");
    for (name, least) in [("dashboard.json", 10), ("alerts.yml", 4)] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let named = series(&text);
        assert!(named.len() >= least, "{name}: {named:?}");
        let unknown: Vec<_> = named.difference(&offered).collect();
        assert!(unknown.is_empty(), "{name} names {unknown:?}\n{page}");
    }
}

#[test]
fn a_real_server_scrapes_a_real_program_until_it_ends() {
    let Some(server) = program("prometheus") else {
        common::skip("no prometheus (Debian package prometheus)");
        return;
    };
    let Some(sleeper) = on_loam() else {
        common::skip("no build/libloam.so (make build, or LOAM_LIBRARY)");
        return;
    };
    let (_exporter, address) = export(&["--match", "^sleep$"]);
    let dir = tempfile::tempdir().unwrap();
    let configuration = format!(
        "scrape_configs:\n- job_name: loam\n  scrape_interval: 500ms\n  static_configs:\n  - \
         targets: ['{address}']\n"
    );
    std::fs::write(dir.path().join("p.yml"), configuration).unwrap();
    let (_server, free) = serve(&server, dir.path());
    let pid = sleeper.0.id().to_string();
    let series = format!("pid%3D%22{pid}%22");
    let query = format!("/api/v1/query?query=loam_live_bytes%7B{series}%7D");
    wait_for("the series", || {
        ask(&free, &query).contains(&format!("\"pid\":\"{pid}\""))
    });
    for query in panels("sleep") {
        let path = format!("/api/v1/query?query={}", percent(&query));
        wait_for(&query, || {
            let answer = ask(&free, &path);
            assert!(
                !answer.contains("\"status\":\"error\""),
                "{query}: {answer}"
            );
            answer.contains("\"value\":[")
        });
    }
    drop(sleeper);
    wait_for("the series' end", || {
        ask(&free, &query).contains("\"result\":[]")
    });
}

/// The queries of the dashboard's panels, as Grafana sends them for a program of that name.
fn panels(program: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/monitoring/dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<String> = targets
        .map(|target| {
            let query = target["expr"].as_str().unwrap();
            query
                .replace("$instance", ".*")
                .replace("$comm", program)
                .replace("$__rate_interval", "10s")
        })
        .collect();
    assert!(queries.len() >= 10, "{queries:?}");
    queries
}

/// A text, encoded as a part of an address.
fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The server and its address. A port that was free a moment ago may be in use by now. Then the
/// server ends at once and is started on another port.
fn serve(program: &Path, folder: &Path) -> (Running, String) {
    for _ in 0..20 {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let mut server = Running(
            Command::new(program)
                .current_dir(folder)
                .args(["--config.file=p.yml", "--storage.tsdb.path=data"])
                .arg(format!("--web.listen-address={address}"))
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        while server.0.try_wait().unwrap().is_none() {
            if ask(&address, "/-/ready").contains(" 200 ") {
                return (server, address);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    panic!("the server ends again and again");
}

/// The answer; empty while there is none, because the server takes a moment to listen.
fn ask(address: &str, query: &str) -> String {
    try_get(address, query, "*/*").unwrap_or_default()
}

fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(
            began.elapsed() < Duration::from_secs(300),
            "{what} did not come"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Connections that send nothing, or send requests and read nothing. There are far more of them
/// than are served at a time.
const IDLE: usize = 300;

#[test]
fn silent_and_greedy_clients_keep_nobody_out() {
    // client_java#2284
    let _program = on_loam();
    let (mut exporter, address) = export(&["--classes"]);
    let silent: Vec<TcpStream> = (0..IDLE)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    let page = get(&address, "/metrics", "*/*");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let greedy: Vec<TcpStream> = (0..IDLE)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            // The client asks repeatedly and never reads an answer.
            let _ = stream.write_all(
                "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
                    .repeat(50)
                    .as_bytes(),
            );
            stream
        })
        .collect();
    // While all that are served wait for one look, nobody else is: a scraper then asks again.
    until("a scraper is served beside greedy clients", || {
        try_get(&address, "/metrics", "*/*").is_ok_and(|page| page.starts_with("HTTP/1.1 200"))
    });
    let mut slow = TcpStream::connect(&address).unwrap();
    slow.write_all(b"GET /metr").unwrap();
    let pid = exporter.0.id().to_string();
    assert!(common::signal("TERM", &pid));
    assert_eq!(exporter.0.wait().unwrap().code(), Some(0));
    drop((silent, greedy, slow));
}
