//! Gives functions several bodies: the original body, and one body for each defect. An environment variable
//! selects the body at run time, so that one build has many defects.

use anyhow::{Context, Result};
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Environment variable that names the active defect.
pub(crate) const VARIABLE: &str = "PLANTED_DEFECT";

/// Returns the module that is added to each crate with such functions. Its function `chosen` returns the
/// position of the active defect in these names, counted from 1, or 0. The call takes few instructions even
/// in a program that is not optimized.
pub(crate) fn module(names: &[&str]) -> String {
    format!(
        "
/// Selects the active defect of this process.
mod planted {{
    use std::sync::atomic::{{AtomicUsize, Ordering}};

    static CHOSEN: AtomicUsize = AtomicUsize::new(usize::MAX);
    const NAMES: &[&str] = &{names:?};

    pub(crate) fn chosen() -> usize {{
        match CHOSEN.load(Ordering::Relaxed) {{
            usize::MAX => look(),
            chosen => chosen,
        }}
    }}

    #[cold]
    fn look() -> usize {{
        let name = std::env::var({VARIABLE:?}).unwrap_or_default();
        let chosen = NAMES.iter().position(|known| *known == name).map_or(0, |place| place + 1);
        CHOSEN.store(chosen, Ordering::Relaxed);
        chosen
    }}
}}
"
    )
}

/// The changes of one defect in one file.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    /// Position of the defect in the list of all names, counted from 1.
    pub(crate) number: usize,
    /// Places in the file with their new text. They do not overlap.
    pub(crate) edits: Vec<(Range<usize>, &'a str)>,
}

/// A file in which functions have several bodies.
#[derive(Debug)]
pub(crate) struct SwitchedSource {
    pub(crate) text: String,
    /// Lines of each body that belongs to a defect, counted from 1, with the number of the defect, in order.
    pub(crate) bodies: Vec<(Range<usize>, usize)>,
}

/// Returns the bodies of functions that can get alternatives, in the order of the file. Of nested functions
/// only the outer one is returned.
///
/// # Errors
/// If the text is not valid Rust.
pub(crate) fn bodies(text: &str) -> Result<Vec<Range<usize>>> {
    let mut found = Bodies(Vec::new());
    found.visit_file(&syn::parse_file(text).context("cannot be parsed")?);
    Ok(found.0)
}

/// Writes the changed bodies beside the original ones. Every edit must be inside one of `bodies`.
pub(crate) fn switch(text: &str, bodies: &[Range<usize>], changes: &[Change<'_>]) -> SwitchedSource {
    let mut switched = SwitchedSource { text: String::with_capacity(2 * text.len()), bodies: Vec::new() };
    let mut end = 0;
    for body in bodies {
        let changed =
            changes.iter().filter(|change| change.edits.iter().any(|(place, _)| is_within(body, place)));
        let mut changed = changed.peekable();
        if changed.peek().is_none() {
            continue;
        }
        switched.text += &text[end..body.start];
        switched.text += "{\nmatch crate::planted::chosen() {\n";
        for change in changed {
            let first_line = line_count(&switched.text);
            switched.text += &format!("{} => {}\n", change.number, changed_body(text, body, change));
            switched.bodies.push((first_line..line_count(&switched.text), change.number));
        }
        switched.text += &format!("_ => {}\n}}\n}}", &text[body.clone()]);
        end = body.end;
    }
    switched.text += &text[end..];
    switched
}

fn changed_body(text: &str, body: &Range<usize>, change: &Change<'_>) -> String {
    let mut changed = text[body.clone()].to_owned();
    let mut edits: Vec<_> = change.edits.iter().filter(|(place, _)| is_within(body, place)).collect();
    edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    for (place, new) in edits {
        changed.replace_range(place.start - body.start..place.end - body.start, new);
    }
    changed
}

/// Returns whether a place is between the braces of a body.
pub(crate) fn is_within(body: &Range<usize>, place: &Range<usize>) -> bool {
    body.start < place.start && place.end < body.end
}

fn line_count(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count() + 1
}

struct Bodies(Vec<Range<usize>>);

impl Bodies {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        // A `const` function cannot read the environment, and two bodies seldom have the same hidden type.
        let hides_type = matches!(&signature.output, syn::ReturnType::Type(_, kind) if matches!(**kind, syn::Type::ImplTrait(_)));
        if signature.constness.is_none() && !hides_type {
            self.0.push(block.span().byte_range());
        }
    }
}

impl<'ast> Visit<'ast> for Bodies {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "const ONE: u32 = 1;\nfn f() -> u32 {\n    1\n}\nconst fn g() -> u32 { 1 }\nfn h() -> impl Fn() { || {} }\n";

    fn place(text: &str, part: &str) -> Range<usize> {
        let start = text.find(part).unwrap();
        start..start + part.len()
    }

    #[test]
    fn a_function_gets_a_body_for_each_defect_beside_its_own() {
        let bodies = bodies(TEXT).unwrap();
        assert_eq!(bodies, [place(TEXT, "{\n    1\n}")]);
        let edit = place(TEXT, "    1\n");
        let change = |number, new| Change { number, edits: vec![(edit.clone(), new)] };
        let switched = switch(TEXT, &bodies, &[change(7, "    2\n"), change(8, "    3\n")]);
        let expected = "fn f() -> u32 {\nmatch crate::planted::chosen() {\n7 => {\n    2\n}\n8 => {\n    3\n}\n_ => {\n    1\n}\n}\n}\nconst fn";
        assert!(switched.text.contains(expected), "{}", switched.text);
        assert_eq!(switched.bodies, [(4..7, 7), (7..10, 8)]);
    }

    #[test]
    fn only_a_place_between_the_braces_is_within_a_body() {
        let body = place(TEXT, "{\n    1\n}");
        assert!(is_within(&body, &place(TEXT, "    1\n")));
        for part in ["u32 = 1", "f() -> u32 {\n    1", "1\n}"] {
            assert!(!is_within(&body, &place(TEXT, part)), "{part}");
        }
    }
}
