//! Whose figures they are: resources with the attributes of the semantic conventions.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{clock_gettime, ClockId};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

use loam_format::plain::printable;
use loam_format::VERSION;
use loam_process::process::Identity;

/// What all resources of this machine share.
#[derive(Debug)]
pub struct Machine {
    host: String,
    /// The boot's own number; empty where it can not be read.
    boot: String,
    /// When the machine began, as its clock says now. It is asked once, so that the start of a
    /// process stays the same when the clock is set.
    began: Duration,
    ticks: u64,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let uptime = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
        let name = rustix::system::uname();
        Machine {
            host: printable(&name.nodename().to_string_lossy()),
            boot: boot.unwrap_or_default().trim().to_owned(),
            began: now().saturating_sub(uptime),
            ticks: rustix::param::clock_ticks_per_second().max(1),
        }
    }

    /// When a process began, since 1970.
    pub fn start_of(&self, identity: &Identity) -> Duration {
        let ticks = identity.key.started;
        let seconds = Duration::from_secs(ticks / self.ticks);
        let rest = Duration::from_nanos(ticks % self.ticks * 1_000_000_000 / self.ticks);
        self.began + seconds + rest
    }

    /// A process.
    pub fn process(&self, identity: &Identity) -> Resource {
        let path = identity.executable.as_deref();
        let file = path.and_then(|path| path.file_name()).map(|name| {
            let name = name.to_string_lossy();
            printable(name.trim_end_matches(" (deleted)"))
        });
        let executable = file.unwrap_or_else(|| identity.name.clone());
        let pid = i64::from(identity.key.pid);
        // Numbers of processes are used again; together with start and boot they are not.
        let instance = format!("{}:{pid}:{}", self.boot, identity.key.started);
        let mut attributes = vec![
            text("service.name", &executable),
            text("service.instance.id", &instance),
            text("host.name", &self.host),
            attribute("process.pid", Value::IntValue(pid)),
            text("process.executable.name", &executable),
            // What the kernel, `top` and the page for scrapers call it; the program can change it.
            text("process.title", &identity.name),
        ];
        if let Some(path) = path {
            let path = printable(&path.to_string_lossy());
            attributes.push(text("process.executable.path", &path));
        }
        of(attributes)
    }

    /// The exporter itself.
    pub fn exporter(&self) -> Resource {
        of(vec![
            text("service.name", "loam-export"),
            text("service.version", VERSION),
            text(
                "service.instance.id",
                &format!("{}:{}", self.boot, std::process::id()),
            ),
            text("host.name", &self.host),
        ])
    }
}

fn of(attributes: Vec<KeyValue>) -> Resource {
    Resource {
        attributes,
        ..Resource::default()
    }
}

/// What wrote the figures.
pub fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "loam".to_owned(),
        version: VERSION.to_owned(),
        ..InstrumentationScope::default()
    }
}

/// An attribute.
pub fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// An attribute with a text.
pub fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

/// The time since 1970.
pub fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// As the messages have it.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
