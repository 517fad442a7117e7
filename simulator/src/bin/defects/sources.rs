//! A copy of the workspace in which defects are planted.

use super::defect::{Defect, Edit};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Folders that no build needs.
const LEFT_OUT: [&str; 2] = ["target", "node_modules"];

/// A copy of the sources of the workspace.
#[derive(Debug)]
pub(crate) struct Sources {
    root: PathBuf,
    /// Text of each file that a defect may change, without defects.
    texts: BTreeMap<String, String>,
}

impl Sources {
    /// Makes `root` a copy of `workspace`. Leaves equal files alone, so that cargo does not build them again.
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

    /// Finds the places of the edits of a defect.
    ///
    /// # Errors
    /// If an edit does not match exactly once, or two edits of the defect overlap. The error names the defect and the file.
    pub(crate) fn places(&mut self, defect: &Defect) -> Result<Places> {
        let mut places = Places::default();
        for edit in &defect.edits {
            let place = place_of(self.text(&edit.file)?, edit)
                .with_context(|| format!("{}: the text to replace in {}", defect.name, edit.file))?;
            if !places.add(&edit.file, place) {
                bail!("{}: two edits of {} overlap", defect.name, edit.file);
            }
        }
        Ok(places)
    }

    /// Plants these defects, whose edits must not overlap.
    ///
    /// # Errors
    /// If an edit does not match, or a file cannot be written.
    pub(crate) fn plant(&mut self, defects: &[&Defect]) -> Result<()> {
        let mut edits: BTreeMap<&str, Vec<(Range<usize>, &str)>> = BTreeMap::new();
        for edit in defects.iter().flat_map(|defect| &defect.edits) {
            let place = place_of(self.text(&edit.file)?, edit)?;
            edits.entry(&edit.file).or_default().push((place, &edit.new));
        }
        for (file, mut edits) in edits {
            edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
            let mut text = self.text(file)?.to_owned();
            edits.into_iter().for_each(|(place, new)| text.replace_range(place, new));
            fs::write(self.root.join(file), text)?;
        }
        Ok(())
    }

    /// Takes planted defects out again.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn restore(&self, defects: &[&Defect]) -> Result<()> {
        let files: BTreeSet<&str> =
            defects.iter().flat_map(|defect| &defect.edits).map(|edit| &*edit.file).collect();
        for file in files {
            if let Some(text) = self.texts.get(file) {
                fs::write(self.root.join(file), text)?;
            }
        }
        Ok(())
    }
}

/// Places in files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(BTreeMap<String, Vec<Range<usize>>>);

impl Places {
    /// Adds a place. False: it touches another one, and nothing was added.
    fn add(&mut self, file: &str, place: Range<usize>) -> bool {
        if self.touches(file, &place) {
            return false;
        }
        self.0.entry(file.to_owned()).or_default().push(place);
        true
    }

    fn touches(&self, file: &str, place: &Range<usize>) -> bool {
        let others = self.0.get(file).into_iter().flatten();
        others.into_iter().any(|other| place.start <= other.end && other.start <= place.end)
    }

    /// Adds all places of another. False: one of them touches a place here, and nothing was added.
    pub(crate) fn add_all(&mut self, other: &Self) -> bool {
        let mut places =
            other.0.iter().flat_map(|(file, places)| places.iter().map(move |place| (file, place)));
        if places.clone().any(|(file, place)| self.touches(file, place)) {
            return false;
        }
        places.all(|(file, place)| self.add(file, place.clone()))
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
            let bytes = fs::read(&source)?;
            if fs::read(&copy).ok().as_ref() != Some(&bytes) {
                fs::write(&copy, bytes)?;
            }
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

    fn edit(old: &str, new: &str) -> Edit {
        Edit { file: "a.rs".into(), old: old.into(), new: new.into() }
    }

    fn defect(name: &str, edits: Vec<Edit>) -> Defect {
        let (name, promise, found_by) = (name.into(), "It holds.".into(), vec![Finder::Simulator]);
        Defect { name, promise, found_by, missed_because: None, edits }
    }

    fn sources(name: &str, text: &str) -> (PathBuf, Sources) {
        let root = std::env::temp_dir().join(format!("defects-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("from/target")).unwrap();
        fs::write(root.join("from/a.rs"), text).unwrap();
        let sources = Sources::copy(&root.join("from"), &root.join("to")).unwrap();
        (root, sources)
    }

    #[test]
    fn an_edit_must_match_exactly_once() {
        let (root, mut sources) = sources("once", "one two two");
        assert!(sources.places(&defect("good", vec![edit("one", "1")])).is_ok());
        for old in ["two", "three"] {
            let error = sources.places(&defect("bad", vec![edit(old, "2")])).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains("bad") && text.contains("a.rs"), "{text}");
        }
        let overlap = sources.places(&defect("overlap", vec![edit("one", "1"), edit("ne t", "")]));
        assert!(overlap.is_err());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn defects_are_planted_together_and_taken_out_again() {
        let (root, mut sources) = sources("together", "one two three");
        let (first, second) =
            (defect("first", vec![edit("three", "3")]), defect("second", vec![edit("one", "1")]));
        sources.plant(&[&first, &second]).unwrap();
        assert_eq!(fs::read_to_string(root.join("to/a.rs")).unwrap(), "1 two 3");
        sources.restore(&[&first, &second]).unwrap();
        assert_eq!(fs::read_to_string(root.join("to/a.rs")).unwrap(), "one two three");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_copy_follows_its_origin_and_has_no_files_of_builds() {
        let (root, _) = sources("copy", "one");
        assert!(!root.join("to/target").exists());
        fs::rename(root.join("from/a.rs"), root.join("from/b.rs")).unwrap();
        Sources::copy(&root.join("from"), &root.join("to")).unwrap();
        assert!(!root.join("to/a.rs").exists() && root.join("to/b.rs").exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn places_that_touch_do_not_go_together() {
        let (root, mut sources) = sources("touch", "one two three");
        let mut all = sources.places(&defect("first", vec![edit("two", "2")])).unwrap();
        let touching = sources.places(&defect("second", vec![edit(" three", "3")])).unwrap();
        let apart = sources.places(&defect("third", vec![edit("one", "1")])).unwrap();
        assert!(!all.add_all(&touching));
        assert!(all.add_all(&apart));
        fs::remove_dir_all(root).unwrap();
    }
}
