pub mod args;
pub fn run(
    _a: Box<args::LabArgs>,
    _l: &crate::layout::Layout,
) -> anyhow::Result<crate::exit::Exit> {
    Ok(crate::exit::Exit::Done)
}
