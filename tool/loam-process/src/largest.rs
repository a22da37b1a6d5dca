//! The largest processes: where to begin if it is not known whose memory is asked for.

use procfs::process::all_processes;
use procfs::ProcError;

use loam_format::{plain, units};

/// Rows of the answer.
const ROWS: usize = 15;

/// A table of the processes with most resident memory.
pub fn largest() -> Result<String, ProcError> {
    let mut found: Vec<(u64, i32, String)> = Vec::new();
    let page = rustix::param::page_size() as u64;
    for process in all_processes()?.flatten() {
        // Processes end meanwhile.
        let (Ok(stat), Ok(size)) = (process.stat(), process.statm()) else {
            continue;
        };
        if size.resident > 0 {
            found.push((size.resident * page, stat.pid, stat.comm));
        }
    }
    let all = found.len();
    found.sort_by(|a, b| b.cmp(a));
    found.truncate(ROWS);
    let mut text = format!("The {} largest of {all} processes:\n", found.len());
    for (resident, pid, name) in found {
        let resident = units::bytes(resident as f64);
        text += &format!(
            "{resident:>10} resident  {pid:>8}  {}\n",
            plain::line(&name)
        );
    }
    Ok(text)
}
