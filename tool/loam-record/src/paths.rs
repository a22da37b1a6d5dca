//! The call paths under which the memory of a running process grew: those with the most bytes, for
//! people.

use loam_format::plain;
use loam_format::units::bytes;
use loam_lab::traces::paths::{self, Path};
use loam_lab::traces::stacks::{Estimate, Place, Site, Stacks};
use loam_process::process::Pid;
use loam_process::sites::Sites;
use loam_process::symbols::Symbols;

/// How many paths are shown, and how many functions of each.
const PATHS: usize = 5;
const FUNCTIONS: usize = 8;

/// The paths of stacks, those with the most bytes first. `figure`: the bytes of a stack, by its
/// number.
pub fn of(pid: Pid, sites: &Sites, figure: impl Fn(usize) -> f64) -> Vec<Path> {
    let all = sites.all().iter().map(|site| Site {
        frames: site
            .frames
            .iter()
            .map(|place| Place {
                module: place.module.map(|module| module as usize),
                address: place.address,
            })
            .collect(),
        is_cut: site.is_cut,
        ..Site::default()
    });
    let stacks = Stacks {
        mean: 1,
        modules: sites.modules().to_vec(),
        sites: all.collect(),
    };
    let mut symbols = Symbols::of_process(pid);
    let bytes = |at: usize, _: &Site| Estimate::exactly(figure(at));
    let mut paths = paths::of(&stacks, &mut symbols, bytes);
    paths.retain(|path| path.bytes >= 0.5);
    paths
}

/// The first of them.
pub fn text(paths: &[Path]) -> String {
    let mut text = String::new();
    for path in paths.iter().take(PATHS) {
        text += &format!("\n  {}\n", bytes(path.bytes));
        for name in path.functions.iter().take(FUNCTIONS) {
            text += &format!("    {}\n", plain::line(name));
        }
        if path.functions.len() > FUNCTIONS {
            text += &format!("    ... {} more\n", path.functions.len() - FUNCTIONS);
        }
    }
    if paths.len() > PATHS {
        let rest: f64 = paths[PATHS..].iter().map(|path| path.bytes).sum();
        text += &format!(
            "\n  {} under {} other paths\n",
            bytes(rest),
            paths.len() - PATHS
        );
    }
    text
}
