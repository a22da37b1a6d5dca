//! The limits by which each figure may get worse: `--limit peak=5% --limit time=off`.

use std::collections::BTreeMap;
use std::str::FromStr;

use loam_format::words;
use thiserror::Error;

use super::COMPARED;
use crate::replay;

/// The name of the limit on the error of the replay.
pub const ERROR: &str = "error";

/// Why an option is not a valid limit.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum LimitError {
    /// No figure has that name.
    #[error("`{name}` is no figure; there are {known}")]
    Unknown {
        /// The name in the option.
        name: String,
        /// The figures that exist.
        known: String,
    },
    /// Not a number.
    #[error("`{text}` is no limit; write FIGURE=PERCENT or FIGURE=off, such as peak=5%")]
    Unreadable {
        /// The option's text.
        text: String,
    },
}

/// One limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    name: &'static str,
    /// As a share; none: no limit.
    most: Option<f64>,
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let unreadable = || LimitError::Unreadable {
            text: text.to_owned(),
        };
        let (name, value) = text.split_once('=').ok_or_else(unreadable)?;
        let names = names();
        let Some(name) = names.iter().find(|known| **known == name) else {
            return Err(LimitError::Unknown {
                name: name.to_owned(),
                known: words::list(&names),
            });
        };
        let most = match value {
            "off" => None,
            number => {
                let number = number.strip_suffix('%').unwrap_or(number).trim();
                let percent: f64 = number.parse().map_err(|_| unreadable())?;
                if !(0.0..=10_000.0).contains(&percent) {
                    return Err(unreadable());
                }
                Some(percent / 100.0)
            }
        };
        Ok(Limit { name, most })
    }
}

fn names() -> Vec<&'static str> {
    let judged = COMPARED.iter().filter(|figure| figure.limit.is_some());
    judged.map(|figure| figure.id).chain([ERROR]).collect()
}

/// All limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    all: BTreeMap<&'static str, Option<f64>>,
}

impl Limits {
    /// The default limits, replaced by the user's where given.
    pub fn with(own: &[Limit]) -> Limits {
        let judged = COMPARED
            .iter()
            .filter_map(|figure| Some((figure.id, Some(figure.limit? / 100.0))));
        let mut all: BTreeMap<_, _> = judged
            .chain([(ERROR, Some(replay::LARGEST_ERROR))])
            .collect();
        all.extend(own.iter().map(|limit| (limit.name, limit.most)));
        Limits { all }
    }

    /// The limit of a figure, as a share; none: the figure has no limit.
    pub fn of(&self, name: &str) -> Option<f64> {
        self.all.get(name).copied().flatten()
    }

    /// Whether no figure of the two builds is judged.
    pub fn judge_nothing(&self) -> bool {
        COMPARED.iter().all(|figure| self.of(figure.id).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_figure_and_a_percentage() {
        let limits = Limits::with(&[
            "peak=7.5%".parse().unwrap(),
            "end=3".parse().unwrap(),
            "processor=off".parse().unwrap(),
        ]);
        assert_eq!(limits.of("peak"), Some(0.075));
        assert_eq!(limits.of("end"), Some(0.03));
        assert_eq!(limits.of("processor"), None);
        assert_eq!(limits.of("average"), Some(0.05));
        assert_eq!(limits.of("error"), Some(0.05));
        assert!(!limits.judge_nothing());
        let off = COMPARED.map(|figure| format!("{}=off", figure.id).parse());
        let off: Vec<Limit> = off.into_iter().filter_map(Result::ok).collect();
        assert!(Limits::with(&off).judge_nothing());
        for wrong in [
            "peak",
            "peak=",
            "peak=much",
            "peak=-1",
            "live=5%",
            "=5%",
            "peak=nan",
        ] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
        let message = "pek=5%".parse::<Limit>().unwrap_err().to_string();
        assert!(message.contains("peak, average"), "{message}");
    }
}
