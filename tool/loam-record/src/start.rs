//! Starting the program: the recorder, the folder for the rings, the environment; and signals for
//! it.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tempfile::TempDir;

use loam_format::plain;
use loam_lab::allocators::spec::Picked;
use loam_process::layout::{Layout, RECORDER_NAME};
use loam_process::preload;
use loam_process::rings::{sweep, Session, SESSION_VARIABLE};

/// Where memory that is a file lies.
const SHARED_MEMORY: &str = "/dev/shm";
/// Begins the names of the folders for rings.
const PREFIX: &str = "loam-record-";
/// So much room must be there for rings: 64 large ones.
const ROOM: u64 = 64 << 20;

/// The recorder that belongs to this tool.
pub fn find_recorder(layout: &Layout) -> Result<PathBuf> {
    Ok(preload::quotable(layout.find(RECORDER_NAME)?)?)
}

/// A folder of this recording's own for the rings: in memory if there is room, else beside the
/// output.
pub fn rings_folder(beside: &Path) -> Result<TempDir> {
    let shared = Path::new(SHARED_MEMORY);
    sweep(shared, PREFIX);
    let room = rustix::fs::statvfs(shared).map_or(0, |all| all.f_bavail * all.f_frsize);
    let make = |folder: &Path| {
        tempfile::Builder::new()
            .prefix(PREFIX)
            // Also where the caller's umask lets all users in.
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(folder)
    };
    if room >= ROOM {
        if let Ok(made) = make(shared) {
            return Ok(made);
        }
    }
    let beside = std::path::absolute(match beside.as_os_str().is_empty() {
        true => Path::new("."),
        false => beside,
    })?;
    make(&beside).with_context(|| {
        format!(
            "the rings need a folder: neither {SHARED_MEMORY} ({} free) nor {} takes one",
            loam_format::units::bytes(room as f64),
            plain::path(&beside)
        )
    })
}

/// Begins to record in that folder.
pub fn session(rings: &Path, drops_when_full: bool, stack_bytes: u64) -> Result<Session> {
    let session = Session::begin(rings, drops_when_full, stack_bytes);
    session.with_context(|| {
        let shown = plain::path(rings);
        format!("the recording can not begin: {shown} can not be written")
    })
}

/// The command as words.
pub fn words(named: &OsStr, arguments: &[OsString]) -> Vec<String> {
    let all = std::iter::once(named).chain(arguments.iter().map(OsString::as_os_str));
    all.map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// All that a start needs.
#[derive(Debug)]
pub struct Start<'a> {
    /// The program as the caller wrote it.
    pub named: &'a OsStr,
    /// Its arguments.
    pub arguments: &'a [OsString],
    /// The program's file.
    pub program: &'a Path,
    /// What is preloaded first.
    pub recorder: &'a Path,
    /// What is preloaded behind it.
    pub allocator: Option<&'a Picked>,
    /// The rings' folder.
    pub rings: &'a Path,
}

impl Start<'_> {
    /// Starts the program in this process's group, with this process's streams.
    pub fn spawn(&self) -> io::Result<Child> {
        let mut command = Command::new(self.program);
        command
            .arg0(self.named)
            .args(self.arguments)
            .env("LD_PRELOAD", self.preload())
            .env(SESSION_VARIABLE, self.rings);
        if let Some(allocator) = self.allocator {
            command.envs(&allocator.environment);
        }
        command.spawn()
    }

    fn preload(&self) -> OsString {
        let mut value = std::env::var_os("LD_PRELOAD");
        let path = self.allocator.and_then(|one| one.allocator.path.as_deref());
        if let Some(path) = path {
            value = Some(preload::with_ours_first(path, value));
        }
        preload::with_ours_first(self.recorder, value)
    }
}

/// Passes a signal on that came to this process. One that the terminal sent has reached the program
/// already.
pub fn pass_on(child: &Child, signal: Signal) {
    let is_of_terminal = matches!(signal, Signal::SIGINT | Signal::SIGQUIT | Signal::SIGHUP);
    if is_of_terminal && is_in_foreground() {
        return;
    }
    if signal != Signal::SIGPIPE {
        // It may have ended already.
        let _ = signal::kill(Pid::from_raw(child.id() as i32), signal);
    }
}

/// Whether this process's group has the terminal.
fn is_in_foreground() -> bool {
    let group = rustix::process::getpgrp();
    let Ok(terminal) = std::fs::File::open("/dev/tty") else {
        return false;
    };
    rustix::termios::tcgetpgrp(&terminal).is_ok_and(|owner| owner == group)
}
