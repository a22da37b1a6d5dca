//! `loam export --otlp`: what a collector gets, and what happens when it refuses, is silent or is
//! not there. The receiver here decodes with the types that the makers of the protocol publish. A
//! real collector is used where there is one: in PATH as `otelcol`, or in build/otelcol
//! (`tools/setup collector`).

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Figure;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics};
use prost::Message;

use crate::common::{self, get, on_loam, root, until, Ran, Running};

/// A request: its path and its body.
type Request = (String, Vec<u8>);

/// Answers each request with the next of these answers, the last one for ever.
struct Receiving {
    address: String,
    requests: Receiver<Request>,
}

const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn receive(answers: Vec<Vec<u8>>) -> Receiving {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (sender, answers) = (sender.clone(), Arc::clone(&answers));
            std::thread::spawn(move || one(stream, &sender, &answers));
        }
    });
    Receiving { address, requests }
}

fn one(stream: TcpStream, sender: &Sender<Request>, answers: &Mutex<VecDeque<Vec<u8>>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).unwrap() <= 2 {
            break;
        }
        let header = header.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if let Some(value) = header.strip_prefix("content-type:") {
            assert_eq!(value.trim(), "application/x-protobuf");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let answer = {
        let mut answers = answers.lock().unwrap();
        match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop_front().unwrap(),
        }
    };
    let _ = sender.send((path, body));
    let mut stream = stream;
    let _ = stream.write_all(&answer);
}

impl Receiving {
    fn next(&self) -> Request {
        self.requests
            .recv_timeout(Duration::from_secs(300))
            .expect("a request comes")
    }
}

fn once(address: &str, options: &[&str]) -> Ran {
    let mut command = common::loam();
    command.args(["export", "--otlp", address, "--once"]);
    Ran::of(command.args(options).output().unwrap())
}

fn shown(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|one| one.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The resource with that attribute.
fn resource<'a>(
    request: &'a ExportMetricsServiceRequest,
    key: &str,
    value: &str,
) -> &'a ResourceMetrics {
    let mut all = request.resource_metrics.iter();
    all.find(|one| {
        let attributes = &one.resource.as_ref().unwrap().attributes;
        shown(attributes, key).as_deref() == Some(value)
    })
    .unwrap_or_else(|| panic!("no {key}={value} in {request:#?}"))
}

fn metric<'a>(resource: &'a ResourceMetrics, name: &str) -> &'a Metric {
    let mut all = resource.scope_metrics[0].metrics.iter();
    all.find(|one| one.name == name)
        .unwrap_or_else(|| panic!("no {name} in {resource:#?}"))
}

/// Unit, whether it is a sum that only grows, and the figures.
fn figures(metric: &Metric) -> (&str, Option<bool>, Vec<f64>) {
    let (sum, points) = match metric.data.as_ref().unwrap() {
        Data::Sum(sum) => {
            assert_eq!(sum.aggregation_temporality, 2, "cumulative");
            assert!(sum
                .data_points
                .iter()
                .all(|one| one.start_time_unix_nano > 0
                    && one.start_time_unix_nano <= one.time_unix_nano));
            (Some(sum.is_monotonic), &sum.data_points)
        }
        Data::Gauge(gauge) => (None, &gauge.data_points),
        other => panic!("{other:?}"),
    };
    let values = points.iter().map(|point| match point.value {
        Some(Figure::AsInt(value)) => value as f64,
        Some(Figure::AsDouble(value)) => value,
        None => panic!("{metric:?}"),
    });
    (&metric.unit, sum, values.collect())
}

#[test]
fn a_collector_gets_each_process_by_the_names_of_the_conventions() {
    let Some(sleeper) = on_loam() else {
        common::skip("no build/libloam.so (make build, or LOAM_LIBRARY)");
        return;
    };
    let pid = sleeper.0.id().to_string();
    let receiving = receive(vec![TAKEN.to_vec()]);
    // Until the program is on the heap.
    let mut request = ExportMetricsServiceRequest::default();
    for _ in 0..300 {
        let ran = once(&receiving.address, &["--match", "^sleep$"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            ran.err.contains("delivered to http://127.0.0.1:"),
            "{ran:?}"
        );
        let (path, body) = receiving.next();
        assert_eq!(path, "/v1/metrics");
        request = ExportMetricsServiceRequest::decode(&*body).unwrap();
        let mut all = request.resource_metrics.iter();
        let is_there = |one: &ResourceMetrics| {
            let attributes = &one.resource.as_ref().unwrap().attributes;
            shown(attributes, "process.pid").as_deref() == Some(pid.as_str())
        };
        if all.any(is_there) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let own = resource(&request, "service.name", "loam-export");
    assert!(figures(metric(own, "loam.processes")).2[0] >= 1.0);
    let program = resource(&request, "process.pid", &pid);
    let attributes = &program.resource.as_ref().unwrap().attributes;
    for (key, value) in [
        ("service.name", "sleep"),
        ("process.executable.name", "sleep"),
        ("process.title", "sleep"),
    ] {
        assert_eq!(
            shown(attributes, key).as_deref(),
            Some(value),
            "{attributes:?}"
        );
    }
    let path = shown(attributes, "process.executable.path").unwrap();
    assert!(path.ends_with("/sleep"), "{path}");
    let instance = shown(attributes, "service.instance.id").unwrap();
    assert!(instance.contains(&format!(":{pid}:")), "{instance}");
    let (unit, sum, usage) = figures(metric(program, "process.memory.usage"));
    assert_eq!((unit, sum), ("By", Some(false)));
    let (_, sum, virtual_) = figures(metric(program, "process.memory.virtual"));
    assert_eq!(sum, Some(false));
    assert!(
        usage[0] > 65_536.0 && virtual_[0] > usage[0],
        "{usage:?} {virtual_:?}"
    );
    let faults = metric(program, "process.paging.faults");
    let (unit, sum, counts) = figures(faults);
    assert_eq!((unit, sum, counts.len()), ("{fault}", Some(true), 2));
    let (unit, sum, live) = figures(metric(program, "loam.live"));
    assert_eq!((unit, sum), ("By", None));
    assert!(live[0] > 0.0);
    assert_eq!(figures(metric(program, "loam.free_ratio")).0, "1");
    assert_eq!(
        figures(metric(program, "loam.cache_misses")).0,
        "{operation}"
    );

    // One table: what the page has of this process is here too, and nothing else.
    let (_exporter, address) = common::export(&["--match", "^sleep$"]);
    let page = get(&address, "/metrics", "*/*");
    let label = format!("pid=\"{pid}\"");
    let mut names: Vec<&str> = page
        .lines()
        .filter(|line| line.contains(&label))
        .map(|line| line.split('{').next().unwrap())
        .collect();
    names.dedup();
    let metrics = &program.scope_metrics[0].metrics;
    // The two kinds of faults are one metric here.
    assert_eq!(names.len(), metrics.len() + 1, "{names:?}\n{metrics:#?}");
}

#[test]
fn what_a_collector_does_not_take_is_said() {
    let status = |code: &str, more: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {code}\r\n{more}Content-Length: {length}\r\n\r\n{body}").into_bytes()
    };
    let partial = ExportMetricsServiceResponse {
        partial_success: Some(ExportMetricsPartialSuccess {
            rejected_data_points: 7,
            error_message: "too old\u{1b}[2J".to_owned(),
        }),
    }
    .encode_to_vec();
    let mut part = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
        partial.len()
    );
    let mut rejected = std::mem::take(&mut part).into_bytes();
    rejected.extend(partial);
    for (answer, said) in [
        (rejected, "rejected 7: too old"),
        (
            status("404 Not Found", "", "404 page"),
            "404 Not Found: 404 page; it has no /v1/metrics",
        ),
        (
            status("400 Bad Request", "", "\n\u{1}\u{12}\u{3}bad"),
            "refused with 400",
        ),
        (
            status("503 Service Unavailable", "", ""),
            "refused with 503",
        ),
        (
            status("302 Found", "Location: http://127.0.0.1:1/\r\n", ""),
            "refused with 302",
        ),
        (
            status("200 OK", "", "<html>hello</html>"),
            "is no collector",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "http://127.0.0.1:"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n".to_vec(),
            "http://127.0.0.1:",
        ),
        (
            status("200 OK", "", &"x".repeat(1 << 20)),
            "http://127.0.0.1:",
        ),
    ] {
        let receiving = receive(vec![answer]);
        let ran = once(&receiving.address, &["--match", "^none$"]);
        assert_eq!(ran.code, Some(2), "{said}: {ran:?}");
        assert!(ran.err.contains(said), "{said}: {ran:?}");
        assert!(
            !ran.err.contains('\u{1b}') && ran.err.len() < 1000,
            "{ran:?}"
        );
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let ran = once(&address, &[]);
    assert!(
        ran.code == Some(2) && ran.err.contains("can not be reached: Connection refused"),
        "{ran:?}"
    );
    for (words, said) in [
        (["--otlp", "https://localhost", "--once"], "by TLS"),
        (
            ["--otlp", "localhost:4318", "--once"],
            "for instance http://localhost:4318",
        ),
        (["--otlp", "http://x", "--listen=:1"], "cannot be used with"),
    ] {
        let ran = Ran::of(common::loam().arg("export").args(words).output().unwrap());
        assert!(ran.code == Some(2) && ran.err.contains(said), "{ran:?}");
    }
}

#[test]
fn a_collector_that_is_away_gets_its_data_later_and_a_signal_ends_it_well() {
    let later = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n";
    // The third request is left open for ever: a signal does not wait for it.
    let receiving = receive(vec![later.to_vec(), TAKEN.to_vec(), later.to_vec()]);
    let mut exporter = Running(
        common::loam()
            .args([
                "export",
                "--otlp",
                &receiving.address,
                "--every",
                "1s",
                "--match",
                "^none$",
            ])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(exporter.0.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(
        first.contains("metrics every 1s to http://127.0.0.1:"),
        "{first}"
    );
    let (refused, taken) = (receiving.next(), receiving.next());
    assert_eq!(refused.1, taken.1, "the same request is repeated");
    let warning = lines.next().unwrap().unwrap();
    assert!(
        warning.contains("warning: ") && warning.contains("503"),
        "{warning}"
    );
    let well = lines.next().unwrap().unwrap();
    assert!(well.contains("takes everything again"), "{well}");
    receiving.next();
    let pid = exporter.0.id().to_string();
    assert!(common::signal("TERM", &pid));
    assert_eq!(exporter.0.wait().unwrap().code(), Some(0));
}

/// A tree of Python objects, on the heap: lists that hold strings.
const HOLDER: &str = "keep = [[str(i) * 20 for i in range(j, j + 10)] for j in range(2000)]; \
                      print('ready', flush=True); input()";

fn holder() -> Option<common::Talker> {
    let library = common::library()?;
    let mut python = Command::new("/usr/bin/python3");
    python
        .args(["-c", HOLDER])
        .env("LD_PRELOAD", library)
        .env("PYTHONMALLOC", "malloc");
    Some(common::Talker::start(&mut python))
}

#[test]
fn a_profile_says_what_blocks_are_and_who_holds_them() {
    let Some(python) = holder() else {
        common::skip("no build/libloam.so (make build, or LOAM_LIBRARY)");
        return;
    };
    let pid = python.pid();
    let receiving = receive(vec![TAKEN.to_vec()]);
    let ran = once(&receiving.address, &["--types", "--match", "^python3"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(receiving.next().0, "/v1/metrics");
    let profile = std::iter::repeat_with(|| receiving.next())
        .map(|(path, body)| {
            assert_eq!(path, "/v1development/profiles");
            ExportProfilesServiceRequest::decode(&*body).unwrap()
        })
        .find(|request| {
            let resource = request.resource_profiles[0].resource.as_ref().unwrap();
            shown(&resource.attributes, "process.pid").as_deref() == Some(pid.as_str())
        })
        .unwrap();
    let tables = profile.dictionary.as_ref().unwrap();
    let text = |at: i32| tables.string_table[at as usize].as_str();
    let profiles = &profile.resource_profiles[0].scope_profiles[0].profiles;
    let kinds: Vec<_> = profiles
        .iter()
        .map(|one| one.sample_type.unwrap())
        .map(|kind| (text(kind.type_strindex), text(kind.unit_strindex)))
        .collect();
    assert_eq!(
        kinds,
        [("inuse_space", "bytes"), ("inuse_objects", "count")]
    );
    let frames = |stack: i32| -> Vec<&str> {
        let places = tables.stack_table[stack as usize].location_indices.iter();
        places
            .map(|place| &tables.location_table[*place as usize].lines[0])
            .map(|line| text(tables.function_table[line.function_index as usize].name_strindex))
            .collect()
    };
    let held = |which: usize| -> i64 {
        let samples = profiles[which].samples.iter();
        samples
            .filter(|sample| {
                let frames = frames(sample.stack_index);
                // The blocks themselves come first, then what holds them.
                frames[0] == "str" && frames[1..].contains(&"list")
            })
            .map(|sample| sample.values[0])
            .sum()
    };
    assert!(held(0) > 20_000 * 69, "{}", held(0));
    assert!(held(1) > 15_000, "{}", held(1));
    // The first row of each table stands for nothing, and nothing points at it.
    assert_eq!(
        (
            tables.string_table[0].as_str(),
            tables.stack_table[0].location_indices.len()
        ),
        ("", 0)
    );
    assert!(profiles
        .iter()
        .flat_map(|one| &one.samples)
        .all(|one| one.stack_index > 0));
}

/// The collector of `tools/setup collector`.
fn collector() -> Option<PathBuf> {
    let built = root().join("build/otelcol/otelcol");
    let found = which::which("otelcol").ok().or(Some(built))?;
    found.is_file().then_some(found)
}

#[test]
fn a_real_collector_takes_metrics_and_profiles() {
    let Some(collector) = collector() else {
        common::skip("no otelcol (tools/setup collector)");
        return;
    };
    let Some(python) = holder() else {
        common::skip("no build/libloam.so (make build, or LOAM_LIBRARY)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    // A port that was free a moment ago may be in use by now. Then the collector ends at once.
    let started = (0..20).find_map(|_| {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let configuration = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: '{address}'}}}}}}}}\n\
             exporters: {{debug: {{verbosity: detailed}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  pipelines:\n\
             \x20   metrics: {{receivers: [otlp], exporters: [debug]}}\n\
             \x20   profiles: {{receivers: [otlp], exporters: [debug]}}\n"
        );
        let file = folder.path().join("otelcol.yaml");
        std::fs::write(&file, configuration).unwrap();
        let mut child = Running(
            Command::new(&collector)
                .arg("--config")
                .arg(&file)
                .arg("--feature-gates=service.profilesSupport")
                .stderr(std::fs::File::create(&output).unwrap())
                .spawn()
                .unwrap(),
        );
        while child.0.try_wait().unwrap().is_none() {
            if TcpStream::connect(&address).is_ok() {
                return Some((child, format!("http://{address}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    });
    let said = || std::fs::read_to_string(&output).unwrap();
    let (_collector, address) = started.unwrap_or_else(|| panic!("it ends at once: {}", said()));
    let ran = once(&address, &["--types", "--match", "^python3"]);
    assert_eq!(ran.code, Some(0), "{ran:?}\n{}", said());
    let pid = python.pid();
    for words in [
        &format!("process.pid: Int({pid})"),
        "Name: process.memory.usage",
        "Name: process.paging.faults",
        "Name: loam.live",
        "inuse_space",
    ] {
        until(words, || said().contains(words));
    }
}
