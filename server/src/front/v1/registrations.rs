//! Registrations in the form of `waymaker.v1`.

use super::claims::{cursor, next_cursor, page_size};
use super::connection::Connection;
use crate::front::conversion::{now_ms, text, unix_ms};
use tonic::{Response as Answer, Status};
use waymaker_proto::v1;
use waymaker_protocol as wire;
use waymaker_protocol::{ListEntries, NamespaceKind, Request, Response};

/// Converts one registration, as of the server time `stamp_ms`.
pub(super) fn registration(registration: &wire::Entry<'_>, stamp_ms: u64) -> v1::Entry {
    let now = unix_ms(stamp_ms);
    v1::Entry {
        id: registration.id.to_string(),
        key: text(registration.key),
        owner: text(registration.owner),
        value: registration.value.to_vec(),
        r#type: text(registration.type_name),
        fence: registration.fence,
        remaining_ms: registration.remaining_ms,
        lease_expires_at_ms: now.saturating_add(registration.remaining_ms),
        updated_at_ms: now.saturating_sub_unsigned(registration.age_ms),
    }
}

/// Lists one page of registrations.
pub(super) async fn list(
    connection: &Connection,
    kind: NamespaceKind,
    namespace: &str,
    request: &v1::ListEntriesRequest,
) -> Result<Answer<v1::ListEntriesResponse>, Status> {
    let list = ListEntries {
        cursor: cursor(&request.cursor)?,
        count_max: page_size(request.page_size),
        any_type: request.r#type.is_none(),
        type_name: request.r#type.as_deref().unwrap_or_default().as_bytes(),
    };
    let read = |response: Response<'_>| match response {
        Response::EntriesListed(page) => {
            let stamp_ms = now_ms();
            Some(v1::ListEntriesResponse {
                entries: page.entries.iter().map(|listed| registration(listed, stamp_ms)).collect(),
                next_cursor: next_cursor(page.next),
            })
        }
        _ => None,
    };
    let asked = Request::ListEntries(list);
    connection.ask(kind, namespace, asked, read).await.map(Answer::new)
}
