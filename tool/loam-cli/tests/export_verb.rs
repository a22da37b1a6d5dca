//! `loam export`: the page, who may reach it, how it ends, and a real Prometheus server that scrapes
//! it. The server is looked for in PATH and where the tests' set-up unpacks it.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Ran;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the exporter on a free port.
fn export(arguments: &[&str]) -> (Running, String) {
    let mut child = common::loam()
        .args(["export", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .trim()
        .strip_prefix("loam: http://")
        .unwrap_or_else(|| panic!("{line}"));
    (
        Running(child),
        address.trim_end_matches("/metrics").to_owned(),
    )
}

fn get(address: &str, path: &str, accept: &str) -> String {
    try_get(address, path, accept).unwrap()
}

fn try_get(address: &str, path: &str, accept: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program of Debian's package `prometheus`.
fn program(name: &str) -> Option<PathBuf> {
    let unpacked = root().join("build/prometheus/usr/bin").join(name);
    let found = which::which(name).ok().or(Some(unpacked))?;
    found.is_file().then_some(found)
}

/// The library, if it has been built.
fn library() -> Option<PathBuf> {
    let named = std::env::var_os("LOAM_LIBRARY").map(PathBuf::from);
    let path = named.unwrap_or_else(|| root().join("build/libloam.so"));
    path.canonicalize().ok().filter(|path| path.is_file())
}

/// A real program on the heap, or none where it has not been built.
fn on_loam() -> Option<Running> {
    let child = Command::new("sleep")
        .arg("3600")
        .env("LD_PRELOAD", library()?)
        .spawn();
    Some(Running(child.unwrap()))
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
    assert!(Command::new("kill")
        .args(["-INT", &pid])
        .status()
        .unwrap()
        .success());
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
        "scrape_configs:\n- job_name: loam\n  scrape_interval: 500ms\n  static_configs:\n  - targets: ['{address}']\n"
    );
    std::fs::write(dir.path().join("p.yml"), configuration).unwrap();
    let (_server, free) = serve(&server, dir.path());
    let pid = sleeper.0.id().to_string();
    let series = format!("pid%3D%22{pid}%22");
    let query = format!("/api/v1/query?query=loam_live_bytes%7B{series}%7D");
    wait_for("the series", || {
        ask(&free, &query).contains(&format!("\"pid\":\"{pid}\""))
    });
    drop(sleeper);
    wait_for("the series' end", || {
        ask(&free, &query).contains("\"result\":[]")
    });
}

/// The server, and where it answers. A port that was free a moment ago may be another's by now: then it ends at once,
/// and is started on another.
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

/// What is answered; nothing while nobody does, for the server takes a moment to listen.
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
