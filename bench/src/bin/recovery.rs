//! Measures the start time of the `waymaker-server` beside this program, on a data directory with a million keys
//! of scope local, of which a hundred thousand are held.

use std::path::PathBuf;
use std::process::ExitCode;
use waymaker_bench::recovery::{Contents, start, write};

const STARTS: usize = 5;

fn main() -> ExitCode {
    let parent = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    match measure(&parent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("recovery: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(parent: &std::path::Path) -> std::io::Result<()> {
    let directory = tempfile::tempdir_in(parent)?;
    let server = std::env::current_exe()?.with_file_name("waymaker-server");
    let contents = Contents { keys: 1_000_000, held: 100_000, tail_records: 500_000, segment_len: 64 << 20 };
    write(directory.path(), &contents)?;
    let mut times = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        times.push(start(&server, directory.path())?);
    }
    times.sort_unstable();
    println!("recovery of {contents:?}: median {:?} of {times:?}", times[STARTS / 2]);
    Ok(())
}
