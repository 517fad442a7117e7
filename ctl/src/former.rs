//! Former commands, verbs without a noun, and the commands that replace them.

use clap::CommandFactory;

use crate::command_line::CommandLine;

/// Returns the replacement if the words, without the name of the program, are a former command or a verb without a noun.
pub(crate) fn replacement(words: &[String]) -> Option<String> {
    let mut words = words.iter().take_while(|word| *word != "--").map(String::as_str);
    let mut positional = Vec::new();
    let mut flags = Vec::new();
    let takes_value = options_with_value();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            positional.push(word);
        } else if takes_value.iter().any(|option| option == word) {
            words.next();
        } else {
            flags.push(word);
        }
    }
    let has = |flag: &str| flags.contains(&flag);
    match positional[..] {
        ["list", ..] => return Some("list needs a noun, such as: waymaker-ctl locks list".to_owned()),
        [verb @ ("acquire" | "extend"), ..] => return Some(format!("{verb} is: waymaker-ctl locks {verb}")),
        _ => {}
    }
    let new = match positional[..] {
        ["status" | "inspect", ..] if has("--pool") => "pools inspect POOL",
        ["status" | "inspect", ..] if has("--tree") => "locks inspect --tree PATH",
        ["status" | "inspect", ..] => "locks inspect KEY",
        ["watch", ..] => "locks watch KEY",
        ["verify", ..] => "locks verify KEY FENCE",
        ["release", ..] => "locks release KEY ID",
        ["force-release", ..] => "locks force-release ID --reason TEXT",
        ["freeze", ..] if has("--thaw") => "prefixes thaw PREFIX",
        ["freeze", ..] => "prefixes freeze PREFIX",
        ["set-capacity", _, "0"] => "pools remove POOL",
        ["set-capacity", ..] => "pools resize POOL CAPACITY",
        ["entries", ..] => "registry list",
        ["pools"] => "pools list",
        ["pools", verb] if has("--prefix") && verb != "list" => "pools list",
        ["namespaces"] => "namespaces list",
        ["namespace", ..] => "namespaces remove NAME",
        _ => return None,
    };
    let old = match positional[0] {
        "namespace" => "namespace remove",
        word => word,
    };
    Some(format!("{old} is now: waymaker-ctl {new}"))
}

/// Returns the global options that take a value.
fn options_with_value() -> Vec<String> {
    let command = CommandLine::command();
    let options = command.get_arguments().filter(|option| option.get_action().takes_values());
    options.filter_map(|option| option.get_long().map(|name| format!("--{name}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        replacement(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn former_commands_have_replacements() {
        for (line, new) in [
            ("status backup", "status is now: waymaker-ctl locks inspect KEY"),
            ("--server u --json status --pool p", "status is now: waymaker-ctl pools inspect POOL"),
            ("inspect --tree a/b", "inspect is now: waymaker-ctl locks inspect --tree PATH"),
            ("freeze --thaw eu/", "freeze is now: waymaker-ctl prefixes thaw PREFIX"),
            ("set-capacity p 0", "set-capacity is now: waymaker-ctl pools remove POOL"),
            ("pools --prefix eu/", "pools is now: waymaker-ctl pools list"),
            ("pools --json", "pools is now: waymaker-ctl pools list"),
            ("namespace remove sem/jobs", "namespace remove is now: waymaker-ctl namespaces remove NAME"),
        ] {
            assert_eq!(of(line).as_deref(), Some(new), "{line}");
        }
    }

    #[test]
    fn verbs_without_a_noun_get_one() {
        assert_eq!(of("list").as_deref(), Some("list needs a noun, such as: waymaker-ctl locks list"));
        assert_eq!(of("acquire k").as_deref(), Some("acquire is: waymaker-ctl locks acquire"));
    }

    #[test]
    fn present_commands_have_no_replacement() {
        for line in ["pools nonsense", "locks", "nonsense", "lock k -- status k", "--namespace status locks"]
        {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
