//! Whether the loader will run a program in secure-execution mode, in which it ignores every
//! `LD_PRELOAD` with a path.
//!
//! The kernel requests that mode if the execution of the file changes the user, the group or the
//! capabilities. So a set-user-ID root program that root starts is an ordinary program, and so is
//! every program once `no_new_privs` is set.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o0010;

/// Why a program would run with raised privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raised {
    /// Set-user-ID, to another user.
    User,
    /// Set-group-ID, to another group.
    Group,
    /// File capabilities.
    Capabilities,
}

/// The user, group and flags of the process that starts the program.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    user: u32,
    group: u32,
    no_new_privileges: bool,
}

impl Caller {
    /// This process.
    pub fn current() -> Caller {
        let no_new_privileges = procfs::process::Process::myself()
            .and_then(|me| me.status())
            .is_ok_and(|status| status.nonewprivs == Some(1));
        Caller {
            user: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
            no_new_privileges,
        }
    }
}

/// Whether starting `program` raises privileges for `caller`.
pub fn raised(program: &Path, caller: Caller) -> io::Result<Option<Raised>> {
    if caller.no_new_privileges {
        return Ok(None);
    }
    let meta = program.metadata()?;
    let has_capabilities = caller.user != 0 && has_file_capabilities(program);
    Ok(judge(
        meta.mode(),
        meta.uid(),
        meta.gid(),
        has_capabilities,
        caller,
    ))
}

fn judge(
    mode: u32,
    owner: u32,
    group: u32,
    has_capabilities: bool,
    caller: Caller,
) -> Option<Raised> {
    // Set-group-ID without group-execute is an old mark for mandatory locking and raises nothing.
    let sets_group = mode & SET_GROUP_ID != 0 && mode & GROUP_EXECUTE != 0;
    if mode & SET_USER_ID != 0 && owner != caller.user {
        Some(Raised::User)
    } else if sets_group && group != caller.group {
        Some(Raised::Group)
    } else if has_capabilities {
        Some(Raised::Capabilities)
    } else {
        None
    }
}

fn has_file_capabilities(program: &Path) -> bool {
    // struct vfs_ns_cap_data is 24 bytes; any value at all means that capabilities are set.
    let mut value = [0_u8; 64];
    rustix::fs::getxattr(program, "security.capability", &mut value[..]).is_ok_and(|size| size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Caller = Caller {
        user: 1000,
        group: 1000,
        no_new_privileges: false,
    };
    const ROOT: Caller = Caller {
        user: 0,
        group: 0,
        no_new_privileges: false,
    };

    #[test]
    fn a_change_of_user_or_group_raises_privileges() {
        assert_eq!(judge(0o104755, 0, 0, false, USER), Some(Raised::User));
        assert_eq!(judge(0o102755, 0, 42, false, USER), Some(Raised::Group));
        assert_eq!(
            judge(0o100755, 0, 0, true, USER),
            Some(Raised::Capabilities)
        );
    }

    #[test]
    fn becoming_who_one_is_already_raises_nothing() {
        assert_eq!(judge(0o104755, 0, 0, false, ROOT), None);
        assert_eq!(judge(0o104755, 1000, 0, false, USER), None);
        assert_eq!(judge(0o102745, 0, 42, false, USER), None);
    }
}
