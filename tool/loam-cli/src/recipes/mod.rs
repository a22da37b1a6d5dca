//! `loam recipes`: questions in the words of who has them, each with the one command that answers
//! it.
//!
//! The text is the verb's help, so `loam help recipes` and the manual page loam-recipes(1) have it
//! too.

pub mod args;

use anyhow::Result;

use crate::exit::Exit;
use crate::output;

/// The verb `trim` is for one kind of processor.
const WITHOUT_A_RESTART: (&str, &str, &str) = (
    "How much can I get back without a restart?",
    if cfg!(target_arch = "x86_64") {
        "loam trim PID --dry-run"
    } else {
        "loam doctor PID"
    },
    if cfg!(target_arch = "x86_64") {
        "The bytes of free pages. Without --dry-run they go back to the system."
    } else {
        "Its last lines: the bytes that `malloc_trim(0)` would give back, called by the program."
    },
);

/// Each question, its command, and what the answer is. A test runs the commands.
pub const RECIPES: [(&str, &str, &str); 12] = [
    (
        "Why is this process so large, and what would help?",
        "loam doctor PID",
        "What is wrong in plain words, the remedy, and the bytes that the remedy saves.",
    ),
    (
        "Why is RES in top larger than my heap?",
        "loam stats PID",
        "Divides the resident memory: live blocks, free memory of the heap, stacks, files, others.",
    ),
    (
        "Why is my container killed?",
        "loam doctor PID --watch 60",
        "How near its control group is to the limit, and which sizes of blocks grow meanwhile.",
    ),
    WITHOUT_A_RESTART,
    (
        "Who leaks?",
        "loam census PID --leaks",
        "Blocks to which no pointer leads, by type. Exit code 1 if there are some.",
    ),
    (
        "What grows?",
        "loam census PID --watch 60",
        "Two looks, a minute apart: the types whose blocks became more.",
    ),
    (
        "I freed it all: why does the process not shrink?",
        "loam pins PID",
        "Which blocks keep pages of which less than half is live.",
    ),
    (
        "Which code holds the memory?",
        "loam trace info TRACE",
        "The stacks that own the blocks of the peak, if TRACE was recorded with --stacks=64K.",
    ),
    (
        "What would jemalloc save?",
        "loam replay TRACE --allocators system,jemalloc",
        "Memory and time of the recorded program on both, with the error of the replay.",
    ),
    (
        "Which allocator should I take?",
        "loam advise TRACE",
        "All that this machine has, replayed; one of them, why, and how to switch.",
    ),
    (
        "Did my change make it fatter?",
        "loam gate TRACE --baseline OLDER",
        "Two recordings, compared. Exit code 1 if memory, faults or time got worse.",
    ),
    (
        "Does it get better on Loam?",
        "loam run -- PROGRAM",
        "The program as it is, on the heap. `loam doctor` beside it says what changed.",
    ),
];

/// The recipes as text.
pub fn text() -> String {
    let mut text = "\
Questions and the one command that answers each.

PID is the number or the name of a process. TRACE and OLDER are files that `loam record \
--stacks=64K --output TRACE -- PROGRAM` wrote."
        .to_owned();
    for (question, command, answer) in RECIPES {
        text += &format!("\n\n{question}\n\n    {command}\n\n{answer}");
    }
    text
}

/// Prints the recipes.
pub fn run() -> Result<Exit> {
    output::write_stdout(&(text() + "\n"))?;
    Ok(Exit::Done)
}
