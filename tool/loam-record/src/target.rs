//! The file that is written. It is never replaced unasked, and it is open before the program
//! starts: what can not be opened is an error then, and not after an hour.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use loam_format::plain;
use loam_lab::traces::file::NewFile;

/// An open file, whose name may not be known before the program has a number.
#[derive(Debug)]
pub enum Target {
    /// As the caller named it.
    Named(NewFile, PathBuf),
    /// In this folder, to be named after the program.
    Unnamed(NamedTempFile, PathBuf),
}

impl Target {
    /// Opens it.
    pub fn open(output: Option<&Path>, overwrite: bool) -> Result<Target> {
        match output {
            Some(path) => Ok(Target::Named(
                NewFile::open(path, overwrite)?,
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
    pub fn settle(self, program: &str, pid: u32) -> Result<(NewFile, PathBuf)> {
        let (temporary, folder) = match self {
            Target::Named(file, path) => return Ok((file, path)),
            Target::Unnamed(temporary, folder) => (temporary, folder),
        };
        let path = folder.join(format!("loam-{program}-{pid}.trace"));
        let file = NewFile::name(temporary, &path)
            .with_context(|| format!("{} can not be written", plain::path(&path)))?;
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
