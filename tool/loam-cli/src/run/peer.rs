//! `loam run --allocator`: preloads another allocator, and beside it the library that publishes
//! that allocator's figures.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;

use loam_check::obstacles;
use loam_lab::allocators::{discover, spec};
use loam_process::layout::{Layout, PEER_NAME};
use loam_process::preload;

use super::args::RunOptions;
use super::{check, exec, image_of, require_preloadable, resolve_command};
use crate::exit::Exit;
use crate::output;

/// Starts the program on that allocator. It returns only if the program was not started.
pub fn run(options: &RunOptions, name: &str, layout: &Layout) -> Result<Exit> {
    let program = resolve_command(&options.program)?;
    let layout = &super::layout_for(layout, &program, &options.arguments)?;
    let available = discover::all(layout);
    let picked = spec::pick(&[name.to_owned()], &available)?;
    let [picked] = picked.as_slice() else {
        anyhow::bail!("--allocator names one allocator, and `{name}` is a list");
    };
    let mut environment: Vec<(OsString, OsString)> = picked
        .environment
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    // The system's own malloc needs no preload.
    let library = picked.allocator.path.as_deref();
    if let Some(library) = library.filter(|_| picked.allocator.name != "system") {
        if options.check {
            let obstacles = obstacles::examine(&program, &options.arguments, &image_of(library)?)?;
            return check(&program, library, &obstacles);
        }
        let deed = format!("run on {}", picked.label);
        let arguments = &options.arguments;
        require_preloadable(
            &program,
            arguments,
            library,
            options.force,
            &deed,
            "loam run",
        )?;
        let mut value = std::env::var_os("LD_PRELOAD");
        if let Some(peer) = helper(library, &picked.allocator.name, layout)? {
            value = Some(preload::with_ours_first(&peer, value));
        }
        let library = preload::quotable(library.to_owned())?;
        environment.push((
            "LD_PRELOAD".into(),
            preload::with_ours_first(&library, value),
        ));
    } else if options.check {
        output::write_stdout(&format!("{} can run on it\n", output::path(&program)))?;
        return Ok(Exit::Done);
    }
    Err(exec(&program, options, &environment))
}

/// The library to preload beside the allocator, if the allocator reports figures. Loam needs none.
fn helper(library: &Path, name: &str, layout: &Layout) -> Result<Option<std::path::PathBuf>> {
    if name == "loam" {
        return Ok(None);
    }
    let tells = image_of(library)?.tells_figures;
    match (tells, layout.find(PEER_NAME)) {
        (false, _) => output::print_warning(&format!(
            "{name} tells no figures of its own: `loam stats` and `loam doctor` see its mappings \
             only"
        )),
        (true, Err(error)) => {
            output::print_warning(&format!("{name}'s own figures are not published: {error}"))
        }
        (true, Ok(peer)) => return Ok(Some(preload::quotable(peer)?)),
    }
    Ok(None)
}
