//! How much of the machine a process may use: its control groups' limits and the cores that it may
//! run on.
//!
//! A program in a container sees all cores of its host. A heap that makes an arena or a cache for
//! each core then makes too many. Both versions of control groups are read; of nested groups the
//! tightest limit counts.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{status_value, Pid};

/// The limits of a process. A limit that does not exist, or can not be read, is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Limits {
    /// Cores of the machine.
    pub cores: u32,
    /// Cores that the process may run on.
    pub allowed_cores: Option<u32>,
    /// Processor time per time, in cores.
    pub quota: Option<f64>,
    /// Bytes that its group may have resident.
    pub memory: Option<u64>,
    /// The resident bytes of its group, namely of the group that has the limit.
    pub memory_used: Option<u64>,
    /// Bytes of it that the kernel takes back before it refuses any: files' pages and records of
    /// files.
    pub memory_reclaimable: u64,
    /// Bytes of it in files in memory (tmpfs) and shared memory, which no process needs to have
    /// mapped.
    pub memory_in_tmpfs: u64,
}

impl Limits {
    /// Whether the group uses this part of its limit, without what the kernel can take back.
    pub fn uses(&self, part: f64) -> bool {
        let used = self.memory_used.unwrap_or(0);
        let used = used.saturating_sub(self.memory_reclaimable) as f64;
        self.memory.is_some_and(|limit| used >= limit as f64 * part)
    }

    /// Reads the limits of a process.
    pub fn of(pid: Pid) -> Limits {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let allowed = status_value(pid, "Cpus_allowed_list");
        let cores = fs::read_to_string("/sys/devices/system/cpu/online");
        let mut limits = Limits {
            cores: cores.ok().and_then(|list| cores_in(&list)).unwrap_or(1),
            allowed_cores: allowed.and_then(|list| cores_in(&list)),
            ..Limits::default()
        };
        limits.read_groups(Path::new("/sys/fs/cgroup"), &groups);
        limits
    }

    /// How many threads can run at a time, rounded up.
    pub fn usable_cores(&self) -> u32 {
        let quota = self
            .quota
            .map_or(u32::MAX, |cores| cores.ceil().max(1.0) as u32);
        self.allowed_cores.unwrap_or(self.cores).min(quota).max(1)
    }

    fn read_groups(&mut self, root: &Path, groups: &str) {
        for line in groups.lines() {
            // "0::/path" is version 2, "4:cpu,cpuacct:/path" version 1.
            let mut parts = line.splitn(3, ':');
            let (Some(number), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            if number == "0" && controllers.is_empty() {
                for group in lineage(root, path) {
                    self.add_quota(&group.join("cpu.max"), None);
                    self.add_memory(&group, "memory.max", "memory.current");
                }
            }
            for controller in controllers.split(',') {
                for group in lineage(&root.join(controller), path) {
                    match controller {
                        "cpu" => self.add_quota(
                            &group.join("cpu.cfs_quota_us"),
                            Some(&group.join("cpu.cfs_period_us")),
                        ),
                        "memory" => self.add_memory(
                            &group,
                            "memory.limit_in_bytes",
                            "memory.usage_in_bytes",
                        ),
                        _ => {}
                    }
                }
            }
        }
    }

    fn add_quota(&mut self, quota: &Path, period: Option<&Path>) {
        let Ok(mut text) = fs::read_to_string(quota) else {
            return;
        };
        if let Some(period) = period {
            text += " ";
            text += &fs::read_to_string(period).unwrap_or_default();
        }
        // "max 100000", "-1 100000": there is no limit.
        let mut numbers = text.split_whitespace().map(|word| word.parse::<f64>().ok());
        if let (Some(Some(quota)), Some(Some(period))) = (numbers.next(), numbers.next()) {
            if quota > 0.0 && period > 0.0 {
                let cores = quota / period;
                self.quota = Some(self.quota.map_or(cores, |known| known.min(cores)));
            }
        }
    }

    fn add_memory(&mut self, group: &Path, limit: &str, used: &str) {
        let number = |file: &str| -> Option<u64> {
            fs::read_to_string(group.join(file))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        // Version 1 says a number near 2^63 if there is no limit.
        let Some(limit) = number(limit).filter(|limit| *limit < 1 << 60) else {
            return;
        };
        if self.memory.is_none_or(|known| limit < known) {
            (self.memory, self.memory_used) = (Some(limit), number(used));
            let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
            // Version 1 has figures of the group alone, and `total_` ones with the groups in it, as
            // the limit counts.
            let is_first = stat.lines().any(|line| line.starts_with("total_"));
            let prefix = if is_first { "total_" } else { "" };
            let figure = |name: &str| -> u64 {
                let find = |line: &str| {
                    let (key, value) = line.split_once(' ')?;
                    (key.strip_prefix(prefix)? == name).then(|| value.trim().parse().ok())?
                };
                stat.lines().find_map(find).unwrap_or(0)
            };
            let files = figure("inactive_file").saturating_add(figure("active_file"));
            self.memory_reclaimable = files.saturating_add(figure("slab_reclaimable"));
            self.memory_in_tmpfs = figure("shmem");
        }
    }
}

/// A control group that the user named: by its path in the file system, or as `/proc/PID/cgroup`
/// shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The controller of version 1, if the path names it.
    controller: Option<String>,
    /// `/a/b`.
    path: String,
}

const MOUNTED: &str = "/sys/fs/cgroup";

impl std::str::FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Group, String> {
        let shown = || loam_format::plain::line(text).into_owned();
        let parts: Vec<&str> = text
            .strip_prefix(MOUNTED)
            .unwrap_or(text)
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        if parts.contains(&"..") {
            return Err(format!("`{}` leads out of a group", shown()));
        }
        let root = Path::new(MOUNTED);
        let is_first = root.join("memory").is_dir();
        let (controller, rest) = match parts.split_first() {
            Some((first, rest)) if is_first && text.starts_with(MOUNTED) => {
                (Some((*first).to_owned()), rest)
            }
            _ => (None, parts.as_slice()),
        };
        let path = rest
            .iter()
            .map(|part| format!("/{part}"))
            .collect::<String>();
        let places = ["", "memory", "unified", "systemd"];
        let mut places = match &controller {
            Some(controller) => vec![controller.as_str()],
            None => places.to_vec(),
        }
        .into_iter();
        if !places.any(|place| root.join(place).join(path.trim_start_matches('/')).is_dir()) {
            return Err(format!(
                "there is no control group `{}`; write its folder below {MOUNTED}, or what \
                 /proc/PID/cgroup shows",
                shown()
            ));
        }
        Ok(Group { controller, path })
    }
}

impl Group {
    /// Whether a process is in it, or in a group inside of it.
    pub fn holds(&self, pid: Pid) -> bool {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        self.is_in(&groups)
    }

    fn is_in(&self, groups: &str) -> bool {
        groups.lines().any(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                return false;
            };
            let is_its = self.controller.as_ref().is_none_or(|wanted| {
                controllers
                    .split(',')
                    .any(|one| one.trim_start_matches("name=") == wanted)
            });
            let inner = path.strip_prefix(&self.path);
            is_its && inner.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// The group and the groups around it. In a container with a name space of its own the path may
/// lead out of the mounted part; then the mounted root is the group.
fn lineage(root: &Path, path: &str) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let deeper = found[found.len() - 1].join(part);
        if part == ".." || !deeper.is_dir() {
            break;
        }
        found.push(deeper);
    }
    found
}

/// How many cores a list like `0-3,8` names.
fn cores_in(list: &str) -> Option<u32> {
    let mut count = 0;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn limits(root: &tempfile::TempDir, groups: &str) -> Limits {
        let mut limits = Limits {
            cores: 64,
            ..Limits::default()
        };
        limits.read_groups(root.path(), groups);
        limits
    }

    #[test]
    fn the_tightest_limit_of_nested_groups_counts() {
        let root = tree(&[
            ("cpu.max", "max 100000\n"),
            ("a/cpu.max", "250000 100000\n"),
            ("a/b/cpu.max", "400000 100000\n"),
            ("a/memory.max", "1000000\n"),
            ("a/memory.current", "900000\n"),
            (
                "a/memory.stat",
                "anon 200000\nfile 600000\nshmem 50000\ninactive_file 300000\nactive_file 250000\n\
                 slab_reclaimable 50000\n",
            ),
            ("a/b/memory.max", "max\n"),
        ]);
        let found = limits(&root, "0::/a/b\n");
        assert_eq!(
            (found.quota, found.memory, found.memory_used),
            (Some(2.5), Some(1_000_000), Some(900_000))
        );
        assert_eq!(
            (found.memory_reclaimable, found.memory_in_tmpfs),
            (600_000, 50_000)
        );
        assert_eq!(found.usable_cores(), 3);
        // A path that leads out of the mounted part.
        assert_eq!(limits(&root, "0::/../../x\n").quota, None);
    }

    #[test]
    fn the_first_version_is_read_too() {
        let root = tree(&[
            ("cpu/g/cpu.cfs_quota_us", "50000\n"),
            ("cpu/g/cpu.cfs_period_us", "100000\n"),
            ("memory/g/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/h/memory.limit_in_bytes", "8000000\n"),
            ("memory/h/memory.usage_in_bytes", "7900000\n"),
            (
                "memory/h/memory.stat",
                "inactive_file 1\nshmem 1\ntotal_shmem 40000\ntotal_inactive_file 300000\n\
                 total_active_file 1000\n",
            ),
        ]);
        let limited = limits(&root, "3:memory:/h\n");
        assert_eq!(
            (limited.memory_reclaimable, limited.memory_in_tmpfs),
            (301_000, 40_000)
        );
        let found = limits(&root, "4:cpu,cpuacct:/g\n3:memory:/g\nnonsense\n");
        assert_eq!((found.quota, found.memory), (Some(0.5), None));
        assert_eq!(found.usable_cores(), 1);
    }

    #[test]
    fn a_group_holds_the_processes_of_its_inner_groups() {
        let group = |controller: Option<&str>, path: &str| Group {
            controller: controller.map(str::to_owned),
            path: path.to_owned(),
        };
        let groups = "4:memory:/a/b\n1:name=systemd:/s\n0::/u/v\n";
        for (controller, path, is_in) in [
            (None, "/a", true),
            (None, "/a/b", true),
            (None, "/a/b/c", false),
            (None, "/a/bc", false),
            (None, "", true),
            (Some("memory"), "/a", true),
            (Some("memory"), "/u", false),
            (None, "/u/v", true),
            (Some("systemd"), "/s", true),
        ] {
            assert_eq!(group(controller, path).is_in(groups), is_in, "{path}");
        }
        assert!("/no/such/group".parse::<Group>().is_err());
        assert!("/a/../b".parse::<Group>().is_err());
        assert!("/".parse::<Group>().is_ok() || !Path::new(MOUNTED).is_dir());
    }

    #[test]
    fn lists_of_cores_are_counted() {
        assert_eq!(cores_in("0-3,8\n"), Some(5));
        assert_eq!(
            (cores_in(""), cores_in("3-1"), cores_in("x")),
            (None, None, None)
        );
        assert!(Limits::of(std::process::id() as Pid).usable_cores() >= 1);
    }
}
