//! Unknown experiments, which are run and drawn by the defaults.

use crate::experiments::Experiment;

/// An experiment that is run and drawn by the defaults.
pub struct Named {
    name: String,
}

impl Named {
    /// The experiment of that name.
    pub fn of(name: &str) -> Named {
        Named {
            name: name.to_owned(),
        }
    }
}

impl Experiment for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn title(&self) -> String {
        self.name.clone()
    }

    fn question(&self) -> String {
        String::new()
    }
}
