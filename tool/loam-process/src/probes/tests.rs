//! Probes on a program that says what it has lost. The kernel lets only some users set probes;
//! elsewhere these tests say that they were skipped.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;
use crate::perf::rights::Rights;

/// `leak N M W`: N blocks of 100 bytes are lost by lose(), and M come and go for each, with so much
/// work for each that the process has a time of its own beside its allocator's.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *volatile lost;
__attribute__((noinline)) void lose(void) { lost = memset(malloc(100), 1, 100); }
static void *kept[64];
__attribute__((noinline)) void serve(unsigned i) {
  free(kept[i % 64]);
  kept[i % 64] = memset(malloc(50 + i % 500), 2, 50);
}
int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("ready");
  char line[100];
  unsigned long n, m, w;
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "leak %lu %lu %lu", &n, &m, &w) != 3) return 0;
    for (unsigned long i = 0; i < n; i++) {
      lose();
      for (unsigned long j = 0; j < m; j++) {
        serve(rand());
        for (volatile unsigned long k = 0; k < w; k++) continue;
      }
    }
    puts("done");
  }
}
"#;

struct Talker {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    _dir: tempfile::TempDir,
}

impl Talker {
    fn start() -> Talker {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("p.c");
        std::fs::write(&source, PROGRAM).unwrap();
        let product = dir.path().join("p");
        let built = Command::new("cc")
            .args(["-O1", "-g", "-o"])
            .args([&product, &source])
            .status();
        assert!(built.unwrap().success());
        let mut child = Command::new(&product)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let mut talker = Talker {
            child,
            to,
            from,
            _dir: dir,
        };
        assert_eq!(talker.line(), "ready");
        talker
    }

    fn pid(&self) -> Pid {
        self.child.id() as Pid
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.to, "{order}").unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn may_probe() -> bool {
    let refused = Rights::over(std::process::id() as Pid).refuses_probes();
    if let Some(why) = &refused {
        eprintln!("skipped: {why}");
    }
    refused.is_none()
}

/// Lets the program work while it is watched.
fn watch(talker: &mut Talker, orders: &[&str], cost: f64) -> (Probes, Vec<Change>) {
    let sources = Probes::sources_of(talker.pid()).unwrap();
    let mut probes = Probes::begin(talker.pid(), sources, cost).unwrap();
    let mut changes = Vec::new();
    for order in orders {
        talker.tell(order);
        let from = talker.from.get_ref();
        loop {
            changes.extend(probes.pass().unwrap());
            let file = rustix::event::PollFd::new(from, rustix::event::PollFlags::IN);
            let limit = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            if rustix::event::poll(&mut [file], Some(&limit)).unwrap() > 0 {
                break;
            }
            probes.wait();
        }
        assert_eq!(talker.line(), "done");
    }
    probes.stop();
    changes.extend(probes.finish());
    (probes, changes)
}

fn code(pid: Pid, sources: &[Source]) -> Vec<Vec<u8>> {
    let mappings = mappings::read_names(pid).unwrap();
    let mut all = Vec::new();
    for source in sources {
        for entry in &source.entries {
            let mapping = mappings.iter().find(|mapping| {
                mapping.name == source.name
                    && (mapping.offset..mapping.offset + mapping.size()).contains(&entry.offset)
            });
            let mapping = mapping.unwrap();
            let mut bytes = vec![0; 8];
            ProcessMemory::of(pid)
                .read(mapping.start + entry.offset - mapping.offset, &mut bytes)
                .unwrap();
            all.push(bytes);
        }
    }
    all
}

#[test]
fn a_program_that_asks_for_few_blocks_is_seen_whole() {
    if !may_probe() {
        return;
    }
    let mut talker = Talker::start();
    let sources = Probes::sources_of(talker.pid()).unwrap();
    let before = code(talker.pid(), &sources);
    let (probes, changes) = watch(&mut talker, &["leak 100 3 0"], 0.02);
    eprintln!("{:?} scale {}", probes.prices(), probes.scale);
    assert!(!probes.has_gaps());
    assert_eq!(probes.samples(), (400, 0), "100 lost, 300 served");
    let estimate = probes.estimate();
    // Of those served 64 at most live.
    assert!(estimate.bytes >= 10_000.0 && estimate.bytes < 10_000.0 + 64.0 * 600.0);
    assert_eq!(estimate.error, 0.0);
    let came = |change: &&Change| matches!(change, Change::Grown(_));
    assert_eq!(changes.iter().filter(came).count(), 400);
    // The probes are out as soon as the kernel has done so.
    while code(talker.pid(), &sources) != before {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The estimate is within two of its errors in nineteen of twenty tries. On a busy machine windows
/// are short, and then its error says little: so several tries.
#[test]
fn a_sample_stands_for_what_was_not_seen() {
    if !may_probe() {
        return;
    }
    const TRIES: u32 = 5;
    let truth = 6.0 * 5_000.0 * 100.0;
    let is_right =
        |_| {
            let mut talker = Talker::start();
            let (probes, _) = watch(&mut talker, &["leak 5000 30 1500"; 6], 0.5);
            assert!(probes.rounds.iter().any(|round| round.weight > 2.0));
            let mut sites = probes.sites().all().to_vec();
            sites.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
            let estimate = probes.estimate();
            eprintln!(
            "found {:?} of {truth}, {:?} samples, {} windows, cost {:?}, watched {}, scale {}, \
             weights {:?}",
            estimate,
            probes.samples(),
            probes.windows(),
            probes.cost(),
            probes.watched(),
            probes.scale,
            probes.rounds.iter().map(|round| round.weight as u64).collect::<Vec<_>>()
        );
            let found = sites[0].bytes;
            found > truth / 2.0
                && found < truth * 2.0
                && (estimate.bytes - truth).abs() < 2.0 * estimate.error
        };
    assert!((0..TRIES).any(is_right));
}

#[test]
fn a_process_that_ends_is_over() {
    if !may_probe() {
        return;
    }
    let mut talker = Talker::start();
    let sources = Probes::sources_of(talker.pid()).unwrap();
    let mut probes = Probes::begin(talker.pid(), sources, 0.02).unwrap();
    talker.tell("quit");
    let mut rest = String::new();
    talker.from.read_to_string(&mut rest).unwrap();
    while !probes.is_over() {
        probes.pass().unwrap();
        probes.wait();
    }
    probes.stop();
    probes.finish();
}
