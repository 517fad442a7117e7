//! Links between documents, and the headings that they lead to.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Returns the problems of all links in these documents, one line for each: a file that does not exist, or a heading that the file
/// does not have. Links to other hosts are not checked.
///
/// # Panics
///
/// If a document cannot be read.
pub fn broken(root: &Path, documents: &[String]) -> Vec<String> {
    let mut anchors = HashMap::new();
    let mut problems = Vec::new();
    for document in documents {
        let text =
            fs::read_to_string(root.join(document)).unwrap_or_else(|error| panic!("{document}: {error}"));
        for (line, target) in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = if path.is_empty() {
                PathBuf::from(document)
            } else {
                normal(&Path::new(document).parent().unwrap_or(Path::new("")).join(path))
            };
            if !root.join(&file).exists() {
                problems.push(format!("{document}:{line}: there is no {}", file.display()));
            } else if !heading.is_empty() && file.extension().is_some_and(|extension| extension == "md") {
                let known = anchors.entry(file.clone()).or_insert_with(|| {
                    headings(&fs::read_to_string(root.join(&file)).expect("it was found"))
                });
                if !known.contains(heading) {
                    problems.push(format!("{document}:{line}: {} has no heading #{heading}", file.display()));
                }
            }
        }
    }
    problems
}

/// Resolves `.` and `..` without looking at the disk.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = normal.pop(),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// Returns the lines of a document outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

/// Returns the targets of all links `[...](target)` of a document, with the lines in which they end.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            found.push((number, target.trim().to_owned()));
            rest = after;
        }
    }
    found
}

/// Blanks the code spans of a line.
fn without_code(line: &str) -> String {
    let mut pieces = line.split('`');
    let mut bare = pieces.next().unwrap_or_default().to_owned();
    while let (Some(_), after) = (pieces.next(), pieces.next()) {
        bare.push('`');
        bare.push_str(after.unwrap_or_default());
    }
    bare
}

/// Returns the anchors of all headings of a document, as GitHub and mdBook make them.
pub fn headings(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let Some(title) = line.strip_prefix('#').map(|line| line.trim_start_matches('#')) else { continue };
        let Some(title) = title.strip_prefix(' ') else { continue };
        let anchor = anchor(title);
        let mut unique = anchor.clone();
        let mut count = 0;
        while !anchors.insert(unique) {
            count += 1;
            unique = format!("{anchor}-{count}");
        }
    }
    anchors
}

/// Returns the anchor of one heading: lower case, spaces become hyphens, and all but letters, digits, `-` and `_` disappears.
fn anchor(title: &str) -> String {
    let mut anchor = String::new();
    for character in title.trim().chars() {
        match character {
            ' ' => anchor.push('-'),
            '-' | '_' => anchor.push(character),
            _ if character.is_alphanumeric() => anchor.extend(character.to_lowercase()),
            _ => {}
        }
    }
    anchor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_github() {
        assert_eq!(anchor("SQL: PostgreSQL and SQLite"), "sql-postgresql-and-sqlite");
        assert_eq!(anchor("What `--accept-damage` cannot protect"), "what---accept-damage-cannot-protect");
    }

    #[test]
    fn two_equal_headings_have_two_anchors() {
        let anchors = headings("# Same\n## Same\n```sh\n# no heading\n```\n#no heading\n");
        assert_eq!(anchors.into_iter().collect::<Vec<_>>(), ["same", "same-1"]);
    }

    #[test]
    fn links_in_code_do_not_count() {
        let text = "[a](b.md) `[c](d.md)` [e](f.md#g)\n```sh\n[h](i.md)\n```\n";
        assert_eq!(targets(text), [(1, "b.md".to_owned()), (1, "f.md#g".to_owned())]);
    }
}
