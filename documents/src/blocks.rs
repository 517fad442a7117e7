//! Fenced blocks of documents.

use std::fs;
use std::path::Path;

/// Documents whose blocks are run. A folder stands for every document in it.
pub const DOCUMENTS: [&str; 5] =
    ["README.md", "docs/introduction.md", "docs/concepts.md", "docs/guides", "docs/coming-from"];

/// One fenced block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Path of the document, relative to the root of the repository.
    pub document: String,
    /// Number of the line with the opening fence, from 1.
    pub line: usize,
    /// First word after the fence; empty if there is none.
    pub language: String,
    /// The words after it, which commas separate.
    pub flags: Vec<String>,
    /// Lines between the fences.
    pub text: String,
}

impl Block {
    /// Returns whether the fence has this flag.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Returns the place of the block for messages, such as `docs/concepts.md:12`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.document, self.line)
    }
}

/// Returns the paths of all documents in [`DOCUMENTS`], relative to `root`.
///
/// # Panics
///
/// If a document cannot be read.
pub fn documents(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in DOCUMENTS {
        if name.ends_with(".md") {
            found.push(name.to_owned());
            continue;
        }
        let entries = fs::read_dir(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut names: Vec<_> = entries
            .map(|entry| format!("{name}/{}", entry.expect("an entry").file_name().to_string_lossy()))
            .filter(|name| name.ends_with(".md"))
            .collect();
        names.sort();
        found.extend(names);
    }
    found
}

/// Returns the fenced blocks of a document.
///
/// # Panics
///
/// If the document cannot be read, or its last block does not end.
pub fn blocks(root: &Path, document: &str) -> Vec<Block> {
    let text = fs::read_to_string(root.join(document)).unwrap_or_else(|error| panic!("{document}: {error}"));
    let mut found = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for (index, line) in text.lines().enumerate() {
        let bare = line.trim_start();
        match &mut open {
            None if bare.starts_with("```") => {
                let mut words = bare.trim_start_matches('`').split(',').map(|word| word.trim().to_owned());
                let block = Block {
                    document: document.to_owned(),
                    line: index + 1,
                    language: words.next().unwrap_or_default(),
                    flags: words.collect(),
                    text: String::new(),
                };
                open = Some((line.len() - bare.len(), block));
            }
            None => {}
            Some(_) if bare.trim_end() == "```" => found.extend(open.take().map(|(_, block)| block)),
            Some((indent, block)) => {
                block.text.push_str(line.get(*indent..).unwrap_or_default());
                block.text.push('\n');
            }
        }
    }
    assert!(open.is_none(), "{document}: the last block does not end");
    found
}
