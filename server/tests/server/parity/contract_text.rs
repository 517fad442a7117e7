//! What every front end leaves out of what the engine says.

/// An expected line without what is in no contract.
pub(super) fn without_internals(text: &str) -> String {
    let is_inspection = text.starts_with("fence=");
    let line = |line: &str| {
        let mut line = line;
        // Field and limit are told; the words beside them are for people.
        if let Some(end) = line.find("): ").filter(|_| line.contains("bad_input, ")) {
            line = &line[..=end];
        }
        // Whoever releases by force knows who they are, and why.
        if line.starts_with("forced ") {
            line = line.split(" by ").next().unwrap_or(line);
        }
        // What scope it was is known to whoever asked for it.
        for scope in [", Local", ", Quorum"] {
            line = line.strip_suffix(scope).unwrap_or(line);
        }
        let is_holder = is_inspection && !line.contains(" waits ");
        let left_out = |word: &&str| {
            let begins = |names: &[&str]| names.iter().any(|name| word.starts_with(name));
            (is_holder && begins(&["priority=", "request=", "metadata="]))
                || (line.contains(" holds ") && begins(&["ticket="]))
        };
        line.split(' ').filter(|word| !left_out(word)).collect::<Vec<_>>().join(" ")
    };
    let told: Vec<String> = text.lines().map(line).collect();
    // An empty list is refused where it is read, and no capacity too.
    let told = told.join("\n").replace("bad_input, items (1024)", "bad_input, count (0)");
    told.replace("bad_input, capacity (1)", "bad_input, capacity (0)")
}
