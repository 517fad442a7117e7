//! Completion scripts.

use std::io::Write;
use std::process::Stdio;

use crate::program::{ctl, output, stdout};

fn script(shell: &str) -> String {
    let output = output(ctl("", &["completions", shell]));
    assert_eq!(output.status.code(), Some(0));
    stdout(&output)
}

#[test]
fn every_script_has_all_commands_except_hidden_ones() {
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
fn bash_completes_with_its_script() {
    let mut bash = std::process::Command::new("bash")
        .args(["-n", "-s"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("bash, which every machine has that runs these tests");
    bash.stdin.take().unwrap().write_all(script("bash").as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success());
    for (noun, verbs) in [
        ("presence", &["set", "list", "get"][..]),
        ("locks", &["acquire", "extend", "force-release", "inspect", "verify"]),
        ("pools", &["resize", "remove"]),
        ("registry", &["list", "get", "set", "remove"]),
        ("server", &["status"]),
        ("log", &["inspect", "verify"]),
        ("tokens", &["create", "list", "revoke"]),
    ] {
        let ask = r#"
            function=$(complete -p waymaker-ctl); function=${function#*-F }; function=${function%% *}
            COMP_WORDS=(waymaker-ctl NOUN ""); COMP_CWORD=2
            $function waymaker-ctl "" NOUN
            echo "${COMPREPLY[@]}""#;
        // The script is too long for an argument of a command.
        let mut bash = std::process::Command::new("bash")
            .arg("-s")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash starts");
        let script = script("bash") + &ask.replace("NOUN", noun);
        bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        let answer = stdout(&bash.wait_with_output().unwrap());
        let words: Vec<_> = answer.split_whitespace().collect();
        for word in verbs.iter().chain(&["--output"]) {
            assert!(words.contains(word), "{noun}: {words:?}");
        }
    }
}
