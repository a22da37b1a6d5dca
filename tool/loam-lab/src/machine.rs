//! Describes the measuring machine, as the system reports it, and the tool.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use procfs::Current;

use loam_format::results::machine::Machine;
use loam_format::results::Tool;

/// This machine, now.
pub fn current() -> Machine {
    let uname = rustix::system::uname();
    let text = |value: &std::ffi::CStr| value.to_string_lossy().into_owned();
    let cpu = procfs::CpuInfo::current().ok();
    let flags = cpu
        .as_ref()
        .and_then(|info| info.flags(0).map(|all| all.join(" ")));
    Machine {
        kernel: format!("{} {}", text(uname.sysname()), text(uname.release())),
        architecture: text(uname.machine()),
        system: distribution(),
        cpu: cpu
            .as_ref()
            .and_then(|info| info.model_name(0))
            .map_or_else(|| "unknown".to_owned(), |name| name.trim().to_owned()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: procfs::Meminfo::current().map_or(0, |info| info.mem_total),
        page_bytes: rustix::param::page_size() as u64,
        transparent_hugepages: transparent_hugepages(),
        overcommit: setting("/proc/sys/vm/overcommit_memory"),
        virtual_machine: flags.is_some_and(|all| all.split(' ').any(|f| f == "hypervisor")),
        load_average: procfs::LoadAverage::current().map_or(0.0, |load| f64::from(load.one)),
        launcher_resident_bytes: procfs::process::Process::myself()
            .and_then(|me| me.stat())
            .map_or(0, |stat| stat.rss * rustix::param::page_size() as u64),
    }
}

fn distribution() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or_else(
            || "unknown system".to_owned(),
            |name| name.trim_matches('"').to_owned(),
        )
}

/// The bracketed word: `always [madvise] never`.
fn transparent_hugepages() -> String {
    let all = setting("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = all
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(all.clone(), |(chosen, _)| chosen.to_owned())
}

fn setting(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The tool, with the commit of the source tree if it runs from a source tree.
pub fn tool(source_root: Option<&Path>) -> Tool {
    let commit = source_root.and_then(|root| git(root, &["rev-parse", "HEAD"]));
    let changes =
        source_root.and_then(|root| git(root, &["status", "--porcelain", "--untracked-files=no"]));
    Tool {
        version: loam_format::VERSION.to_owned(),
        commit: commit.filter(|text| !text.is_empty()),
        modified: changes.is_some_and(|text| !text.is_empty()),
    }
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_memory_and_cores() {
        let machine = current();
        assert!(machine.kernel.starts_with("Linux "));
        assert!(machine.memory_bytes > 0 && machine.cores > 0 && machine.page_bytes >= 4096);
        assert!(machine.launcher_resident_bytes > 0);
    }
}
