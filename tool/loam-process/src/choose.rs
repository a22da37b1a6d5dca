//! Finds the processes that the user's number or name means.

use std::time::{Duration, Instant};

use thiserror::Error;

use loam_format::words;

use crate::apart::{self, Crew, MOST_LEFT};
use crate::process::{Identity, Pid, ProcessError};

/// What the user wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A number.
    Pid(Pid),
    /// A name: the kernel's, the executable file's or the command's, in full.
    Name(String),
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if text.is_empty() {
            return Err("an empty word names no process".to_owned());
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let pid = text.parse::<Pid>().ok().filter(|pid| *pid > 0);
            return pid
                .map(Target::Pid)
                .ok_or_else(|| format!("{text} is not the number of a process"));
        }
        // `./server` and `/usr/bin/server` mean the program of that name.
        let name = text.rsplit('/').next().unwrap_or(text);
        if name.is_empty() {
            return Err(format!("{text} names a folder, not a program"));
        }
        Ok(Target::Name(name.to_owned()))
    }
}

/// Why no process was found for a target.
#[derive(Debug, Error)]
pub enum ChoiceError {
    /// The number's own reason.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// No process has that name.
    #[error("no process is called `{name}`{hint}")]
    NoSuchName {
        /// What was asked for.
        name: String,
        /// A remedy, as the end of a sentence.
        hint: String,
    },
    /// Several processes have that name.
    #[error("{0}")]
    Ambiguous(String),
    /// The table of processes can not be read.
    #[error("the list of processes can not be read: {0}")]
    Unlisted(#[from] std::io::Error),
}

/// The numbers of all processes, except this one's.
pub fn pids() -> Result<Vec<Pid>, std::io::Error> {
    let me = std::process::id() as Pid;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<Pid>().ok());
        found.extend(pid.filter(|pid| *pid != me));
    }
    found.sort_unstable();
    Ok(found)
}

/// How long one process that can not be read is waited for, when all processes are read. Chosen: a
/// read that takes milliseconds comes within a second on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// The same for all such processes together. Chosen: half of the time that Prometheus waits for a
/// scrape.
pub const LONGEST: Duration = Duration::from_secs(5);

/// Every process that has memory of its own, except this one. Processes that end meanwhile are left
/// out. Of a process whose command line can not be read, the rest is known.
pub fn all() -> Result<Vec<Identity>, std::io::Error> {
    let pids = pids()?;
    let mut crew = Crew::new(PATIENCE, |pid: &Pid, ()| {
        let identity = Identity::read(*pid).ok()?;
        identity.require_memory().is_ok().then_some(identity)
    });
    let jobs = pids.into_iter().map(|pid| (pid, ()));
    let outcome = crew.run(jobs, Instant::now() + LONGEST, MOST_LEFT);
    let mut found: Vec<Identity> = outcome
        .done
        .into_iter()
        .filter_map(|(_, one)| one)
        .collect();
    let held = crew.in_hand().into_iter().map(|(pid, _)| pid);
    let unread = held.chain(outcome.undone.into_iter().map(|(pid, ())| pid));
    found.extend(unread.filter_map(|pid| Identity::sketch(pid).ok()));
    found.sort_by_key(|identity| identity.key);
    Ok(found)
}

/// The one process that the target means.
pub fn one(target: &Target) -> Result<Identity, ChoiceError> {
    let mut found = find(target)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        _ => Err(ChoiceError::Ambiguous(ambiguous(
            target,
            &found,
            "name one by its number",
        ))),
    }
}

/// How many processes are listed if a name is ambiguous.
const LISTED: usize = 20;

/// The message that a name is ambiguous, with the processes; `remedy` says what to do.
pub fn ambiguous(target: &Target, found: &[Identity], remedy: &str) -> String {
    let name = match target {
        Target::Name(name) => name.as_str(),
        Target::Pid(_) => "the number",
    };
    let mut message = format!(
        "`{name}` names {}; {remedy}:",
        words::count_of(found.len(), "process", "processes")
    );
    for identity in found.iter().take(LISTED) {
        let command = words::excerpt(&identity.command, 60);
        message += &format!("\n  {:>7}  {}", identity.key.pid, command);
    }
    if found.len() > LISTED {
        message += &format!("\n  and {} more", found.len() - LISTED);
    }
    message
}

/// The one process that a word means which may as well be the name of a file. `no_file`: why it is
/// none, as the begin of a sentence. The error is a sentence.
pub fn one_or_file(word: &str, no_file: &str) -> Result<Identity, String> {
    one(&word.parse()?).map_err(|error| match error {
        ChoiceError::NoSuchName { .. } => format!("{no_file}, and {error}"),
        error => error.to_string(),
    })
}

/// The processes that the target means: one for a number, one or more for a name.
pub fn find(target: &Target) -> Result<Vec<Identity>, ChoiceError> {
    match target {
        Target::Pid(pid) => {
            let pid = *pid;
            let identity = apart::within(move || Identity::read(pid))
                .unwrap_or_else(|doing| Err(ProcessError::Silent { pid, doing }))?;
            identity.require_memory()?;
            Ok(vec![identity])
        }
        Target::Name(name) => {
            let everybody = all()?;
            let is_meant = |identity: &&Identity| identity.names().any(|known| known == name);
            let found: Vec<Identity> = everybody.iter().filter(is_meant).cloned().collect();
            if found.is_empty() {
                let hint = hint(name, &everybody);
                return Err(ChoiceError::NoSuchName {
                    name: name.clone(),
                    hint,
                });
            }
            Ok(found)
        }
    }
}

/// Names that the user may have meant instead.
fn hint(name: &str, everybody: &[Identity]) -> String {
    // `sudo` and a shell that run this command have the name in theirs, too.
    let own: Vec<String> = std::env::args().skip(1).collect();
    let own = own.join(" ");
    let runs_this = |command: &str| !own.is_empty() && command.contains(&own);
    let in_command = everybody
        .iter()
        .filter(|identity| identity.command.contains(name) && !runs_this(&identity.command))
        .take(4)
        .map(|identity| format!("{} ({})", identity.key.pid, identity.name))
        .collect::<Vec<_>>();
    if !in_command.is_empty() {
        return format!(
            "; it occurs in the command line of {}: name one by its number",
            words::list(&in_command)
        );
    }
    let names = everybody.iter().flat_map(|identity| identity.names());
    words::nearest(name, names)
        .map(|near| format!("; did you mean `{near}`?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_a_number_and_paths_a_name() {
        assert_eq!("12".parse(), Ok(Target::Pid(12)));
        assert_eq!("./a/server".parse(), Ok(Target::Name("server".into())));
        assert_eq!("7zip".parse(), Ok(Target::Name("7zip".into())));
        for nonsense in ["", "0", "99999999999999", "dir/"] {
            assert!(nonsense.parse::<Target>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn the_list_of_processes_does_not_contain_the_one_that_asks() {
        let me = std::process::id() as Pid;
        assert!(all().unwrap().iter().all(|identity| identity.key.pid != me));
    }
}
