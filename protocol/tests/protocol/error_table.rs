//! `docs/reference/errors.md` must explain exactly the error codes that exist.

use waymaker_protocol::ErrorCode;

const DOCUMENT: &str = include_str!("../../../docs/reference/errors.md");

#[test]
fn the_table_of_errors_has_every_code_in_order() {
    let rows: Vec<(&str, u16)> = DOCUMENT
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| [`")?.split('|').map(str::trim);
            let (name, link) = cells.next()?.split_once("`](#")?;
            assert_eq!(link, format!("{name})"), "the link of {name}");
            Some((name, cells.next()?.parse().expect("a number")))
        })
        .collect();
    let codes: Vec<(&str, u16)> = ErrorCode::ALL.iter().map(|code| (code.name(), code.number())).collect();
    assert_eq!(rows, codes);
}

#[test]
fn every_code_has_a_section_that_says_what_to_do() {
    let sections: Vec<&str> = DOCUMENT.split("\n## ").skip(1).collect();
    let names: Vec<&str> = sections.iter().filter_map(|section| section.lines().next()).collect();
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(names, codes);
    for section in sections {
        assert!(section.contains("- **Meaning:** ") && section.contains("- **What to do:** "), "{section}");
    }
}
