//! Suggestions of known names for unknown ones.

/// Similarity that a suggested name must exceed. clap uses the same bound for flags.
const SIMILARITY_MIN: f64 = 0.7;

/// Returns the most similar known name, if it is similar enough.
pub(super) fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let similar = known.into_iter().map(|name| (strsim::jaro(unknown, name), name));
    let best = similar.max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(similarity, _)| *similarity > SIMILARITY_MIN).map(|(_, name)| name)
}

/// Returns the end of a message that suggests a known name; empty without a similar name.
pub(super) fn suggestion(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}
