//! URL parameters of console requests.

use super::problem::Problem;
use crate::front::conversion::cut;
use axum::extract::FromRequestParts;
use http::Uri;
use http::request::Parts;
use std::collections::BTreeMap;

/// Maximum number of characters of a parameter name in an error message.
const NAME_CHARS_MAX: usize = 50;

/// URL parameters by name. If a name occurs several times, the first value counts.
#[derive(Debug)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    fn of(uri: &Uri) -> Result<Self, Problem> {
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            // The decoder replaces invalid bytes with U+FFFD. Reject such a value, because it could name another key.
            if value.contains(char::REPLACEMENT_CHARACTER) {
                return Err(Problem::bad_input(&cut(name.into_owned(), NAME_CHARS_MAX), "must be UTF-8"));
            }
            parameters.entry(name.into_owned()).or_insert_with(|| value.into_owned());
        }
        Ok(Self(parameters))
    }

    /// Returns the text of a parameter; empty if the URL does not contain it.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns the number in a parameter; `None` if the parameter is missing or empty.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Problem> {
        let text = self.text(name);
        let number = (!text.is_empty()).then(|| text.parse());
        number.transpose().map_err(|_| Problem::bad_input(name, "must be a number"))
    }

    /// Returns the cursor of a page; 0 for the first page.
    pub(super) fn cursor(&self) -> Result<u64, Problem> {
        self.number("cursor").map(Option::unwrap_or_default)
    }
}

impl<S: Sync> FromRequestParts<S> for Parameters {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(&parts.uri)
    }
}
