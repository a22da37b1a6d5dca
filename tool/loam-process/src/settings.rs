//! What a process was told in its environment about its allocator. A remedy that is set already is
//! none.

use std::fs;

use crate::process::{face, Pid};

/// The environment with which a process was started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// Reads them. Without the right to, nothing is set.
    pub fn of(pid: Pid) -> Settings {
        let bytes = fs::read(format!("/proc/{}/environ", face(pid))).unwrap_or_default();
        Settings::from(&String::from_utf8_lossy(&bytes))
    }

    /// From the text of `environ`.
    pub fn from(text: &str) -> Settings {
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        Settings(
            pairs
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The most arenas that glibc may make, if that is set.
    pub fn arena_max(&self) -> Option<u64> {
        let tunables = self.get("GLIBC_TUNABLES").unwrap_or_default();
        let mut pairs = tunables
            .split(':')
            .filter_map(|tunable| tunable.split_once('='));
        let tunable = pairs.find(|(name, _)| *name == "glibc.malloc.arena_max");
        let value = tunable.map(|(_, value)| value);
        let value = value.or_else(|| self.get("MALLOC_ARENA_MAX"))?;
        value.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_from_the_environment() {
        let settings = Settings::from(
            "A=b\0GLIBC_TUNABLES=glibc.malloc.tcache_count=1:glibc.malloc.arena_max=2\0\
             MALLOC_CONF=x:y\0",
        );
        assert_eq!(settings.arena_max(), Some(2));
        assert_eq!(settings.get("MALLOC_CONF"), Some("x:y"));
        assert_eq!(Settings::from("MALLOC_ARENA_MAX=1\0").arena_max(), Some(1));
        assert_eq!(Settings::from("PATH=/bin").arena_max(), None);
    }
}
