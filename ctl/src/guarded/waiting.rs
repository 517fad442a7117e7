//! Waiting for a lock, and notes about who holds it.

use std::convert::Infallible;
use std::time::Duration;

use waymaker_client::{Client, Lock, LockId, Result};

use crate::connection::{Connection, no_answer};
use crate::output::{NoteObject, note_object};
use crate::text;

/// Length of a wait after which a note names the holder.
const EXPLAIN_AFTER: Duration = Duration::from_secs(1);
/// Pause between two requests for the holder of a lock that is still awaited.
const EXPLAIN_EVERY: Duration = Duration::from_secs(60);
/// Pause between the response about the holder and the note. The holder may be this client: its grant then arrives within this time.
const GRANT_MAX: Duration = Duration::from_millis(100);
/// Time that the server gets to respond when a wait has ended.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Something to acquire: a lock, permits or the leadership.
pub(crate) trait Wanted {
    /// How a note describes the hold.
    const HELD_BY: &'static str = "held by";

    /// Name of the key or pool.
    fn name(&self) -> &[u8];

    /// Longest wait; `None` without a limit.
    fn wait(&self) -> Option<Duration>;

    /// Acquires it.
    async fn acquire(&self, client: &Client) -> Result<Lock>;

    /// Returns the current holders.
    async fn holders(&self, client: &Client) -> Result<Holders>;
}

/// The holders of a key or pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// Number of holds.
    pub(crate) count: u32,
    /// The first of the holds.
    pub(crate) first: Option<FirstHolder>,
    /// Whether all holds are shared and a writer waits, so that the writer is in the way of a reader.
    pub(crate) writer_in_front: bool,
}

/// The first hold of a key or pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirstHolder {
    pub(crate) id: LockId,
    /// Owner; empty if the client has no name.
    pub(crate) owner: Vec<u8>,
    /// Age of the hold.
    pub(crate) held: Duration,
}

/// Returns the holders of a key, for a reader or a writer that waits for it.
pub(crate) async fn holders_of_key(client: &Client, key: &[u8], read: bool) -> Result<Holders> {
    let status = client.inspect(key).await?;
    let are_readers = status.holder_count > 0 && status.holders.iter().all(|holder| holder.shared);
    let writer_in_front = read && are_readers && status.waiters.iter().any(|waiter| !waiter.shared);
    let first = status.holders.into_iter().next();
    let first = first.map(|holder| FirstHolder { id: holder.id, owner: holder.owner, held: holder.held });
    Ok(Holders { count: status.holder_count, first, writer_in_front })
}

/// Acquires the lock. Fails when the wait ends, even if the server never responds.
pub(crate) async fn acquire_in_time(
    client: &Client,
    connection: &Connection,
    wanted: &impl Wanted,
) -> Result<Lock> {
    let acquire = acquire(client, wanted);
    let Some(wait) = wanted.wait() else { return acquire.await };
    let limit = wait.saturating_add(ANSWER_MAX);
    tokio::time::timeout(limit, acquire).await.unwrap_or_else(|_| Err(no_answer(connection, limit)))
}

async fn acquire<W: Wanted>(client: &Client, wanted: &W) -> Result<Lock> {
    tokio::select! {
        biased;
        lock = wanted.acquire(client) => lock,
        never = explain(client, wanted) => match never {},
    }
}

/// Prints a note about the holder when the wait takes long, and again when the holder has changed.
async fn explain<W: Wanted>(client: &Client, wanted: &W) -> Infallible {
    let mut change = Change::default();
    let mut pause = EXPLAIN_AFTER;
    loop {
        tokio::time::sleep(pause).await;
        pause = EXPLAIN_EVERY;
        if let Ok(holders) = wanted.holders(client).await
            && change.is_new(&holders)
        {
            tokio::time::sleep(GRANT_MAX).await;
            note_object(&waiting_note(wanted.name(), W::HELD_BY, &holders));
        }
    }
}

/// Detects that the first holder has changed since the last note.
#[derive(Default)]
struct Change {
    /// Id of the first hold in the last note. The outer `None` stands for no note, the inner one for no holder.
    told: Option<Option<LockId>>,
}

impl Change {
    fn is_new(&mut self, holders: &Holders) -> bool {
        let id = Some(holders.first.as_ref().map(|first| first.id));
        std::mem::replace(&mut self.told, id) != id
    }
}

fn waiting_note(name: &[u8], held_by: &str, holders: &Holders) -> NoteObject {
    let (key, key_hex) = text::json(name);
    let mut object = NoteObject { key: Some(key), key_hex, ..NoteObject::default() };
    let name = text::printable(name);
    let Some(first) = &holders.first else {
        object.note = format!("waiting for {name}, which is free; its prefix may be frozen");
        return object;
    };
    if holders.writer_in_front {
        object.note = format!("waiting for {name}, held by readers; a writer waits in front");
        return object;
    }
    if !first.owner.is_empty() {
        let (holder, holder_hex) = text::json(&first.owner);
        (object.holder, object.holder_hex) = (Some(holder), holder_hex);
    }
    object.held_ms = Some(text::milliseconds(first.held));
    let (owner, held) = (text::client(&first.owner), text::time(Some(first.held)));
    object.note = format!("waiting for {name}, {held_by} {owner} for {held}");
    match holders.count {
        0 | 1 => {}
        2 => object.note.push_str(" and by 1 other"),
        count => object.note.push_str(&format!(" and by {} others", count - 1)),
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_the_first_holder_and_counts_the_others() {
        let first = FirstHolder {
            id: LockId { place: 1, secret: 2 },
            owner: b"web-3".to_vec(),
            held: Duration::from_secs(12),
        };
        let holders = |count| Holders { count, first: Some(first.clone()), writer_in_front: false };
        let note = |count| waiting_note(b"backup", "held by", &holders(count));
        assert_eq!(note(1).note, "waiting for backup, held by web-3 for 12s");
        assert_eq!(note(3).note, "waiting for backup, held by web-3 for 12s and by 2 others");
        assert_eq!((note(1).holder.as_deref(), note(1).held_ms), (Some("web-3"), Some(12_000)));
        let free = waiting_note(b"backup", "held by", &Holders::default());
        assert_eq!((free.holder, free.key.as_deref()), (None, Some("backup")));
        assert_eq!(free.note, "waiting for backup, which is free; its prefix may be frozen");
    }

    #[test]
    fn a_reader_behind_a_writer_is_told_of_the_writer() {
        let id = LockId { place: 1, secret: 2 };
        let first = FirstHolder { id, owner: b"r1".to_vec(), held: Duration::from_secs(12) };
        let holders = Holders { count: 1, first: Some(first), writer_in_front: true };
        let note = waiting_note(b"rw", "held by", &holders);
        assert_eq!(note.note, "waiting for rw, held by readers; a writer waits in front");
        assert_eq!(note.holder, None);
    }

    #[test]
    fn a_note_is_repeated_only_when_the_holder_has_changed() {
        let held_by = |place| {
            let id = LockId { place, secret: 2 };
            let first = Some(FirstHolder { id, owner: Vec::new(), held: Duration::ZERO });
            Holders { count: 1, first, writer_in_front: false }
        };
        let mut change = Change::default();
        let steps = [held_by(1), held_by(1), held_by(2), Holders::default(), Holders::default(), held_by(2)];
        assert_eq!(steps.map(|holders| change.is_new(&holders)), [true, false, true, true, false, true]);
    }
}
