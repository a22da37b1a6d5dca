//! A folder with fake workloads and a fake allocator, for whole runs of `loam` without the heap.

use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub mod browser;
pub mod clients;
pub mod recorded;

/// The output of a fake workload without errors. `$RATE` is its speed.
pub const GOOD: &str = r#"
RATE=${RATE:-1000}
echo '{"type":"start","workload":"fake","version":1,"seed":1}'
for i in 0 1 2; do
  echo '{"type":"checkpoint","variant":"malloc","series":"steps","index":'$i',"x":'$((i + 1))\
',"x_unit":"step","operations":'$RATE',"seconds":1.0,"operations_per_second":'$RATE\
',"resident_bytes":1048576,"peak_resident_bytes":2097152,"minor_faults":'$((i * 10))\
',"overhead":0.25,"novel":7}'
done
echo '{"type":"end","seconds":3.0,"checksum":"abc"}'
"#;

/// A temporary folder to run `loam lab` in.
pub struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    pub fn new() -> Lab {
        let lab = Lab {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(lab.path("workloads")).unwrap();
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Adds a workload: a shell script.
    pub fn workload(&self, name: &str, script: &str) -> &Lab {
        let path = self.path("workloads").join(name);
        executable(&path, &format!("#!/bin/sh\n{script}"));
        self
    }

    /// `loam lab ARGUMENTS`, with the fake workloads, in this folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = loam();
        command
            .current_dir(self.dir.path())
            .arg("lab")
            .args(arguments)
            .arg("--workloads-dir")
            .arg(self.path("workloads"));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// Runs the workload `fake` under the system's allocator and this one, into `r.json`.
    pub fn compare(&self, library: &Path, options: &[&str]) -> Ran {
        let list = format!("system,{}", library.display());
        let fixed = ["fake", "--json", "r.json", "--allocators", &list];
        self.run(&[&fixed, options].concat())
    }

    /// The results file of that name.
    pub fn results(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.path(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Builds an allocator: a shared object that passes every call on to the C library. Only its
    /// presence distinguishes it from the system's allocator.
    pub fn allocator(&self, name: &str) -> PathBuf {
        let source = self.path("forward.c");
        let library = self.path(&format!("lib{name}.so"));
        let code = r#"
            #include <stddef.h>
            void *__libc_malloc(size_t); void *__libc_calloc(size_t, size_t);
            void *__libc_realloc(void *, size_t); void __libc_free(void *);
            void *malloc(size_t n) { return __libc_malloc(n); }
            void *calloc(size_t n, size_t m) { return __libc_calloc(n, m); }
            void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
            void free(void *p) { __libc_free(p); }
        "#;
        fs::write(&source, code).unwrap();
        compile(&["-shared", "-fPIC", "-fno-builtin"], &source, &library);
        library
    }
}

/// Writes an executable file. Another process writes it. If this process did, a child that another
/// test starts at that moment would hold the file open for writing for a while. A file that is open
/// for writing can not be executed.
pub fn executable(path: &Path, text: &str) {
    executable_bytes(path, text.as_bytes());
}

/// The same of bytes.
pub fn executable_bytes(path: &Path, bytes: &[u8]) {
    let mut writer = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = writer.stdin.take().unwrap();
    input.write_all(bytes).unwrap();
    drop(input);
    assert!(writer.wait().unwrap().success(), "{}", path.display());
}

/// Compiles a C file with the compiler that the project's own build needs.
pub fn compile(options: &[&str], source: &Path, product: &Path) {
    let status = Command::new("cc")
        .args(options)
        .arg(source)
        .arg("-o")
        .arg(product)
        .status()
        .unwrap();
    assert!(status.success(), "cc failed on {}", source.display());
}

/// Reports that a test can not run here, and counts it. libtest has no such outcome, so
/// tools/run_tests reads the count from the file that LOAM_TEST_SKIPS names.
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
    if let Some(path) = std::env::var_os("LOAM_TEST_SKIPS") {
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.unwrap(), "{reason}").unwrap();
    }
}

/// The replayer, which the build of the library makes. Without it a test reports that it was
/// skipped.
pub fn replayer() -> Option<PathBuf> {
    let loam = PathBuf::from(env!("CARGO_BIN_EXE_loam"));
    let layout = loam_process::layout::Layout::of_executables([loam]);
    let found = layout.find(loam_process::layout::REPLAYER_NAME).ok();
    if found.is_none() {
        skip("the replayer is not built (`make library`)");
    }
    found
}

/// Whether replays on the heap can be tested. Without the replayer or the heap, a test reports that
/// it was skipped.
pub fn can_replay_on_loam() -> bool {
    if library().is_none() {
        skip("the library is not built (`make library`)");
        return false;
    }
    replayer().is_some()
}

/// Runs `loam ARGUMENTS` in a folder to its end.
pub fn loam_in(folder: &Path, arguments: &[&str]) -> Ran {
    Ran::of(loam().current_dir(folder).args(arguments).output().unwrap())
}

/// Compiles the gate's example as NAME and records it in NAME.trace.
pub fn record_orders(folder: &Path, name: &str, options: &[&str]) {
    let source = root().join("examples/gate/orders.c");
    compile(options, &source, &folder.join(name));
    let (trace, program) = (format!("{name}.trace"), format!("./{name}"));
    let ran = loam_in(folder, &["record", "--output", &trace, "--", &program]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// The tool, unaffected by the environment of the test run.
pub fn loam() -> Command {
    // A shell without job control makes its background processes ignore these two signals, and the
    // tool would inherit that.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,QUIT", env!("CARGO_BIN_EXE_loam")]);
    for name in ["LOAM_LIBRARY", "LD_PRELOAD", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that ends with the test, prints `ready`, and answers each line with a line.
pub struct Talker {
    child: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talker {
    /// Starts it, and waits until it is ready.
    pub fn start(command: &mut Command) -> Talker {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut talker = Talker {
            child: Running(child),
            input,
            output,
        };
        assert_eq!(talker.line(), "ready", "{command:?}");
        talker
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Sends the line in one write: a program may take the bytes of one read for a line.
    pub fn tell(&mut self, what: &str) {
        let line = format!("{what}\n");
        self.input.write_all(line.as_bytes()).unwrap();
    }

    pub fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.line()
    }

    pub fn pid(&self) -> String {
        self.child.0.id().to_string()
    }

    /// Waits until the program ends by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.0.wait().unwrap()
    }
}

/// Starts the exporter on a free port.
pub fn export(arguments: &[&str]) -> (Running, String) {
    let mut child = loam()
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

/// The answer to a request.
pub fn get(address: &str, path: &str, accept: &str) -> String {
    try_get(address, path, accept).unwrap()
}

/// The same, if there may be no server.
pub fn try_get(address: &str, path: &str, accept: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The library, if it has been built.
pub fn library() -> Option<PathBuf> {
    let named = std::env::var_os("LOAM_LIBRARY").map(PathBuf::from);
    let path = named.unwrap_or_else(|| root().join("build/libloam.so"));
    path.canonicalize().ok().filter(|path| path.is_file())
}

/// A real program on the heap, or none if the heap has not been built.
pub fn on_loam() -> Option<Running> {
    Some(sleeping(&library()?))
}

/// A program that sleeps with that library preloaded.
pub fn sleeping(library: &Path) -> Running {
    let mut sleep = Command::new("sleep");
    let child = sleep.arg("3600").env("LD_PRELOAD", library).spawn();
    Running(child.unwrap())
}

/// Waits until the condition holds. The limit only ends a test that hangs: the machine may be busy
/// for seconds.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal, named without SIG. Returns whether the process existed.
pub fn signal(name: &str, pid: impl Display) -> bool {
    let status = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .stderr(Stdio::null())
        .status();
    status.unwrap().success()
}

/// The state of a process's first thread: `T` stopped, `Z` ended and not collected, ...
pub fn state(pid: impl Display) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

/// The outcome of a command, as text.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Status of every counted trial, with the trial's allocator.
pub fn statuses(results: &Value) -> Vec<(String, String)> {
    trials(results)
        .map(|trial| {
            let text = |key: &str| trial[key].as_str().unwrap().to_owned();
            (text("allocator"), text("status"))
        })
        .collect()
}

/// The counted trials.
pub fn trials(results: &Value) -> impl Iterator<Item = &Value> {
    results["trials"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|trial| trial["warm_up"] == false)
}

/// The recorder, if it has been built.
pub fn recorder() -> Option<PathBuf> {
    let path = root().join("build/libloam-record.so");
    let path = path.canonicalize().ok().filter(|path| path.is_file());
    if path.is_none() {
        skip("build/libloam-record.so has not been built");
    }
    path
}

/// A control group of this test's own, which goes when the test ends.
pub struct Limited(pub PathBuf);

impl Limited {
    /// Its name begins so. None: there can be none here.
    pub fn new(name: &str) -> Option<Limited> {
        let name = format!("{name}-{}", std::process::id());
        ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
            .iter()
            .map(|parent| Path::new(parent).join(&name))
            .find_map(|path| {
                fs::create_dir(&path).ok()?;
                let group = Limited(path);
                let has_limits = group.limit_file().is_some();
                has_limits.then_some(group)
            })
    }

    fn limit_file(&self) -> Option<PathBuf> {
        let files = ["memory.limit_in_bytes", "memory.max"].map(|name| self.0.join(name));
        files.into_iter().find(|file| file.exists())
    }

    pub fn used(&self) -> u64 {
        let files = ["memory.usage_in_bytes", "memory.current"].map(|name| self.0.join(name));
        let used = files.iter().find_map(|file| fs::read_to_string(file).ok());
        used.unwrap().trim().parse().unwrap()
    }

    pub fn limit(&self, bytes: u64) {
        fs::write(self.limit_file().unwrap(), bytes.to_string()).unwrap();
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        until("the control group empties", || {
            fs::remove_dir(&self.0).is_ok() || !self.0.exists()
        });
    }
}
