//! A copy of the workspace, in which defects are planted.

use super::defect::{Defect, Edit};
use super::switch::{self, Change};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Folders that are not copied because no build needs them.
const LEFT_OUT: [&str; 2] = ["target", "node_modules"];

/// A copy of the sources of the workspace.
#[derive(Debug)]
pub(crate) struct Sources {
    root: PathBuf,
    /// Original text of each file that a defect may change.
    texts: BTreeMap<String, String>,
}

impl Sources {
    /// Makes `root` a copy of `workspace`. Files that are already equal are not written, so that cargo does
    /// not rebuild them.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub(crate) fn copy(workspace: &Path, root: &Path) -> Result<Self> {
        copy_folder(workspace, root).with_context(|| format!("cannot copy to {}", root.display()))?;
        Ok(Self { root: root.to_owned(), texts: BTreeMap::new() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn text(&mut self, file: &str) -> Result<&str> {
        if !self.texts.contains_key(file) {
            let text =
                fs::read_to_string(self.root.join(file)).with_context(|| format!("cannot read {file}"))?;
            self.texts.insert(file.to_owned(), text);
        }
        Ok(&self.texts[file])
    }

    /// Checks that every edit of a defect matches its file exactly once, is inside the body of a function,
    /// and does not overlap another edit of the defect.
    ///
    /// # Errors
    /// If an edit fails one of these checks. The error names the defect and the file.
    pub(crate) fn check(&mut self, defect: &Defect) -> Result<()> {
        let mut places: BTreeMap<&str, Vec<Range<usize>>> = BTreeMap::new();
        for edit in &defect.edits {
            let text = self.text(&edit.file)?;
            let place = place_of(text, edit)
                .with_context(|| format!("{}: the text to replace in {}", defect.name, edit.file))?;
            let bodies = switch::bodies(text).with_context(|| edit.file.clone())?;
            if !bodies.iter().any(|body| switch::is_within(body, &place)) {
                bail!(
                    "{}: an edit of {} is not inside the body of a function, or the function is `const` or returns `impl Trait`",
                    defect.name,
                    edit.file
                );
            }
            let others = places.entry(&edit.file).or_default();
            if others.iter().any(|other| place.start <= other.end && other.start <= place.end) {
                bail!("{}: two edits of {} overlap", defect.name, edit.file);
            }
            others.push(place);
        }
        Ok(())
    }

    /// Plants these defects, all of which have passed [`Self::check`]. Edits of different defects may
    /// overlap.
    ///
    /// # Errors
    /// If an edit does not match, or if a file cannot be written.
    pub(crate) fn plant(&mut self, defects: &[&Defect]) -> Result<Lines> {
        let mut planted = BTreeMap::new();
        let mut lines = Lines::default();
        let files: BTreeSet<&str> =
            defects.iter().flat_map(|defect| &defect.edits).map(|edit| &*edit.file).collect();
        for file in &files {
            let text = self.text(file)?;
            let mut changes = Vec::new();
            for (number, defect) in (1..).zip(defects) {
                let edits = defect.edits.iter().filter(|edit| edit.file == *file);
                let edits =
                    edits.map(|edit| Ok((place_of(text, edit)?, &*edit.new))).collect::<Result<_>>()?;
                changes.push(Change { number, edits });
            }
            let switched = switch::switch(text, &switch::bodies(text)?, &changes);
            let named =
                switched.bodies.into_iter().map(|(lines, number)| (lines, defects[number - 1].name.clone()));
            lines.0.insert((*file).to_owned(), named.collect());
            planted.insert((*file).to_owned(), switched.text);
        }
        let names: Vec<&str> = defects.iter().map(|defect| &*defect.name).collect();
        for folder in files.iter().filter_map(|file| file.split('/').next()).collect::<BTreeSet<_>>() {
            let root = format!("{folder}/src/lib.rs");
            if !planted.contains_key(&root) {
                planted.insert(root.clone(), self.text(&root)?.to_owned());
            }
            planted.entry(root).or_default().push_str(&switch::module(&names));
        }
        // Write every file that an earlier run may have changed, because the copy may still have other
        // defects.
        for (file, text) in &self.texts {
            write(&self.root.join(file), planted.get(file).unwrap_or(text))?;
        }
        Ok(lines)
    }
}

/// For each file, the line ranges of function bodies that belong to a defect, with the name of the defect.
#[derive(Debug, Default)]
pub(crate) struct Lines(BTreeMap<String, Vec<(Range<usize>, String)>>);

impl Lines {
    /// Returns one compiler error for each defect that has any. Each message of the compiler is one line:
    /// `file:line:column: error: text`.
    pub(crate) fn errors<'a>(&'a self, messages: &'a str) -> BTreeMap<&'a str, &'a str> {
        messages.lines().filter_map(|message| Some((self.defect_of(message)?, message))).collect()
    }

    fn defect_of(&self, message: &str) -> Option<&str> {
        let (place, _) = message.split_once(": error")?;
        let mut parts = place.split(':');
        let (file, line) = (parts.next()?, parts.next()?.parse().ok()?);
        let (_, name) = self.0.get(file)?.iter().find(|(lines, _)| lines.contains(&line))?;
        Some(name)
    }
}

fn place_of(text: &str, edit: &Edit) -> Result<Range<usize>> {
    let mut places = text.match_indices(&edit.old);
    let Some((start, _)) = places.next() else { bail!("does not occur: {:?}", edit.old) };
    if places.next().is_some() {
        bail!("occurs more than once: {:?}", edit.old);
    }
    Ok(start..start + edit.old.len())
}

/// Writes a file unless it already has this content, because cargo rebuilds every file that was written.
fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let content = content.as_ref();
    if fs::read(path).ok().as_deref() != Some(content) {
        fs::write(path, content)?;
    }
    Ok(())
}

/// Makes the folder `to` a copy of `from`, without hidden files and build outputs.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_none_or(|name| name.starts_with('.') || LEFT_OUT.contains(&name)) {
            continue;
        }
        let (source, copy) = (entry.path(), to.join(&name));
        if source.is_dir() {
            copy_folder(&source, &copy)?;
        } else {
            write(&copy, &fs::read(&source)?)?;
        }
        names.insert(name);
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !names.contains(&entry.file_name()) {
            let path = entry.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defect::Finder;

    const TEXT: &str = "const ONE: u32 = 1;\nfn f() {\n    one();\n    two();\n    two();\n}\n";

    fn edit(old: &str, new: &str) -> Edit {
        Edit { file: "a/src/lib.rs".into(), old: old.into(), new: new.into() }
    }

    fn defect(name: &str, edits: Vec<Edit>) -> Defect {
        let (name, promise, found_by) = (name.into(), "It holds.".into(), vec![Finder::Simulator]);
        Defect { name, promise, found_by, missed_because: None, edits }
    }

    fn sources(name: &str) -> (PathBuf, Sources) {
        let root = std::env::temp_dir().join(format!("defects-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("from/target")).unwrap();
        fs::create_dir_all(root.join("from/a/src")).unwrap();
        fs::write(root.join("from/a/src/lib.rs"), TEXT).unwrap();
        let sources = Sources::copy(&root.join("from"), &root.join("to")).unwrap();
        (root, sources)
    }

    #[test]
    fn an_edit_must_match_once_and_in_the_body_of_a_function() {
        let (root, mut sources) = sources("once");
        assert!(sources.check(&defect("good", vec![edit("one()", "1")])).is_ok());
        let overlap = vec![edit("one();", "1"), edit("ne()", "")];
        for edits in [vec![edit("two", "2")], vec![edit("three", "3")], vec![edit("u32", "u8")], overlap] {
            let text = format!("{:#}", sources.check(&defect("bad", edits)).unwrap_err());
            assert!(text.contains("bad") && text.contains("a/src/lib.rs"), "{text}");
        }
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn overlapping_defects_are_planted_beside_the_original() {
        let (root, mut sources) = sources("planted");
        let (first, second) =
            (defect("first", vec![edit("one();", "2();")]), defect("second", vec![edit("one", "three")]));
        let lines = sources.plant(&[&first, &second]).unwrap();
        let planted = fs::read_to_string(root.join("to/a/src/lib.rs")).unwrap();
        let parts =
            ["1 => {\n    2();", "2 => {\n    three();", "_ => {\n    one();", "[\"first\", \"second\"]"];
        for part in parts {
            assert!(planted.contains(part), "{part} in {planted}");
        }
        let line = 1 + planted.lines().position(|line| line.contains("three")).unwrap();
        let error = format!("a/src/lib.rs:{line}:5: error[E0425]: no three");
        let messages = format!("{error}\na/src/lib.rs:3:1: warning: two");
        assert_eq!(lines.errors(&messages), [("second", &*error)].into());
        sources.plant(&[&first]).unwrap();
        assert!(!fs::read_to_string(root.join("to/a/src/lib.rs")).unwrap().contains("three"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_copy_follows_its_source_and_leaves_build_outputs_out() {
        let (root, _) = sources("copy");
        assert!(!root.join("to/target").exists());
        fs::rename(root.join("from/a/src/lib.rs"), root.join("from/a/b.rs")).unwrap();
        Sources::copy(&root.join("from"), &root.join("to")).unwrap();
        assert!(!root.join("to/a/src/lib.rs").exists() && root.join("to/a/b.rs").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
