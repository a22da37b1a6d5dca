//! Images in files. A reader takes a whole image between two writes.

use std::path::Path;

use thiserror::Error;

use loam_format::counters::image::{Image, ImageError};

/// The largest image: the figures of no heap need more.
const LARGEST: u64 = 1 << 30;

/// Why a file can not be used as an image.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenError {
    /// It can not be opened or read.
    #[error("the image {path} can not be read: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Each try found the file while it was being written.
    #[error("the image is being written all the time")]
    Busy,
    /// The file's bytes are not an image.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Reads a file. If it is just being written, it is tried again.
pub fn open(path: &Path) -> Result<Image, OpenError> {
    let unreadable = |reason: String| OpenError::Unreadable {
        path: path.display().to_string(),
        reason,
    };
    for _ in 0..64 {
        let meta = path
            .metadata()
            .map_err(|error| unreadable(error.to_string()))?;
        if !meta.is_file() || meta.len() > LARGEST {
            return Err(unreadable("not a file of a sensible size".to_owned()));
        }
        let read = || std::fs::read(path).map_err(|error| unreadable(error.to_string()));
        let (bytes, again) = (read()?, read()?);
        if !Image::is_being_written(&bytes) && Image::head(&bytes) == Image::head(&again) {
            return Ok(Image::of(bytes)?);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Err(OpenError::Busy)
}
