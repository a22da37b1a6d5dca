//! `loam mcp`: its arguments.

use clap::Args;

/// Answer an assistant's questions about memory, by the Model Context Protocol.
///
/// The assistant starts this command, and speaks with it over standard input and output. It can ask
/// for the largest processes, and then for what `doctor`, `stats`, `census`, `pins`, `trim
/// --dry-run` and `trace info` say. Each answer is the verb's own text, cut off at 16 KiB, with the
/// next step to take.
///
/// All of these only read. No process is stopped or changed, and no file is written, unless you
/// allow it here.
#[derive(Debug, Args)]
#[command(after_help = "\
Example, as most assistants are told of a server:
  {\"mcpServers\": {\"loam\": {\"command\": \"loam\", \"args\": [\"mcp\"]}}}")]
pub struct McpArgs {
    /// Also offer `trim`, which gives free pages of a process back to the system
    #[arg(long)]
    allow_trim: bool,
}

/// The resolved arguments of `mcp`.
#[derive(Debug)]
pub struct McpOptions {
    /// Whether a process may be changed by `trim`.
    pub allow_trim: bool,
}

impl McpArgs {
    /// Resolves the arguments into plain options.
    pub fn resolve(self) -> McpOptions {
        McpOptions {
            allow_trim: self.allow_trim,
        }
    }
}
