//! `loam mcp`: a server of the Model Context Protocol on standard input and output.
//!
//! ```text
//! assistant -> request -> tools (a verb's words, from checked arguments)
//!              -> this executable once more, with these words
//!           <- its text, cut off, and the next step
//! ```
//!
//! Each question is a process of its own. So one that hangs or fails costs its own answer, and ends
//! at its time limit.

pub mod args;
mod tools;

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerInfo,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use loam_process::largest::largest;

use crate::exit::Exit;
use args::McpOptions;
use tools::{Call, Question};

/// An assistant pays for each word that it reads.
const MOST: u64 = 16 << 10;
/// Of what a verb says on standard error.
const MOST_WORDS: u64 = 2 << 10;
/// How many questions are answered at a time: a census takes a core.
const AT_A_TIME: usize = 2;
/// What a verb takes besides the time that it watches.
const PATIENCE: Duration = Duration::from_secs(120);

const INSTRUCTIONS: &str = "Questions about the memory of programs on this Linux machine. Begin \
with `doctor` for a process that is too large or grows, and with `largest_processes` where it is \
not known which. Sizes are in bytes, KiB (1024), MiB and GiB. Each answer ends with the next step. \
Nothing here stops or changes a process unless a tool says so.";

/// Runs the verb until the assistant closes its end.
pub fn run(options: &McpOptions) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the server can not be set up")?;
    let server = Server {
        questions: tools::all(options.allow_trim),
        turns: Semaphore::new(AT_A_TIME),
    };
    let served = runtime.block_on(async {
        let running = server.serve(rmcp::transport::stdio()).await?;
        running.waiting().await?;
        anyhow::Ok(())
    });
    // Reading standard input can not be interrupted, so its thread is not waited for.
    runtime.shutdown_background();
    served.context(
        "the Model Context Protocol is spoken on standard input and output, by the assistant that \
         starts `loam mcp`",
    )?;
    Ok(Exit::Done)
}

struct Server {
    questions: Vec<Question>,
    turns: Semaphore,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerInfo {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerInfo::new(capabilities)
            .with_server_info(Implementation::new("loam", loam_format::VERSION))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let all = self.questions.iter().map(Question::described);
        Ok(ListToolsResult::with_all_items(all.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let name = request.name.as_ref();
        let Some(question) = self.questions.iter().find(|one| one.name == name) else {
            return Err(ErrorData::invalid_params(
                format!("there is no tool `{name}`"),
                None,
            ));
        };
        let call = match question.call(&request.arguments.unwrap_or_default()) {
            Ok(call) => call,
            Err(message) => return Ok(failed(message)),
        };
        let _turn = self.turns.acquire().await;
        let answer = match call {
            Call::Largest => largest().map_err(anyhow::Error::from),
            Call::Verb { words, watched } => ask(&words, PATIENCE + watched).await,
        };
        Ok(match answer {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(format!(
                "{}\n\nNext: {}",
                text.trim_end(),
                question.next
            ))]),
            Err(error) => failed(format!("{error:#}")),
        })
    }
}

/// The assistant reads it, and may ask otherwise.
fn failed(message: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}

/// The text that a verb prints.
async fn ask(words: &[String], limit: Duration) -> Result<String> {
    let shown = format!("loam {}", words.join(" "));
    // By the file that runs, also if another one has its name now.
    let mut command = Command::new("/proc/self/exe");
    command
        .args(words)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .with_context(|| format!("{shown} can not be started"))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let read = async {
        let (out, err) = tokio::join!(head_of(out, MOST), head_of(err, MOST_WORDS));
        // What was cut off is not waited for: its writer sees a closed pipe.
        (out, err, child.wait().await)
    };
    let Ok((out, err, status)) = timeout(limit, read).await else {
        anyhow::bail!(
            "{shown} took longer than {} s, and was ended",
            limit.as_secs()
        );
    };
    let code = status.ok().and_then(|status| status.code());
    // 1: something was found.
    if !matches!(code, Some(0 | 1)) && out.text.is_empty() {
        anyhow::bail!("{}", err.text.trim());
    }
    let mut text = out.text;
    if out.is_cut {
        text += &format!("\n(cut off after {} KiB; `{shown}` prints all)", MOST >> 10);
    }
    if !err.text.trim().is_empty() {
        text += &format!("\n\n{}", err.text.trim());
    }
    Ok(text)
}

struct Head {
    text: String,
    is_cut: bool,
}

async fn head_of(stream: Option<impl AsyncRead + Unpin>, most: u64) -> Head {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // A stream that breaks off has ended.
        let _ = stream.take(most + 1).read_to_end(&mut bytes).await;
    }
    let is_cut = bytes.len() as u64 > most;
    bytes.truncate(most as usize);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if is_cut {
        // At the end of a line.
        text.truncate(text.rfind('\n').unwrap_or(text.len()));
    }
    Head { text, is_cut }
}
