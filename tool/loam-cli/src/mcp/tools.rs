//! The questions, and how the words of a verb come from an assistant's arguments.

use std::time::Duration;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{json, Map, Value};

/// The longest watch: an assistant's client gives up after some minutes.
const LONGEST_WATCH: u64 = 120;

/// What an argument may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// The number or the name of a process.
    Process,
    /// A process, or a file.
    ProcessOrFile,
    /// A file.
    File,
    /// Seconds to watch.
    Seconds,
}

/// An argument of a question.
#[derive(Debug)]
struct Argument {
    name: &'static str,
    takes: Takes,
    /// The option of the verb; none: the word stands by itself, and must be there.
    option: Option<&'static str>,
}

/// A question that can be asked.
#[derive(Debug)]
pub struct Question {
    /// The tool's name.
    pub name: &'static str,
    title: &'static str,
    about: &'static str,
    /// The verb and its fixed options; none: the list of processes.
    verb: &'static [&'static str],
    arguments: &'static [Argument],
    changes: bool,
    /// What to do with the answer.
    pub next: &'static str,
}

/// What is to be done for a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Call {
    /// List the largest processes.
    Largest,
    /// Run a verb.
    Verb {
        /// Its words.
        words: Vec<String>,
        /// How long it watches.
        watched: Duration,
    },
}

const PROCESS: Argument = Argument {
    name: "process",
    takes: Takes::Process,
    option: None,
};
const WATCH: Argument = Argument {
    name: "watch_seconds",
    takes: Takes::Seconds,
    option: Some("--watch"),
};

/// Every question; `trim` only if it is allowed.
pub fn all(allow_trim: bool) -> Vec<Question> {
    let mut all = vec![
        Question {
            name: "largest_processes",
            title: "Largest processes",
            about: "The processes with most resident memory: size, number, name.",
            verb: &[],
            arguments: &[],
            changes: false,
            next: "ask `doctor` about the one in question.",
        },
        Question {
            name: "doctor",
            title: "What is wrong with a process's memory",
            about: "Says in plain words what is wrong with the memory of a running process, with \
                    evidence, the remedy, and how many bytes the remedy saves; then what was \
                    looked for and not found. With watch_seconds it finds growth too. Works on \
                    glibc's malloc and on Loam.",
            verb: &["doctor"],
            arguments: &[PROCESS, WATCH],
            changes: false,
            next: "tell the remedy and its gain as they stand; `trim_estimate` says what can be \
                   given back without a restart, `census` what the live blocks are.",
        },
        Question {
            name: "stats",
            title: "Where a process's memory is",
            about: "Divides the resident memory of a process: live blocks, caches, free memory of \
                    the heap, stacks, files, and what is none of the heap's.",
            verb: &["stats"],
            arguments: &[PROCESS],
            changes: false,
            next: "a large row `free` is a case for `doctor`, large live blocks one for `census`.",
        },
        Question {
            name: "census",
            title: "What the live blocks are",
            about: "The types of a process's live blocks with counts and bytes, who holds them, \
                    and which no pointer leads to (lost). Also of a core file. With watch_seconds \
                    it shows what grows.",
            verb: &["census", "--top", "12"],
            arguments: &[
                Argument {
                    name: "process",
                    takes: Takes::ProcessOrFile,
                    option: None,
                },
                WATCH,
            ],
            changes: false,
            next: "look at the code that makes the type in the first row; watch_seconds says \
                   whether it grows.",
        },
        Question {
            name: "pins",
            title: "Whose blocks keep sparse pages",
            about: "Which blocks keep pages of which less than half is live, of a running process \
                    or of a trace. With a trace that has stacks, the code that allocated them.",
            verb: &["pins"],
            arguments: &[Argument {
                name: "process_or_trace",
                takes: Takes::ProcessOrFile,
                option: None,
            }],
            changes: false,
            next: "`loam record --stacks=16K -- PROGRAM` makes a trace with stacks, which names \
                   code.",
        },
        Question {
            name: "trace_info",
            title: "What is in a trace",
            about: "What a recorded program requested: rates, sizes, lifetimes, threads, and the \
                    blocks at its peak. A trace is a file that `loam record` wrote.",
            verb: &["trace", "info"],
            arguments: &[Argument {
                name: "trace",
                takes: Takes::File,
                option: None,
            }],
            changes: false,
            next: "`loam replay TRACE` measures it on other allocators, `loam advise TRACE` picks \
                   one; both take minutes and the machine's cores, so the user runs them.",
        },
    ];
    if cfg!(target_arch = "x86_64") {
        all.push(Question {
            name: "trim_estimate",
            title: "What a trim would give back",
            about:
                "How many bytes of free pages `loam trim` would give back to the system without \
                    a restart. Stops and changes nothing.",
            verb: &["trim", "--dry-run"],
            arguments: &[PROCESS],
            changes: false,
            next: "`loam trim PROCESS` does it; it stops a thread for at most 2 ms at a time.",
        });
    }
    if cfg!(target_arch = "x86_64") && allow_trim {
        all.push(Question {
            name: "trim",
            title: "Give free pages back",
            about: "Gives free pages of a running process's heap back to the system. Stops one \
                    thread for at most 2 ms at a time; no block moves, and the program goes on. \
                    The user has allowed it.",
            verb: &["trim"],
            arguments: &[PROCESS],
            changes: true,
            next: "ask `doctor` again; if the same memory comes back, the remedy that it names is \
                   a setting of malloc.",
        });
    }
    all
}

impl Question {
    /// As the protocol describes it.
    pub fn described(&self) -> Tool {
        let annotations = ToolAnnotations::with_title(self.title)
            .read_only(!self.changes)
            .destructive(false)
            .idempotent(true)
            .open_world(false);
        Tool::new(self.name, self.about, self.schema()).with_annotations(annotations)
    }

    fn schema(&self) -> JsonObject {
        let mut properties = Map::new();
        for argument in self.arguments {
            properties.insert(argument.name.to_owned(), argument.schema());
        }
        let required = self.arguments.iter().filter(|one| one.option.is_none());
        let required: Vec<&str> = required.map(|one| one.name).collect();
        let mut schema = Map::new();
        schema.insert("type".to_owned(), json!("object"));
        schema.insert("properties".to_owned(), Value::Object(properties));
        schema.insert("required".to_owned(), json!(required));
        schema.insert("additionalProperties".to_owned(), json!(false));
        schema
    }

    /// What is to be done, or what is wrong with the arguments.
    pub fn call(&self, given: &JsonObject) -> Result<Call, String> {
        if let Some(strange) = given.keys().find(|key| !self.knows(key)) {
            return Err(format!("`{}` takes no argument `{strange}`", self.name));
        }
        if self.verb.is_empty() {
            return Ok(Call::Largest);
        }
        let mut words: Vec<String> = self.verb.iter().map(|word| (*word).to_owned()).collect();
        let mut watched = Duration::ZERO;
        // Options first: what follows `--` is never one.
        for argument in self.arguments {
            let (Some(option), Some(value)) = (argument.option, given.get(argument.name)) else {
                continue;
            };
            let seconds = value
                .as_u64()
                .filter(|seconds| (1..=LONGEST_WATCH).contains(seconds))
                .ok_or_else(|| format!("`{}` is 1 to {LONGEST_WATCH} seconds", argument.name))?;
            watched = Duration::from_secs(seconds);
            words.push(option.to_owned());
            words.push(seconds.to_string());
        }
        words.push("--".to_owned());
        for argument in self.arguments.iter().filter(|one| one.option.is_none()) {
            words.push(argument.word(given.get(argument.name))?);
        }
        Ok(Call::Verb { words, watched })
    }

    fn knows(&self, name: &str) -> bool {
        self.arguments.iter().any(|one| one.name == name)
    }
}

impl Argument {
    fn schema(&self) -> Value {
        let (kind, about) = match self.takes {
            Takes::Process => (
                json!(["string", "integer"]),
                "The number or the full name of a process.",
            ),
            Takes::ProcessOrFile => (
                json!(["string", "integer"]),
                "The number or the full name of a process, or the path of a file.",
            ),
            Takes::File => (json!("string"), "The path of a file."),
            Takes::Seconds => {
                return json!({"type": "integer", "minimum": 1, "maximum": LONGEST_WATCH,
                    "description": "Look again and again for so many seconds, to find growth."})
            }
        };
        json!({"type": kind, "description": about})
    }

    fn word(&self, value: Option<&Value>) -> Result<String, String> {
        match value {
            Some(Value::String(text)) if !text.is_empty() && !text.contains('\0') => {
                Ok(text.clone())
            }
            Some(Value::Number(number)) if number.is_u64() && self.takes != Takes::File => {
                Ok(number.to_string())
            }
            Some(_) => Err(format!("`{}` is not as its description says", self.name)),
            None => Err(format!("`{}` is missing", self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str) -> Question {
        all(true).into_iter().find(|one| one.name == name).unwrap()
    }

    fn words(name: &str, arguments: Value) -> Result<Vec<String>, String> {
        let Value::Object(given) = arguments else {
            panic!()
        };
        match question(name).call(&given)? {
            Call::Verb { words, .. } => Ok(words),
            Call::Largest => Ok(Vec::new()),
        }
    }

    #[test]
    fn arguments_become_words_and_never_options() {
        let asked = words("doctor", json!({"process": 12, "watch_seconds": 5}));
        assert_eq!(asked.unwrap().join(" "), "doctor --watch 5 -- 12");
        let asked = words("census", json!({"process": "--json"})).unwrap();
        assert_eq!(asked.join(" "), "census --top 12 -- --json");
    }

    #[test]
    fn arguments_that_are_wrong_are_named() {
        let errors = [
            words("doctor", json!({})),
            words("doctor", json!({"process": ""})),
            words("doctor", json!({"process": 1, "watch_seconds": 100_000})),
            words("doctor", json!({"process": 1, "signal": 9})),
            words("trace_info", json!({"trace": 7})),
        ];
        let names = ["process", "process", "watch_seconds", "signal", "trace"];
        for (error, name) in errors.into_iter().zip(names) {
            let error = error.unwrap_err();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }

    #[test]
    fn only_what_is_allowed_changes_a_process() {
        assert!(all(false).iter().all(|one| !one.changes));
        let changing = all(true).into_iter().filter(|one| one.changes).count();
        assert_eq!(changing, usize::from(cfg!(target_arch = "x86_64")));
    }
}
