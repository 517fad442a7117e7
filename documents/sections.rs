//! Sections of documents that tests generate from programs.
//!
//! A section stands between two lines: `<!-- begin generated NAME -->` and `<!-- end generated NAME -->`. Tests of other crates include
//! this file.

use std::fs;
use std::path::Path;

/// Compares the sections of a document with the texts that a program generates. With `WAYMAKER_REWRITE_DOCS=1`, writes the texts into
/// the document.
///
/// # Panics
///
/// If a section differs, or if the document lacks it.
pub(crate) fn check(document: &str, sections: &[(&str, String)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document);
    let old = fs::read_to_string(&path).expect("the document");
    let new = sections.iter().fold(old.clone(), |text, (name, section)| with_section(&text, name, section));
    if std::env::var_os("WAYMAKER_REWRITE_DOCS").is_some() {
        fs::write(&path, new).expect("the document is writable");
        return;
    }
    assert!(new == old, "{document} is out of date; run this test again with WAYMAKER_REWRITE_DOCS=1");
}

/// Returns the document with another text between the two lines of a section.
fn with_section(document: &str, name: &str, section: &str) -> String {
    let (begin, end) =
        (format!("<!-- begin generated {name} -->\n"), format!("<!-- end generated {name} -->"));
    let (before, rest) = document.split_once(&begin).unwrap_or_else(|| panic!("there is no {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("there is no {end}"));
    format!("{before}{begin}\n{}\n\n{end}{after}", section.trim_matches('\n'))
}
