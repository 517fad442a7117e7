//! Truncation of texts to a number of characters.

/// Truncates a text to `chars_max` characters. Returns whether it was longer.
pub(crate) fn truncate(text: &mut String, chars_max: usize) -> bool {
    let end = text.char_indices().nth(chars_max).map(|(end, _)| end);
    if let Some(end) = end {
        text.truncate(end);
    }
    end.is_some()
}
