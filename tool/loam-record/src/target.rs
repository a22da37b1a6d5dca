//! The file that is written. It is never replaced unasked, and it is there before the program
//! starts: what can not be written is an error then, and not after an hour.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use loam_format::plain;
use loam_lab::traces::file;

/// An open file, whose name may not be known before the program has a number.
#[derive(Debug)]
pub enum Target {
    /// As the caller named it.
    Named(File, PathBuf),
    /// In this folder, to be named after the program.
    Unnamed(NamedTempFile, PathBuf),
}

impl Target {
    /// Opens it.
    pub fn open(output: Option<&Path>, overwrite: bool) -> Result<Target> {
        match output {
            Some(path) => Ok(Target::Named(
                file::new_file(path, overwrite)?,
                path.to_path_buf(),
            )),
            None => {
                let folder = std::env::current_dir().context("the current folder is not known")?;
                let made = tempfile::Builder::new()
                    .prefix(".loam-record-")
                    .tempfile_in(&folder);
                let shown = plain::path(&folder);
                let made = made.with_context(|| {
                    format!("no trace can be written into {shown}; name a file with --output")
                })?;
                Ok(Target::Unnamed(made, folder))
            }
        }
    }

    /// The folder that it lies in.
    pub fn folder(&self) -> PathBuf {
        match self {
            Target::Named(_, path) => path.parent().unwrap_or(Path::new("")).to_path_buf(),
            Target::Unnamed(_, folder) => folder.clone(),
        }
    }

    /// The file under its name, which `program` and `pid` give it if the caller did not.
    pub fn settle(self, program: &str, pid: u32) -> Result<(File, PathBuf)> {
        let (temporary, folder) = match self {
            Target::Named(file, path) => {
                let told = || format!("{} can not be written", plain::path(&path));
                file::empty(&file).with_context(told)?;
                return Ok((file, path));
            }
            Target::Unnamed(temporary, folder) => (temporary, folder),
        };
        let path = folder.join(format!("loam-{program}-{pid}.trace"));
        let file = temporary.persist_noclobber(&path).map_err(|error| {
            let shown = plain::path(&path);
            anyhow::Error::from(error.error).context(format!("{shown} can not be written"))
        })?;
        Ok((file, path.file_name().map(PathBuf::from).unwrap_or(path)))
    }
}

/// Where the sample is written: `t.trace` -> `t-sample.trace`.
pub fn path_beside(whole: &Path) -> PathBuf {
    let mut name = whole.file_stem().unwrap_or_default().to_owned();
    name.push("-sample");
    if let Some(extension) = whole.extension() {
        name.push(".");
        name.push(extension);
    }
    whole.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_lies_beside_the_whole() {
        let beside = |path: &str| path_beside(Path::new(path)).display().to_string();
        assert_eq!(beside("a/t.trace"), "a/t-sample.trace");
        assert_eq!(beside("t"), "t-sample");
        assert_eq!(beside("a.b/.t"), "a.b/.t-sample");
    }
}
