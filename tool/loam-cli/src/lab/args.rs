use clap::Args;
/// x
#[derive(Debug, Args)]
pub struct LabArgs {}
