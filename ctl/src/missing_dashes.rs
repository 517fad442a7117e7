//! Command lines that lack `--` before the command to run.

use clap::Parser;

use crate::command_line::CommandLine;

/// Returns the command line with `--` if the words, without the name of the program, are valid with it.
pub(crate) fn corrected(words: &[String]) -> Option<String> {
    if words.iter().any(|word| word == "--") {
        return None;
    }
    (1..words.len()).filter(|at| !words[*at].starts_with('-')).find_map(|at| {
        let (options, command) = words.split_at(at);
        let dashes = "--".to_owned();
        let words: Vec<_> = options.iter().chain([&dashes]).chain(command).map(String::as_str).collect();
        CommandLine::try_parse_from(["waymaker-ctl"].iter().chain(&words)).ok()?;
        let quoted: Vec<_> = words.into_iter().map(quoted).collect();
        Some(format!("waymaker-ctl {}", quoted.join(" ")))
    })
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Option<String> {
        corrected(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn dashes_are_put_before_the_command() {
        for (words, corrected) in [
            (&["lock", "backup", "pg_dump", "mydb"][..], "waymaker-ctl lock backup -- pg_dump mydb"),
            (
                &["lock", "backup", "--wait", "5s", "pg_dump", "--all"],
                "waymaker-ctl lock backup --wait 5s -- pg_dump --all",
            ),
            (&["elect", "k", "./it's"], r"waymaker-ctl elect k -- './it'\''s'"),
            (
                &["--json", "semaphore", "p", "--capacity", "2", "sh", "-c", "a b"],
                "waymaker-ctl --json semaphore p --capacity 2 -- sh -c 'a b'",
            ),
            (&["throttle", "b", "--rate", "1/s", "./send"], "waymaker-ctl throttle b --rate 1/s -- ./send"),
            (&["presence", "set", "w", "./work"], "waymaker-ctl presence set w -- ./work"),
        ] {
            assert_eq!(of(words).as_deref(), Some(corrected));
        }
    }

    #[test]
    fn other_mistakes_are_not_corrected() {
        for words in [
            &["lock", "backup"][..],
            &["lock", "backup", "--waitt", "5s"],
            &["lock", "backup", "--wait", "5s"],
            &["lock", "backup", "--nonsense", "--", "ls"],
            // The word in the way is not the command.
            &["throttle", "b", "--rate", "1/s", "extra", "--", "ls"],
            &["locks", "list", "extra"],
            &["nonsense", "k", "ls"],
        ] {
            assert_eq!(of(words), None, "{words:?}");
        }
    }
}
