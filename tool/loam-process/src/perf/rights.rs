//! What the kernel lets this process see of another one by `perf_event_open`, told before anything
//! is tried.
//!
//! | | page faults | probes |
//! |---|---|---|
//! | own process | `perf_event_paranoid` <= 2 | CAP_BPF and CAP_PERFMON |
//! | any process | CAP_PERFMON and CAP_SYS_PTRACE | the same and CAP_SYS_PTRACE |
//!
//! Probes need Linux 6.6.
//!
//! Before Linux 5.8 CAP_SYS_ADMIN takes the place of CAP_PERFMON. A seccomp filter, as containers
//! have it, may refuse what the capabilities allow; only the attempt tells.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use crate::process::Pid;

const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;
/// The first kernel that sets many probes at once, and takes them out as fast.
const PROBES_FROM: (u32, u32) = (6, 6);
/// Where the kernel's setting is.
const SETTING: &str = "/proc/sys/kernel/perf_event_paranoid";
/// From this value on, some distributions let nobody use events without a capability.
const CLOSED: i32 = 3;

/// The rights of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// `kernel.perf_event_paranoid`; none: it can not be read, or the kernel has no events.
    pub paranoid: Option<i32>,
    /// CAP_PERFMON, or CAP_SYS_ADMIN.
    pub may_monitor: bool,
    /// CAP_BPF, or CAP_SYS_ADMIN.
    pub may_load: bool,
    /// CAP_SYS_PTRACE.
    pub may_trace: bool,
    /// Whether the process is of the same user.
    pub is_own: bool,
}

impl Rights {
    /// Those of this process over another one.
    pub fn over(pid: Pid) -> Rights {
        let own = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let capabilities = own
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
            .unwrap_or(0);
        let has = |bit: u32| capabilities & 1 << bit != 0;
        let paranoid = fs::read_to_string(SETTING).ok();
        let owner = fs::metadata(format!("/proc/{pid}")).map(|about| about.uid());
        Rights {
            paranoid: paranoid.and_then(|text| text.trim().parse().ok()),
            may_monitor: has(PERFMON) || has(SYS_ADMIN),
            may_load: has(BPF) || has(SYS_ADMIN),
            may_trace: has(SYS_PTRACE),
            is_own: owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw()),
        }
    }

    /// Why page faults can not be seen.
    pub fn refuses_faults(&self) -> Option<String> {
        let Some(paranoid) = self.paranoid else {
            return Some(NO_EVENTS.to_owned());
        };
        if !self.is_own && !self.may_trace {
            return Some(
                "it belongs to another user; run loam as that user, or give it CAP_SYS_PTRACE and \
                 CAP_PERFMON"
                    .to_owned(),
            );
        }
        (paranoid >= CLOSED && !self.may_monitor).then(|| {
            format!(
                "{SETTING} is {paranoid}; give loam CAP_PERFMON, or set it to 2: `sysctl \
                 kernel.perf_event_paranoid=2`"
            )
        })
    }

    /// Why probes can not be set.
    pub fn refuses_probes(&self) -> Option<String> {
        let missing: Vec<&str> = [
            (self.may_load, "CAP_BPF"),
            (self.may_monitor, "CAP_PERFMON"),
            (self.is_own || self.may_trace, "CAP_SYS_PTRACE"),
        ]
        .into_iter()
        .filter(|(has, _)| !has)
        .map(|(_, name)| name)
        .collect();
        if !missing.is_empty() {
            return Some(format!(
                "probes need {}, which loam does not have here; run it as root, or with Docker add \
                 --cap-add for each",
                missing.join(" and ")
            ));
        }
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        (version(&release).is_some_and(|version| version < PROBES_FROM)).then(|| {
            format!(
                "probes need Linux {}.{}, and this is {release}",
                PROBES_FROM.0, PROBES_FROM.1
            )
        })
    }

    /// What an error means that came when probes were set.
    pub fn explain_probes(&self, error: &io::Error) -> String {
        match error.raw_os_error() {
            Some(nix::libc::ESRCH | nix::libc::ENOENT) => "it has ended".to_owned(),
            Some(nix::libc::EACCES | nix::libc::EPERM) => format!(
                "the kernel refuses probes ({error}): a container's seccomp profile must allow \
                 bpf() and perf_event_open() (with Docker: --cap-add BPF --cap-add PERFMON), and \
                 lockdown must not forbid them"
            ),
            Some(nix::libc::ENOSYS | nix::libc::EINVAL | nix::libc::EOPNOTSUPP) => format!(
                "this kernel can not set such probes ({error}); they need Linux {}.{} with BPF",
                PROBES_FROM.0, PROBES_FROM.1
            ),
            _ => format!("bpf: {error}"),
        }
    }

    /// What an error of `perf_event_open` means.
    pub fn explain(&self, error: &io::Error) -> String {
        match error.raw_os_error() {
            Some(nix::libc::ESRCH | nix::libc::ENOENT) => "it has ended".to_owned(),
            Some(nix::libc::EMFILE | nix::libc::ENFILE) => {
                "it has more threads, on this many processors, than there may be open files; raise \
                 `ulimit -Hn`"
                    .to_owned()
            }
            Some(nix::libc::EACCES | nix::libc::EPERM) => format!(
                "the kernel refuses perf_event_open ({error}): in a container, its seccomp profile \
                 must allow the call (with Docker: --cap-add PERFMON), and another user's process \
                 needs CAP_SYS_PTRACE"
            ),
            Some(nix::libc::ENOSYS | nix::libc::EOPNOTSUPP) => NO_EVENTS.to_owned(),
            _ => format!("perf_event_open: {error}"),
        }
    }
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

const NO_EVENTS: &str = "this kernel has no perf_event_open, or hides it from this container";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_told_with_the_remedy() {
        let all = Rights {
            paranoid: Some(2),
            may_monitor: false,
            may_load: false,
            may_trace: false,
            is_own: true,
        };
        assert_eq!(all.refuses_faults(), None);
        let why = all.refuses_probes().unwrap();
        assert!(
            why.contains("CAP_BPF and CAP_PERFMON") && !why.contains("CAP_SYS_PTRACE"),
            "{why}"
        );
        let closed = Rights {
            paranoid: Some(4),
            ..all
        };
        assert!(closed.refuses_faults().unwrap().contains("is 4"));
        assert_eq!(
            Rights {
                may_monitor: true,
                ..closed
            }
            .refuses_faults(),
            None
        );
        let other = Rights {
            is_own: false,
            may_monitor: true,
            may_load: true,
            ..all
        };
        assert!(other.refuses_faults().unwrap().contains("CAP_SYS_PTRACE"));
        assert!(other.refuses_probes().unwrap().contains("CAP_SYS_PTRACE"));
        assert_eq!(
            Rights {
                may_trace: true,
                ..other
            }
            .refuses_probes(),
            None
        );
        let none = Rights {
            paranoid: None,
            ..all
        };
        assert!(none.refuses_faults().is_some());
        assert_eq!(version("6.18.5-amd64"), Some((6, 18)));
        assert_eq!(version("5.10"), Some((5, 10)));
        assert_eq!(version("x"), None);
    }
}
