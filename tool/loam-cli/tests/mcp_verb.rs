//! `loam mcp`, asked by a client of the protocol's own library.

use std::process::Stdio;

use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{json, Map, Value};
use tokio::process::{Child, Command};
use tokio::time::{timeout, Duration};

use crate::common::{compile, root, Talker};

struct Assistant {
    client: RunningService<RoleClient, ()>,
    server: Child,
}

impl Assistant {
    async fn start(options: &[&str]) -> Assistant {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loam"));
        command.arg("mcp").args(options).env_remove("LD_PRELOAD");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.kill_on_drop(true).spawn().unwrap();
        let (output, input) = (server.stdout.take().unwrap(), server.stdin.take().unwrap());
        let client = ().serve((output, input)).await.unwrap();
        Assistant { client, server }
    }

    async fn ask(&self, tool: &'static str, arguments: Value) -> (bool, String) {
        let Value::Object(arguments) = arguments else {
            panic!()
        };
        let mut request = CallToolRequestParams::new(tool);
        request.arguments = Some(arguments);
        let answer: CallToolResult = self.client.call_tool(request).await.unwrap();
        let shown = serde_json::to_value(&answer.content).unwrap();
        let text = shown[0]["text"].as_str().unwrap().to_owned();
        (answer.is_error != Some(true), text)
    }

    /// The server ends when the assistant goes.
    async fn leave(mut self) {
        self.client.cancel().await.unwrap();
        let ended = timeout(Duration::from_secs(60), self.server.wait()).await;
        assert!(ended.unwrap().unwrap().success());
    }
}

fn run(test: impl std::future::Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    { runtime }.enable_all().build().unwrap().block_on(test);
}

/// Arguments that name a process.
fn of(pid: &str) -> Value {
    json!({"process": pid})
}

#[test]
fn an_assistant_asks_what_is_wrong_with_a_process() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("truth");
    compile(
        &["-O1", "-pthread"],
        &root().join("tests/doctor/truth.c"),
        &program,
    );
    let mut command = std::process::Command::new(&program);
    command
        .args(["0", "2", "50", "48"])
        .env_remove("LD_PRELOAD")
        .env_remove("GLIBC_TUNABLES");
    let mut patient = Talker::start(&mut command);
    let pid = patient.pid();
    run(async {
        let assistant = Assistant::start(&[]).await;
        let (is_answer, text) = assistant.ask("largest_processes", json!({})).await;
        assert!(is_answer && text.contains("MiB resident"), "{text}");
        for tool in ["doctor", "stats", "census"] {
            let (is_answer, text) = assistant.ask(tool, of(&pid)).await;
            assert!(is_answer, "{tool}: {text}");
            let names =
                text.contains("truth") && text.contains("MiB") && text.contains("\n\nNext: ");
            assert!(names && text.len() < 20 << 10, "{tool}: {text}");
            assert!(!text.contains('\x1b'), "{tool}: {text}");
        }
        let (is_answer, text) = assistant
            .ask("pins", json!({"process_or_trace": pid}))
            .await;
        assert!(is_answer && text.contains("pages"), "{text}");
        if cfg!(target_arch = "x86_64") {
            let (is_answer, text) = assistant.ask("trim_estimate", of(&pid)).await;
            assert!(is_answer && text.contains("dry run"), "{text}");
        }
        assistant.leave().await;
    });
    // It was only looked at.
    assert!(patient.ask("live").parse::<u64>().unwrap() > 10 << 20);
}

#[test]
fn what_can_not_be_answered_says_why_and_the_server_goes_on() {
    run(async {
        let assistant = Assistant::start(&[]).await;
        for (tool, arguments, why) in [
            ("doctor", of("2147483646"), "2147483646"),
            ("doctor", json!({}), "`process` is missing"),
            (
                "doctor",
                json!({"process": 1, "watch_seconds": 86_400}),
                "watch_seconds",
            ),
            ("census", of("--json"), "--json"),
            (
                "trace_info",
                json!({"trace": "/nowhere/t.trace"}),
                "/nowhere/t.trace",
            ),
        ] {
            let (is_answer, text) = assistant.ask(tool, arguments).await;
            assert!(!is_answer && text.contains(why), "{tool}: {text}");
        }
        let unknown = assistant
            .client
            .call_tool(CallToolRequestParams::new("reboot"));
        assert!(unknown.await.unwrap_err().to_string().contains("reboot"));
        let (is_answer, _) = assistant.ask("largest_processes", json!({})).await;
        assert!(is_answer);
        assistant.leave().await;
    });
}

#[test]
fn only_reading_is_offered_until_the_user_allows_more() {
    run(async {
        for (options, offers_trim) in [(&[][..], false), (&["--allow-trim"][..], true)] {
            let assistant = Assistant::start(options).await;
            let tools = assistant.client.list_all_tools().await.unwrap();
            let is_there = tools.iter().any(|tool| tool.name == "trim");
            assert_eq!(is_there, offers_trim && cfg!(target_arch = "x86_64"));
            for tool in tools {
                let hints = tool.annotations.unwrap();
                assert_eq!(
                    hints.read_only_hint,
                    Some(tool.name != "trim"),
                    "{}",
                    tool.name
                );
                assert_eq!(tool.input_schema["additionalProperties"], json!(false));
            }
            if !offers_trim {
                let mut request = CallToolRequestParams::new("trim");
                request.arguments = Some(Map::from_iter([("process".to_owned(), json!(1))]));
                assert!(assistant.client.call_tool(request).await.is_err());
            }
            assistant.leave().await;
        }
    });
}
