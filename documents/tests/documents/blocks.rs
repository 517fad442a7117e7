//! Rules that each block keeps.

use std::fs;

use waymaker_documents::{Block, blocks, documents};

use crate::root;

/// Languages that the tests know, each with the flags that it may have.
const LANGUAGES: [(&str, &[&str]); 10] = [
    ("sh", &["etcd", "redis", "postgresql"]),
    ("console", &[]),
    ("crontab", &[]),
    ("ini", &[]),
    ("rust", &[]),
    ("sql", &["postgresql"]),
    ("python", &[]),
    ("go", &[]),
    ("js", &[]),
    ("text", &[]),
];

fn all_blocks() -> impl Iterator<Item = Block> {
    documents(root()).into_iter().flat_map(|document| blocks(root(), &document))
}

#[test]
fn every_block_says_how_it_is_tested() {
    for block in all_blocks().filter(|block| !block.has("other")) {
        let place = block.place();
        let known = LANGUAGES.iter().find(|(language, _)| *language == block.language);
        let Some((_, flags)) = known else {
            panic!("{place}: the tests know no block {:?}; see documents/src/lib.rs", block.language);
        };
        for flag in &block.flags {
            assert!(flags.contains(&flag.as_str()), "{place}: {} has no flag {flag:?}", block.language);
        }
    }
}

/// `compatibility/` has the interpreters and the libraries for them.
#[test]
fn programs_in_other_languages_are_run_by_the_suite_foreign() {
    let tested = fs::read_to_string(root().join("compatibility/python/test_documents.py")).expect("a test");
    let examples = fs::read_dir(root().join("compatibility/examples")).expect("a folder");
    let examples: Vec<_> =
        examples.map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a text")).collect();
    for block in all_blocks() {
        if !["python", "go", "js"].contains(&block.language.as_str()) || block.has("other") {
            continue;
        }
        let is_run = examples.contains(&block.text) || tested.contains(&format!("\"{}\"", block.document));
        assert!(is_run, "{}: neither compatibility/examples/ nor test_documents.py has it", block.place());
    }
}
