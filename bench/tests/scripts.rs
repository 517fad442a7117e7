//! `bench/instructions.sh` and `./test` with simulated `cargo` and `valgrind` programs.

#[path = "../../loadgen/tests/loadgen/executable.rs"]
mod executable;

use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Simulates a count: a million instructions for the setup, then the baseline of the scenario for each pair.
const VALGRIND: &str = r#"
for word; do case $word in --callgrind-out-file=*) out=${word#*=} ;; esac; done
scenario=${*: -2:1} pairs=${*: -1} summary=1
count=$(sed -n "s/^$scenario //p" "$(dirname "$0")/../bench/instructions.baseline")
factor=100
[[ -z ${count:-} ]] && count=1000
. "$(dirname "$0")/defect"
echo "events: Ir" >"$out"
((!summary)) || echo "summary: $((1000000 + count * pairs * factor / 100))" >>"$out"
"#;

/// A copy of both scripts in a separate folder.
struct Copy(TempDir);

/// Exit code and output of a script.
struct Ended {
    code: Option<i32>,
    output: String,
}

impl Copy {
    fn new() -> Self {
        let copy = Self(tempfile::tempdir().expect("a folder"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for folder in ["bench", "programs", "some/tests"] {
            std::fs::create_dir_all(copy.0.path().join(folder)).expect("a folder");
        }
        for file in ["bench/instructions.sh", "bench/instructions.baseline", "test"] {
            executable::write(&copy.0.path().join(file), std::fs::read(root.join(file)).expect("a file"));
        }
        std::fs::write(copy.0.path().join("some/tests/some.rs"), "").expect("a file");
        copy.program("cargo", "mkdir -p target/release");
        copy.program("valgrind", VALGRIND);
        copy.defect("");
        // ./test would install packages.
        for program in ["apt-get", "strace", "chromium"] {
            copy.program(program, "exit 1");
        }
        copy
    }

    fn program(&self, name: &str, script: &str) {
        executable::write(
            &self.0.path().join("programs").join(name),
            format!("#!/usr/bin/env bash\n{script}\n"),
        );
    }

    /// Adds a defect to each run: lines of bash that can use `$scenario` and `$pairs`.
    fn defect(&self, script: &str) {
        std::fs::write(self.0.path().join("programs/defect"), script).expect("a file");
    }

    /// Changes the baseline.
    fn baseline(&self, change: impl Fn(&str) -> String) -> &Self {
        let path = self.0.path().join("bench/instructions.baseline");
        let text = std::fs::read_to_string(&path).expect("a baseline");
        std::fs::write(path, change(&text)).expect("a baseline");
        self
    }

    fn run(&self, script: &str, arguments: &[&str]) -> Ended {
        let path = std::env::var("PATH").expect("a path");
        let output = Command::new(self.0.path().join(script))
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.0.path().join("programs").display()))
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("CI")
            .output()
            .expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), output: text(&output.stdout) + &text(&output.stderr) }
    }

    /// Runs `instructions.sh --check`.
    #[track_caller]
    fn assert_check(&self, code: i32, words: &str) {
        self.assert_ends("bench/instructions.sh", &["--check"], code, words);
    }

    /// Runs the suite `units`, whose tests are this script.
    #[track_caller]
    fn assert_units(&self, code: i32, script: &str, words: &str) {
        self.program("cargo", &format!("case $* in *--lib*) {script} ;; esac"));
        self.assert_ends("test", &["units"], code, words);
    }

    #[track_caller]
    fn assert_ends(&self, script: &str, arguments: &[&str], code: i32, words: &str) {
        let ended = self.run(script, arguments);
        assert!(ended.output.contains(words), "no {words:?} in:\n{}", ended.output);
        assert_eq!(ended.code, Some(code), "{}", ended.output);
    }
}

#[test]
fn passes_near_the_baseline_and_fails_above_the_limit() {
    let copy = Copy::new();
    copy.assert_check(0, "client_lane");
    copy.defect("[[ $scenario != inlet ]] || factor=102");
    copy.assert_check(0, "+2.00%");
    copy.defect("[[ $scenario != inlet ]] || factor=104");
    copy.assert_check(1, "inlet takes");
}

#[test]
fn paths_and_the_limiter_have_separate_limits() {
    let copy = Copy::new();
    copy.baseline(|text| text.replace("tree_depth_4 2591", "tree_depth_4 2697"));
    copy.assert_check(1, "four segments");
    let copy = Copy::new();
    copy.baseline(|text| text.replace("throttle 235", "throttle 338"));
    copy.assert_check(1, "limiter");
}

#[test]
fn fails_if_a_scenario_is_missing_on_either_side() {
    let without = |scenario: &'static str| {
        move |text: &str| {
            let is_other = |line: &&str| !line.starts_with(&format!("{scenario} "));
            text.lines().filter(is_other).map(|line| format!("{line}\n")).collect::<String>()
        }
    };
    Copy::new().baseline(without("inlet")).assert_check(1, "inlet has no baseline");
    Copy::new().baseline(|text| format!("{text}gone 5\n")).assert_check(1, "gone, which is not a scenario");
}

#[test]
fn fails_if_a_scenario_counts_nothing() {
    let copy = Copy::new();
    for pairs in [6_400, 57_600] {
        copy.defect(&format!("[[ $scenario != inlet || $pairs != {pairs} ]] || summary=0"));
        copy.assert_check(123, &format!("callgrind counted nothing in inlet with {pairs} pairs"));
    }
    copy.defect("[[ $scenario != inlet ]] || pairs=5");
    copy.assert_check(1, "inlet takes 0 instructions");
    copy.defect("[[ $scenario != inlet ]] || exit 1");
    copy.assert_check(123, "");
}

#[test]
fn a_failed_suite_fails_everything_whatever_it_printed() {
    let copy = Copy::new();
    copy.assert_units(0, "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'", "2 passed, 0 failed");
    copy.assert_units(
        1,
        "echo 'test result: FAILED. 2 passed; 3 failed; 0 ignored'; exit 101",
        "2 passed, 3 failed",
    );
    copy.assert_units(1, "echo 'test one ... FAILED'; exit 101", "0 passed, 1 failed");
    copy.assert_units(1, "echo 'test result: ok. 2 passed; 0 failed'; exit 101", "FAILED: units");
    copy.assert_units(1, "exit 101", "FAILED: units");
}

#[test]
fn names_skipped_tests_even_in_the_middle_of_a_line() {
    let copy = Copy::new();
    copy.assert_units(0, "echo 'test one ... *** SKIPPED one: no disk'", "\n*** SKIPPED one: no disk\n");
}
