//! Responses of the gRPC methods `ListAcquiredLocks` and `FetchAll`, whose contracts have no pages: one response
//! contains the whole list. The server reads the items from the shards in pages and encodes each page at once. The list
//! is limited in bytes.
//!
//! A repeated field of a message may be encoded in parts, so a page that is encoded alone is a part of the message. The
//! method sorts the items of each page, and the list stores each page as one sorted run. The runs are merged while the
//! client takes the list. So a list is never sorted at once and exists in memory only once.
//!
//! All lists of a server share one limit. A client that does not read its list cannot block other clients: after
//! [`LIST_KEPT_MS`] its list is dropped if another list needs the room.

use super::rejection::reject;
use super::trailers::trailers;
use crate::driver::Local;
use crate::driver::front_turn::poll_turn;
use crate::limits::{GRPC_FRAME_LEN_MAX, LIST_KEPT_MS, LIST_LEN_MAX, LISTS_LEN_MAX};
use crate::memory;
use http_body::Frame;
use hyper::body::Bytes;
use prost::encoding::{decode_varint, encoded_len_varint};
use std::cmp::{Ordering, Reverse};
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tonic::Status;

/// Length in bytes at which a frame of a list is long enough to be sent: it gets no further item.
const FRAME_LEN: usize = GRPC_FRAME_LEN_MAX as usize;

/// All lists without pages that a server is making or sending.
#[derive(Debug)]
pub(super) struct Lists {
    /// Total length in bytes of all pages of which a client has not yet taken the last item.
    len: AtomicUsize,
    /// Maximum of `len`.
    len_max: usize,
    unsent: Mutex<UnsentLists>,
}

/// Lists that are not sent completely.
#[derive(Debug, Default)]
struct UnsentLists {
    /// Lists by number, which is the order in which they began.
    lists: BTreeMap<u64, (Instant, Weak<List>)>,
    next_number: u64,
}

/// One list that is being made or sent.
#[derive(Debug)]
pub(super) struct List {
    lists: Arc<Lists>,
    number: u64,
    parts: Mutex<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    /// Encoded fields of the message other than the list.
    fields: Vec<u8>,
    /// Encoded pages with items that the client has not taken. The page with the smallest next item is first.
    runs: BinaryHeap<Reverse<Run>>,
    /// Length of the message with all pages so far.
    message_len: usize,
    is_dropped: bool,
}

/// One page of a list, as read from the shards: its sorted items. Each item is encoded as an element of the repeated
/// field of the response, with the tag of the field.
#[derive(Debug)]
struct Run {
    /// Offset of the next item.
    place: usize,
    bytes: Vec<u8>,
}

impl Run {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.place..]
    }

    /// Returns the sort key of the next item: its fields with the numbers 1 and 2, such as key and id.
    fn order(&self) -> [&[u8]; 2] {
        let (_, mut item) = field(self.rest()).unwrap_or_default();
        let mut next = |number| match field(item) {
            Some((actual, value)) if actual == number => {
                item = &item[encoded_len(value)..];
                value
            }
            // If a field is missing, its value is the default, which is empty.
            _ => &[],
        };
        [next(1), next(2)]
    }

    /// Takes the next item.
    fn take(&mut self) -> &[u8] {
        let (_, item) = field(self.rest()).unwrap_or_default();
        let begin = self.place;
        self.place += encoded_len(item);
        &self.bytes[begin..self.place]
    }
}

/// Returns the number and the value of the text or message field at the start of these bytes. The number must be below
/// 16.
fn field(bytes: &[u8]) -> Option<(u8, &[u8])> {
    const LENGTH_DELIMITED: u8 = 2;
    let (tag, mut rest) = bytes.split_first().filter(|(tag, _)| **tag & 7 == LENGTH_DELIMITED)?;
    let len = decode_varint(&mut rest).ok()?;
    Some((tag >> 3, rest.get(..len as usize)?))
}

/// Returns the encoded length of a text or message field with this value. The number of the field must be below 16.
fn encoded_len(value: &[u8]) -> usize {
    1 + encoded_len_varint(value.len() as u64) + value.len()
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Run {}

impl PartialOrd for Run {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Run {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl Lists {
    /// Returns an empty collection whose lists have at most `len_max` bytes together.
    pub(super) fn new(len_max: usize) -> Self {
        Self { len: AtomicUsize::new(0), len_max, unsent: Mutex::default() }
    }

    /// Begins a list. `fields` are the encoded fields of the message other than the list.
    pub(super) fn begin(self: &Arc<Self>, fields: Vec<u8>) -> Arc<List> {
        self.begin_at(fields, Instant::now())
    }

    fn begin_at(self: &Arc<Self>, fields: Vec<u8>, now: Instant) -> Arc<List> {
        let parts = Parts { message_len: fields.len(), fields, ..Parts::default() };
        let mut unsent = lock(&self.unsent);
        let number = unsent.next_number;
        unsent.next_number += 1;
        let list = Arc::new(List { lists: Arc::clone(self), number, parts: Mutex::new(parts) });
        unsent.lists.insert(number, (now, Arc::downgrade(&list)));
        list
    }

    fn take_room(&self, len: usize) -> bool {
        let take = |taken: usize| Some(taken + len).filter(|taken| *taken <= self.len_max);
        self.len.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    fn give_back(&self, len: usize) {
        self.len.fetch_sub(len, Relaxed);
    }

    /// Reserves `len` bytes and returns true, or returns false if there is no room. To make room, drops the oldest
    /// lists, but none that began within the last [`LIST_KEPT_MS`].
    fn make_room(&self, len: usize, now: Instant) -> bool {
        loop {
            if self.take_room(len) {
                return true;
            }
            let oldest = {
                let mut unsent = lock(&self.unsent);
                let is_old =
                    |since: &Instant| now.duration_since(*since) >= Duration::from_millis(LIST_KEPT_MS);
                match unsent.lists.first_entry().filter(|first| is_old(&first.get().0)) {
                    Some(first) => first.remove().1,
                    None => return false,
                }
            };
            if let Some(list) = oldest.upgrade() {
                list.give_up();
            }
        }
    }
}

impl List {
    /// Adds a page of encoded, sorted items.
    ///
    /// # Errors
    /// Fails if the list or all lists together would be too long, or if the list was dropped to make room for another.
    /// Fails if the server's memory limit is reached, unless the list has no unsent page.
    pub(super) fn push(&self, page: Vec<u8>) -> Result<(), Status> {
        self.push_at(page, Local::with(|local| local.node.memory.full()), Instant::now())
    }

    /// Adds a page. `full_memory` is the memory limit if it is reached.
    fn push_at(&self, page: Vec<u8>, full_memory: Option<u64>, now: Instant) -> Result<(), Status> {
        if page.is_empty() {
            return Ok(());
        }
        let (message_len, is_first) = {
            let parts = lock(&self.parts);
            (parts.message_len + page.len(), parts.runs.is_empty())
        };
        if message_len > LIST_LEN_MAX {
            let message = format!(
                "the list is longer than {LIST_LEN_MAX} bytes, the maximum; use waymaker.v1, which lists in pages"
            );
            return Err(reject("bytes of a list", message));
        }
        // The memory limit does not apply to the first page: a short list helps the operator to find the cause of the
        // memory use.
        if let Some(limit) = full_memory.filter(|_| !is_first) {
            return Err(reject("bytes of memory", memory::refusal(limit)));
        }
        if !self.lists.make_room(page.len(), now) {
            let message = format!(
                "all lists that the server is sending would exceed {} bytes, the maximum; try again later, or use waymaker.v1, which lists in pages",
                self.lists.len_max
            );
            return Err(reject("bytes of all lists", message));
        }
        let mut parts = lock(&self.parts);
        if parts.is_dropped {
            self.lists.give_back(page.len());
            return Err(given_up());
        }
        parts.message_len = message_len;
        parts.runs.push(Reverse(Run { place: 0, bytes: page }));
        Ok(())
    }

    fn give_up(&self) {
        let mut parts = lock(&self.parts);
        parts.is_dropped = true;
        let runs = std::mem::take(&mut parts.runs);
        self.lists.give_back(runs.iter().map(|Reverse(run)| run.bytes.len()).sum());
    }
}

impl Drop for List {
    fn drop(&mut self) {
        lock(&self.lists.unsent).lists.remove(&self.number);
        self.give_up();
    }
}

fn given_up() -> Status {
    Status::resource_exhausted(format!(
        "the client did not read the list within {LIST_KEPT_MS} ms, and the server needed the memory for other lists; use waymaker.v1, which lists in pages"
    ))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Body of a response with a list.
#[derive(Debug)]
pub(super) struct ListBody {
    list: Arc<List>,
    is_begun: bool,
    has_ended: bool,
}

impl ListBody {
    /// Returns the body for a complete list.
    pub(super) fn new(list: Arc<List>) -> Self {
        Self { list, is_begun: false, has_ended: false }
    }

    fn next(&mut self) -> Option<Frame<Bytes>> {
        if self.has_ended {
            return None;
        }
        let mut parts = lock(&self.list.parts);
        if parts.is_dropped {
            self.has_ended = true;
            return Some(trailers(&given_up()));
        }
        let mut bytes = Vec::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            bytes.push(0);
            // `message_len` is at most [`LIST_LEN_MAX`], so the cast loses nothing.
            bytes.extend((parts.message_len as u32).to_be_bytes());
            bytes.append(&mut parts.fields);
        }
        while bytes.len() < FRAME_LEN
            && let Some(mut first) = parts.runs.peek_mut()
        {
            bytes.extend_from_slice(first.0.take());
            if first.0.rest().is_empty() {
                let Reverse(run) = PeekMut::pop(first);
                self.list.lists.give_back(run.bytes.len());
            }
        }
        if bytes.is_empty() {
            self.has_ended = true;
            return Some(trailers(&Status::ok("")));
        }
        Some(Frame::data(bytes.into()))
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // Merging takes time, and the library polls for many frames at once. So let the turn of the connection end
        // between frames.
        ready!(poll_turn(context));
        Poll::Ready(self.get_mut().next().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

const _: () = assert!(LIST_LEN_MAX <= u32::MAX as usize && LIST_LEN_MAX <= LISTS_LEN_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use waymaker_proto::waymaker::{AcquiredLock, ListAcquiredLocksResponse};

    /// Length of the prefix of a gRPC message: the compression flag and the message length.
    const HEAD_LEN: usize = 5;
    const PAGE_LEN: usize = LIST_LEN_MAX / 4;

    /// Returns a page with one item.
    fn page() -> Vec<u8> {
        let mut page = vec![2 << 3 | 2];
        prost::encoding::encode_varint((PAGE_LEN - 5) as u64, &mut page);
        page.resize(PAGE_LEN, 7);
        page
    }

    fn begin(lists: &Arc<Lists>, now: Instant) -> Arc<List> {
        lists.begin_at(Vec::new(), now)
    }

    /// Returns a list of the maximum length.
    fn full(lists: &Arc<Lists>, now: Instant) -> Arc<List> {
        let list = begin(lists, now);
        for _ in 0..4 {
            list.push_at(page(), None, now).expect("there is room");
        }
        list
    }

    /// Returns the bytes of the message and the status.
    fn sent(list: Arc<List>) -> (Vec<u8>, String) {
        let (mut body, mut bytes) = (ListBody::new(list), Vec::new());
        while let Some(frame) = body.next() {
            match frame.into_data() {
                Ok(data) => bytes.extend_from_slice(&data),
                Err(frame) => {
                    let trailers = frame.into_trailers().expect("trailers");
                    return (bytes, trailers["grpc-status"].to_str().expect("text").to_owned());
                }
            }
        }
        panic!("a body ends with trailers");
    }

    #[test]
    fn a_list_is_one_message_with_all_items_in_their_order() {
        let mut random = StdRng::seed_from_u64(1);
        for item_count in [0, 1, 3, 1_000] {
            let (lists, now) = (Arc::new(Lists::new(LISTS_LEN_MAX)), Instant::now());
            let item = |_| AcquiredLock {
                key: "k".repeat(random.random_range(0..200)),
                lock_id: random.random_range(0..1_000).to_string(),
                fence_token: random.random_range(0..3),
                requester_info: "i".repeat(random.random_range(0..300)),
                ..AcquiredLock::default()
            };
            let mut all: Vec<_> = (0..item_count).map(item).collect();
            let fields = ListAcquiredLocksResponse { success: true, locks: Vec::new() }.encode_to_vec();
            let list = lists.begin_at(fields, now);
            let order = |a: &AcquiredLock, b: &AcquiredLock| (&a.key, &a.lock_id).cmp(&(&b.key, &b.lock_id));
            for page in all.chunks_mut(7) {
                page.sort_by(order);
                let page = ListAcquiredLocksResponse { success: false, locks: page.to_vec() };
                list.push_at(page.encode_to_vec(), None, now).expect("there is room");
            }
            let (bytes, status) = sent(list);
            assert_eq!(status, "0");
            let len = u32::from_be_bytes(bytes[1..HEAD_LEN].try_into().expect("four bytes"));
            assert_eq!((bytes[0], len as usize), (0, bytes.len() - HEAD_LEN));
            let message = ListAcquiredLocksResponse::decode(&bytes[HEAD_LEN..]).expect("a message");
            assert!(message.success && message.locks.is_sorted_by(|a, b| order(a, b).is_le()));
            let mut locks = message.locks;
            let text = |lock: &AcquiredLock| format!("{lock:?}");
            locks.sort_by_key(text);
            all.sort_by_key(text);
            assert_eq!(locks, all);
            assert_eq!(lists.len.load(Relaxed), 0);
        }
    }

    #[test]
    fn a_list_beyond_its_limit_is_refused_and_frees_its_room() {
        let (lists, now) = (Arc::new(Lists::new(LISTS_LEN_MAX)), Instant::now());
        let list = full(&lists, now);
        let refusal = list.push_at(vec![0], None, now).expect_err("it is too long");
        assert!(refusal.message().contains(&LIST_LEN_MAX.to_string()), "{refusal}");
        drop(list);
        assert_eq!(lists.len.load(Relaxed), 0);
    }

    #[test]
    fn all_lists_share_a_limit_and_a_list_left_unread_is_dropped() {
        let (lists, now) = (Arc::new(Lists::new(LISTS_LEN_MAX)), Instant::now());
        let [unread, other] = [(); 2].map(|()| full(&lists, now));
        let late = now + Duration::from_millis(LIST_KEPT_MS - 1);
        let refusal = begin(&lists, late).push_at(page(), None, late).expect_err("there is no room");
        assert!(refusal.message().contains(&LISTS_LEN_MAX.to_string()), "{refusal}");
        let later = now + Duration::from_millis(LIST_KEPT_MS);
        let list = begin(&lists, later);
        list.push_at(page(), None, later).expect("the oldest made room");
        assert_eq!(lists.len.load(Relaxed), LIST_LEN_MAX + PAGE_LEN);
        assert_eq!(sent(unread), (Vec::new(), "8".to_owned()));
        assert_eq!(sent(other).0.len(), HEAD_LEN + LIST_LEN_MAX, "the other one is whole");
    }

    #[test]
    fn a_client_that_reads_pages_frees_their_room() {
        let (lists, now) = (Arc::new(Lists::new(LISTS_LEN_MAX)), Instant::now());
        let [taken, _other] = [(); 2].map(|()| full(&lists, now));
        let mut body = ListBody::new(taken);
        assert!(begin(&lists, now).push_at(page(), None, now).is_err());
        assert!(body.next().is_some());
        begin(&lists, now).push_at(page(), None, now).expect("a page was taken");
    }

    /// An unread list may stay in memory until another list needs its room. Lists that begin and end after it leave no
    /// entry in `unsent`, the table of lists that are not sent completely.
    #[test]
    fn an_unread_list_keeps_no_memory_of_later_lists() {
        let (lists, now) = (Arc::new(Lists::new(LISTS_LEN_MAX)), Instant::now());
        let _unread = begin(&lists, now);
        for _ in 0..100 {
            drop(begin(&lists, now));
        }
        assert_eq!(lock(&lists.unsent).lists.len(), 1);
    }

    #[test]
    fn a_server_at_its_memory_limit_serves_only_short_lists() {
        let (lists, now) = (Arc::new(Lists::new(LISTS_LEN_MAX)), Instant::now());
        let list = begin(&lists, now);
        list.push_at(vec![1], Some(1_000), now).expect("a short list");
        let refusal = list.push_at(vec![1], Some(1_000), now).expect_err("it goes on");
        assert!(refusal.message().contains("memory limit of 1000 bytes"), "{refusal}");
    }
}
