//! A fixed amount of work for an instruction count under callgrind; run by `bench/instructions.sh`.
//!
//! The first argument is the scenario, the second the number of pairs. The count per pair is the difference of two
//! runs, divided by the difference of their pairs, so that the setup does not count.

use std::process::ExitCode;
use waymaker_bench::{codec, hot_key, kinds, lane::Bench, pairs};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, scenario, count] = arguments.as_slice() else { return usage() };
    let Ok(count) = count.parse::<u32>() else { return usage() };
    let check = match scenario.as_str() {
        "pair" => pairs::pairs(&mut pairs::warm(1000), 1000, u64::from(count)),
        "hand_over" => hot_key::HotKey::new(64).hand_overs(u64::from(count)),
        "codec" => frames(count),
        "tree_depth_4" => kinds::Sets::new(4).pairs(u64::from(count)),
        "permits" => kinds::permits(&mut Bench::default(), u64::from(count)),
        "throttle" => kinds::throttles(&mut Bench::default(), u64::from(count)),
        _ => return usage(),
    };
    println!("{scenario} {count}: {check}");
    ExitCode::SUCCESS
}

/// Encodes and decodes `pair_count` pairs, in batches.
fn frames(pair_count: u32) -> u64 {
    const PAIRS: u32 = 64;
    let mut bytes = Vec::new();
    let mut check = 0;
    for _ in 0..pair_count / PAIRS {
        check += codec::encode_requests(PAIRS, &mut bytes);
        check += codec::decode_requests(&bytes);
        check += codec::encode_answers(PAIRS, &mut bytes);
        check += codec::decode_answers(&bytes);
    }
    check
}

fn usage() -> ExitCode {
    eprintln!("usage: instructions pair|hand_over|codec|tree_depth_4|permits|throttle COUNT");
    ExitCode::from(2)
}
