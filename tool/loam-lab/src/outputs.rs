//! Where results and report go. Both places are chosen and tested before anything is measured.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::draw;
use crate::store::{looks_like_results, Store, StoreError};

/// Two claimed places.
#[derive(Debug)]
pub struct Outputs {
    /// The results file.
    pub json: Store,
    /// The report.
    pub html: Store,
}

impl Outputs {
    /// Chooses names that are missing, and fails now if either file could not be written later.
    pub fn claim(json: Option<&Path>, html: Option<&Path>) -> Result<Outputs, StoreError> {
        let (json, html) = name(json, html, SystemTime::now());
        Ok(Outputs {
            json: Store::claim(&json, looks_like_results)?,
            html: Store::claim(&html, draw::looks_like_report)?,
        })
    }
}

/// If one name is missing, it is made from the other with its own ending. If both are missing, the
/// date is part of the name, so that a run never replaces an earlier one unasked.
fn name(json: Option<&Path>, html: Option<&Path>, time: SystemTime) -> (PathBuf, PathBuf) {
    let beside = |path: &Path, extension: &str| {
        // A device has no companion file: `/dev/stdout` must not become `/dev/stdout.html`.
        let is_special = path
            .metadata()
            .is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        let base = if is_special {
            dated(time)
        } else {
            path.to_path_buf()
        };
        base.with_extension(extension)
    };
    match (json, html) {
        (Some(json), Some(html)) => (json.to_path_buf(), html.to_path_buf()),
        (Some(json), None) => (json.to_path_buf(), beside(json, "html")),
        (None, Some(html)) => (beside(html, "json"), html.to_path_buf()),
        (None, None) => {
            let base = dated(time);
            (base.with_extension("json"), base.with_extension("html"))
        }
    }
}

fn dated(time: SystemTime) -> PathBuf {
    let stamp = humantime::format_rfc3339_seconds(time).to_string();
    PathBuf::from(format!("loam-lab-{}", stamp.replace([':', 'Z'], "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(json: Option<&str>, html: Option<&str>) -> (String, String) {
        let (json, html) = name(
            json.map(Path::new),
            html.map(Path::new),
            SystemTime::UNIX_EPOCH,
        );
        (json.display().to_string(), html.display().to_string())
    }

    #[test]
    fn one_name_gives_the_other() {
        assert_eq!(
            named(Some("a/r.json"), None),
            ("a/r.json".into(), "a/r.html".into())
        );
        assert_eq!(
            named(None, Some("x.html")),
            ("x.json".into(), "x.html".into())
        );
        let (json, html) = named(None, None);
        assert_eq!(json, "loam-lab-1970-01-01T000000.json");
        assert_eq!(html, "loam-lab-1970-01-01T000000.html");
    }
}
