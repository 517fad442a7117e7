//! What shells are told about our words.

use std::io::Write;
use std::process::Stdio;

use crate::program::{ctl, output, stdout};

fn script(shell: &str) -> String {
    let output = output(ctl("", &["completions", shell]));
    assert_eq!(output.status.code(), Some(0));
    stdout(&output)
}

#[test]
fn every_shell_learns_the_subcommands_and_nothing_hidden() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = script(shell);
        for word in
            ["lock", "semaphore", "elect", "presence", "completions", "force-release", "connect-timeout"]
        {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("watchdog"), "{shell}");
    }
}

#[test]
fn bash_understands_its_script_and_completes_with_it() {
    let mut bash = std::process::Command::new("bash")
        .args(["-n", "-s"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("bash, which every machine has that runs these tests");
    bash.stdin.take().unwrap().write_all(script("bash").as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success());
    let ask = r#"
        function=$(complete -p waymaker-ctl); function=${function#*-F }; function=${function%% *}
        COMP_WORDS=(waymaker-ctl presence ""); COMP_CWORD=2
        $function waymaker-ctl "" presence
        echo "${COMPREPLY[@]}""#;
    let answer = std::process::Command::new("bash").args(["-c", &(script("bash") + ask)]).output().unwrap();
    let answer = stdout(&answer);
    let words: Vec<_> = answer.split_whitespace().collect();
    for word in ["set", "list", "get", "--output"] {
        assert!(words.contains(&word), "{words:?}");
    }
}
