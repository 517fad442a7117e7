//! Links of all documents.

use std::fs;
use std::path::Path;

use waymaker_documents::links::broken;

use crate::root;

/// Documents outside `docs/` whose links are followed too.
const OTHERS: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "compatibility/README.md",
    "monitoring/README.md",
    "packages/helm/waymaker/README.md",
];

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_exist() {
    let mut documents: Vec<String> = OTHERS.map(str::to_owned).into();
    collect(&root().join("docs"), &mut documents);
    let problems = broken(root(), &documents);
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Adds all Markdown files of a folder and of the folders in it.
fn collect(folder: &Path, documents: &mut Vec<String>) {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, documents);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let relative = path.strip_prefix(root()).expect("in the repository");
            documents.push(relative.to_str().expect("a path of text").to_owned());
        }
    }
}
