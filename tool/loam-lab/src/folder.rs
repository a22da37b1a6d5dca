//! A folder for as long as it is needed.

use std::io;
use std::path::Path;

/// A temporary folder, which goes with this value.
#[derive(Debug)]
pub struct Temporary(tempfile::TempDir);

impl Temporary {
    /// Makes it, in `TMPDIR`.
    pub fn new() -> io::Result<Temporary> {
        Ok(Temporary(
            tempfile::Builder::new().prefix("loam-replay-").tempdir()?,
        ))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
