//! Messages of a connection, as JSON.

use serde::{Deserialize, Serialize};

use super::resource::Resource;

/// Request of a client.
#[derive(Debug, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub(super) enum Request<'a> {
    Lock { resources: &'a [Resource] },
    Release,
}

/// Response of the server about a lock.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) action: Action,
    pub(super) state: State,
}

/// Request that a response belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    /// Also the action of a later grant.
    Lock,
    Release,
}

/// State of the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ready,
    Enqueued,
    Acquired,
}

impl Request<'_> {
    pub(super) fn encode(&self) -> String {
        serde_json::to_string(self).expect("strings and lists of them are JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_encoded_as_by_the_original_clients() {
        let resources = [Resource::write(["a", ""]), Resource::read([""; 0])];
        assert_eq!(
            Request::Lock { resources: &resources }.encode(),
            r#"{"action":"lock","resources":[{"type":"write","path":["a",""]},{"type":"read","path":[]}]}"#
        );
        assert_eq!(Request::Release.encode(), r#"{"action":"release"}"#);
    }
}
