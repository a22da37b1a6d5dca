//! The tool's tests as a whole: what `loam` does and prints, and the rules that its crates keep.
//! They are one program, because each program is linked with all crates. A file with tests is a
//! module here.

mod common;

mod advise_verb;
mod attach_verb;
mod bad_traces;
mod census_page;
mod census_verb;
mod check_verb;
mod command_line;
mod doctor_study;
mod doctor_verb;
mod elsewhere;
mod endings;
mod export_otlp;
mod export_verb;
mod finding;
mod flame_page;
mod fleet;
mod gate_verb;
mod growth_verb;
mod held_up;
mod lab_earlier_runs;
mod lab_merge;
mod lab_outputs;
mod lab_trials;
mod layers;
mod looks;
mod made_code;
mod map_page;
mod mcp_verb;
mod one_file;
mod peers;
mod pins_verb;
mod plain_output;
mod probes_verb;
mod python_names;
mod recipes;
mod record_verb;
mod replay_verb;
mod report_page;
mod run_verb;
mod stats_verb;
mod strangers;
mod top_verb;
mod trace_export;
mod trace_import;
mod trace_verb;
#[cfg(target_arch = "x86_64")]
mod trim_verb;
