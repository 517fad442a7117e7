//! Texts of a limited number of characters.

/// Keeps the first characters of a text. Returns whether there were more.
pub(crate) fn truncate(text: &mut String, chars_max: usize) -> bool {
    let end = text.char_indices().nth(chars_max).map(|(end, _)| end);
    if let Some(end) = end {
        text.truncate(end);
    }
    end.is_some()
}
