//! Sets of paths, each granted as a whole.

use crate::harness::{Client, Server, each_size, hello_of, wait_until};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use waymaker_protocol::limits::WAIT_FOREVER_MS;
use waymaker_protocol::{
    AcquireOptions, AcquireSet, AcquireTerms, Cancel, ErrorCode, ErrorDetail, Event, Extend, Granted, Hello,
    Inspect, Items, List, LockId, LockState, NamespaceKind, PathItem, PathKey, Release, Request, Response,
    SessionRequest, Status, TreeStatistics, TreeStatisticsAnswer,
};

fn tree_client(server: &Server, owner: &str) -> Client<TcpStream> {
    server.client_of(NamespaceKind::Tree, owner)
}

/// The path key of a path such as `a/b`; the empty one is the whole namespace.
fn path(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let segments = text.split('/').filter(|_| !text.is_empty());
    PathKey::append(segments, &mut bytes).expect("a path");
    bytes
}

/// Asks for a set, in which a path that begins with `+` is to be written.
fn send_set(client: &mut Client<TcpStream>, set: &[&str], acquire: &AcquireSet<'_>) -> u32 {
    let paths: Vec<_> = set.iter().map(|text| path(text.trim_start_matches('+'))).collect();
    let items = set.iter().zip(&paths).map(|(text, path)| PathItem {
        write: text.starts_with('+'),
        path: PathKey::new(path).expect("a path key"),
    });
    let mut buffer = Vec::new();
    let items = Items::new(items, &mut buffer).expect("a list of paths");
    client.send(Request::AcquireSet(AcquireSet { items, ..*acquire }))
}

fn take(client: &mut Client<TcpStream>, set: &[&str]) -> Granted {
    send_set(client, set, &AcquireSet::default());
    client.receive().granted()
}

fn queue_for(client: &mut Client<TcpStream>, set: &[&str], wait_ms: u32) -> (u32, LockId) {
    let number = send_set(
        client,
        set,
        &AcquireSet {
            terms: AcquireTerms { wait_ms, notify_queued: true, ..AcquireTerms::default() },
            ..AcquireSet::default()
        },
    );
    let queued = client.receive();
    let Event::Queued { id, .. } = queued.event() else { panic!("{:?}", queued.event()) };
    assert_eq!(queued.number(), number);
    (number, id)
}

/// Whether a set could be had at once; it is given back.
fn is_free(client: &mut Client<TcpStream>, set: &[&str]) -> bool {
    send_set(client, set, &AcquireSet::default());
    let answer = client.receive();
    if let Response::Granted(granted) = answer.response() {
        client.release(granted.id);
        return true;
    }
    assert_eq!(answer.error().code, ErrorCode::Busy);
    false
}

/// How many hold and how many wait for what overlaps a path.
fn around(client: &mut Client<TcpStream>, text: &str) -> (u32, u32) {
    let answer = client.ask(Request::Inspect(Inspect { key: &path(text) }));
    let Response::Inspected(inspected) = answer.response() else { panic!("{:?}", answer.response()) };
    (inspected.holder_count, inspected.waiter_count)
}

#[test]
fn a_written_path_blocks_only_its_ancestors_and_descendants() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| tree_client(&server, name));
        let held = take(&mut a, &["+x/y"]);
        for (set, free) in [
            (["x/y"], false),
            (["+x/y/z"], false),
            (["x/y/z/w"], false),
            (["x"], false),
            ([""], false),
            (["+x/z"], true),
            (["+x/yy"], true),
            (["+y"], true),
            (["+x/"], true),
        ] {
            assert_eq!(is_free(&mut b, &set), free, "{set:?}");
        }
        send_set(&mut b, &["+free", "x"], &AcquireSet::default());
        let answer = b.receive();
        let ErrorDetail::Contention(contention) = answer.error().detail else { panic!() };
        assert_eq!((contention.held, contention.shared, contention.owner), (true, false, &b"a"[..]));
        a.release(held.id);
        let whole = take(&mut b, &["+"]);
        assert!(!is_free(&mut a, &["x/y"]) && !is_free(&mut a, &["elsewhere"]));
        b.release(whole.id);
    }
}

#[test]
fn inspect_shows_the_waiters_that_overlap_a_path() {
    for server in each_size() {
        let [mut holder, mut above, mut below, mut beside] =
            ["h", "above", "below", "beside"].map(|name| tree_client(&server, name));
        take(&mut holder, &["+x/y"]);
        let (_, above) = queue_for(&mut above, &["x"], 60_000);
        let (_, below) = queue_for(&mut below, &["+x/y/z"], WAIT_FOREVER_MS);
        take(&mut holder, &["+q"]);
        queue_for(&mut beside, &["+q"], 60_000);
        let answer = holder.ask(Request::Inspect(Inspect { key: &path("x/y") }));
        let Response::Inspected(inspected) = answer.response() else { panic!("{:?}", answer.response()) };
        assert_eq!((inspected.holder_count, inspected.waiter_count), (1, 2));
        let waiters: Vec<_> =
            inspected.waiters.iter().map(|waiter| (waiter.id, waiter.owner, waiter.shared)).collect();
        assert_eq!(waiters, [(above, &b"above"[..], true), (below, &b"below"[..], false)]);
        let [above, below] = [&inspected.waiters[0], &inspected.waiters[1]];
        assert!(above.ticket < below.ticket && above.age_ms >= below.age_ms);
        assert!((1..=60_000).contains(&above.remaining_ms) && below.remaining_ms == WAIT_FOREVER_MS);
    }
}

#[test]
fn readers_share_a_subtree() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| tree_client(&server, name));
        let one = take(&mut a, &["x", "x/y", "x"]);
        let two = take(&mut b, &["x/y/z", ""]);
        assert_eq!((one.fence, two.fence), (1, 2), "one counter for the namespace");
        assert!(!is_free(&mut a, &["+x/w"]), "{:?}", around(&mut a, "x/w"));
        b.release(two.id);
        assert!(is_free(&mut b, &["+y"]) && !is_free(&mut b, &["+x/w"]));
        a.release(one.id);
        assert!(is_free(&mut b, &["+x/w"]));
    }
}

#[test]
fn a_set_is_one_hold_with_one_lease_and_one_release() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| tree_client(&server, name));
        let set: Vec<_> = (0..200).map(|number| format!("+set/{number}")).collect();
        let set: Vec<_> = set.iter().map(String::as_str).collect();
        let held = take(&mut a, &set);
        assert_eq!(around(&mut b, "set/77"), (1, 0));
        let extend = Extend { id: held.id, lease_ms: 70_000, key: None, own: false };
        let answer = a.ask(Request::Extend(extend));
        assert!(matches!(answer.response(), Response::Extended(extended) if extended.remaining_ms == 70_000));
        let answer = b.ask(Request::Status(Status { id: held.id, key: None }));
        let Response::Status(status) = answer.response() else { panic!() };
        assert_eq!((status.state, status.key), (LockState::Held, &path("set/0")[..]));
        let (number, _) = queue_for(&mut b, &["+set/5", "+set/199", "+other"], WAIT_FOREVER_MS);
        a.release(held.id);
        let answer = b.receive();
        assert_eq!((answer.number(), answer.granted().fence, answer.granted().waited), (number, 2, true));
        assert_eq!(around(&mut a, "other"), (1, 0));

        // The lease ends all of it.
        b.release(answer.granted().id);
        let short = take(&mut a, &set);
        queue_for(&mut b, &["+set"], WAIT_FOREVER_MS);
        let extend = Extend { id: short.id, lease_ms: 30, key: None, own: false };
        assert!(matches!(a.ask(Request::Extend(extend)).response(), Response::Extended(_)));
        assert!(matches!(a.receive().event(), Event::Expired { .. }));
        assert_eq!(b.receive().granted().fence, 4);
    }
}

#[test]
fn overlapping_requests_wait_in_order_and_others_pass() {
    for server in each_size() {
        let [mut a, mut b, mut c, mut d] = ["a", "b", "c", "d"].map(|name| tree_client(&server, name));
        let held = take(&mut a, &["x/1"]);
        queue_for(&mut b, &["+x", "+y"], WAIT_FOREVER_MS);
        let (reader, _) = queue_for(&mut c, &["x/2"], WAIT_FOREVER_MS);
        assert!(!is_free(&mut d, &["y/z"]), "somebody waits to write above it");
        assert!(is_free(&mut d, &["+z"]), "nobody wants this one");
        a.release(held.id);
        let written = b.receive().granted();
        b.release(written.id);
        let answer = c.receive();
        assert_eq!((answer.number(), answer.granted().fence > written.fence), (reader, true));
    }
}

#[test]
fn waits_end_by_timeout_cancel_release_and_connection_loss() {
    for server in each_size() {
        let [mut a, mut b, mut behind] = ["a", "b", "behind"].map(|name| tree_client(&server, name));
        let held = take(&mut a, &["x"]);
        let fence = held.fence;
        queue_for(&mut b, &["+x", "+y"], 30);
        let answer = b.receive();
        assert_eq!(answer.error().code, ErrorCode::Timeout);
        let ErrorDetail::Contention(contention) = answer.error().detail else { panic!() };
        assert_eq!((contention.owner, contention.waiter_count), (&b"a"[..], 0));

        let (acquire_number, _) = queue_for(&mut b, &["+x", "+y"], WAIT_FOREVER_MS);
        let (passed, _) = queue_for(&mut behind, &["y/1"], WAIT_FOREVER_MS);
        b.send(Request::Cancel(Cancel { acquire_number, key: b"" }));
        assert!(matches!(b.receive().response(), Response::Cancelled(cancelled) if cancelled.was_waiting));
        assert_eq!(b.receive().error().code, ErrorCode::Cancelled);
        let answer = behind.receive();
        assert_eq!((answer.number(), answer.granted().fence), (passed, fence + 1));
        behind.release(answer.granted().id);

        let (number, id) = queue_for(&mut b, &["+x"], WAIT_FOREVER_MS);
        let answer = behind.ask(Request::Release(Release { id, key: None, own: false }));
        assert!(matches!(answer.response(), Response::Released(released) if released.was_waiting));
        let cancelled = b.receive();
        assert_eq!((cancelled.number(), cancelled.error().code), (number, ErrorCode::Cancelled));

        queue_for(&mut b, &["+"], WAIT_FOREVER_MS);
        queue_for(&mut behind, &["y"], WAIT_FOREVER_MS);
        drop(b);
        assert_eq!(behind.receive().granted().fence, fence + 2, "no wait that ended spent a fence");
    }
}

#[test]
fn a_hold_without_a_lease_ends_with_its_connection() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| tree_client(&server, name));
        let endless = |release_after_ms| AcquireSet {
            terms: AcquireTerms {
                lease_ms: u32::MAX,
                options: AcquireOptions { release_after_ms, ..AcquireOptions::default() },
                ..AcquireTerms::default()
            },
            ..AcquireSet::default()
        };
        send_set(&mut a, &["+x"], &endless(None));
        assert_eq!(a.receive().refusal(), (ErrorCode::BadInput, "release_after_ms", 0));
        send_set(&mut a, &["+x"], &endless(Some(20)));
        let granted = a.receive().granted();
        assert_eq!(granted.remaining_ms, u32::MAX);
        let extend =
            a.ask(Request::Extend(Extend { id: granted.id, lease_ms: 1_000, key: None, own: false }));
        assert_eq!(extend.refusal(), (ErrorCode::BadInput, "id", 0));
        queue_for(&mut b, &["x/y"], WAIT_FOREVER_MS);
        drop(a);
        assert_eq!(b.receive().granted().fence, 2);
    }
}

#[test]
fn a_request_id_names_one_set_in_any_order() {
    for server in each_size() {
        let [mut a, mut b, mut c] = ["app"; 3].map(|name| tree_client(&server, name));
        let options = AcquireOptions { request_id: Some(b"r"), ..AcquireOptions::default() };
        let again = AcquireSet {
            terms: AcquireTerms {
                wait_ms: WAIT_FOREVER_MS,
                notify_queued: true,
                options,
                ..AcquireTerms::default()
            },
            ..AcquireSet::default()
        };
        let held = take(&mut a, &["x"]);
        let old = send_set(&mut b, &["+x", "y"], &again);
        assert!(matches!(b.receive().event(), Event::Queued { .. }));
        let new = send_set(&mut c, &["y", "+x", "y"], &again);
        let superseded = b.receive();
        assert_eq!((superseded.number(), superseded.error().code), (old, ErrorCode::Cancelled));
        assert!(matches!(c.receive().event(), Event::Queued { .. }));
        send_set(&mut b, &["+x", "+y"], &again);
        assert_eq!(b.receive().refusal(), (ErrorCode::BadInput, "request_id", 0), "other paths");
        a.release(held.id);
        let answer = c.receive();
        assert_eq!(answer.number(), new);
        send_set(&mut b, &["+x", "y"], &again);
        let repeated = b.receive().granted();
        assert!(repeated.repeated);
        assert_eq!(repeated.id, answer.granted().id);
    }
}

#[test]
fn repeats_after_a_resume_take_nothing_and_the_session_end_ends_all() {
    for server in each_size() {
        let hello = |session| Hello { session, ..hello_of(NamespaceKind::Tree, "session") };
        let mut client = server.stranger();
        let welcome = client.open(hello(SessionRequest::New { lease_ms: 0 }));
        let whole = PathItem { write: true, path: PathKey::default() };
        let mut buffer = Vec::new();
        let items = Items::new([whole], &mut buffer).unwrap();
        let acquire = Request::AcquireSet(AcquireSet {
            items,
            terms: AcquireTerms { session_lease: true, ..AcquireTerms::default() },
        });
        client.send_numbered(9, acquire);
        let granted = client.receive().granted();
        let mut again = server.stranger();
        again.open(hello(SessionRequest::Resume { id: welcome.session_id, lane: welcome.lane }));
        again.send_numbered(9, acquire);
        assert_eq!(again.receive().granted(), granted);
        let mut other = tree_client(&server, "o");
        assert!(!is_free(&mut other, &["x"]));
        again.ask(Request::Goodbye(waymaker_protocol::Goodbye));
        assert!(is_free(&mut other, &["x"]));
    }
}

#[test]
fn lists_show_sets_by_any_of_their_paths_within_one_namespace() {
    for server in each_size() {
        let mut a = tree_client(&server, "a");
        let held = take(&mut a, &["+p/1", "q/2"]);
        take(&mut a, &["r"]);
        let mut listed = |prefix: &str| {
            let (mut ids, mut cursor) = (Vec::new(), 0);
            loop {
                let prefix = path(prefix);
                let answer =
                    a.ask(Request::List(List { cursor, count_max: 0, prefix: &prefix, ..List::default() }));
                let Response::Listed(page) = answer.response() else { panic!("{:?}", answer.response()) };
                for lock in &page.locks {
                    assert!(!ids.contains(&lock.id), "each hold stands in one page");
                    ids.push(lock.id);
                }
                cursor = page.next;
                if cursor == 0 {
                    return ids;
                }
            }
        };
        assert_eq!(listed("p"), [held.id]);
        assert_eq!(listed("q/2"), [held.id]);
        assert_eq!(listed("q/3"), []);
        assert_eq!(listed("").len(), 2);
        let mut foreigner = server.stranger();
        foreigner.open(Hello { namespace: b"another tree", ..hello_of(NamespaceKind::Tree, "f") });
        assert_eq!(take(&mut foreigner, &["+"]).fence, 1, "its paths are its own");
        let released = foreigner.ask(Request::Release(Release { id: held.id, key: None, own: false }));
        assert_eq!(released.error().code, ErrorCode::NotFound);
    }
}

/// Any mix of sets comes to an end, and no two hold what overlaps.
#[test]
fn any_mix_of_sets_finishes_without_overlapping_holds() {
    for server in each_size() {
        // How many hold each of nine leaves: three below each of three directories. A writer counts as a thousand.
        let holders: Vec<_> = (0..9).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for number in 0..6_u64 {
                let (server, holders) = (&server, &holders);
                scope.spawn(move || {
                    let mut client = tree_client(server, &number.to_string());
                    let mut random = 0x2545_f491_4f6c_dd1d ^ number << 40;
                    for _ in 0..100 {
                        mixed_set(&mut client, holders, &mut random);
                    }
                });
            }
        });
        let mut client = tree_client(&server, "afterwards");
        wait_until("an empty tree", || around(&mut client, "") == (0, 0));
    }
}

fn mixed_set(client: &mut Client<TcpStream>, holders: &[AtomicU64], random: &mut u64) {
    let mut next = |bound: u64| {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random % bound
    };
    let write = next(2) == 0;
    let (mut set, mut leaves) = (Vec::new(), Vec::new());
    for _ in 0..=next(2) {
        let (directory, leaf) = (next(3), next(4));
        let sign = if write { "+" } else { "" };
        if leaf == 3 {
            set.push(format!("{sign}d{directory}"));
            leaves.extend((0..3).map(|leaf| (directory * 3 + leaf) as usize));
        } else {
            set.push(format!("{sign}d{directory}/{leaf}"));
            leaves.push((directory * 3 + leaf) as usize);
        }
    }
    leaves.sort_unstable();
    leaves.dedup();
    let wait_ms = [0, 2, WAIT_FOREVER_MS, WAIT_FOREVER_MS][next(4) as usize];
    let set: Vec<_> = set.iter().map(String::as_str).collect();
    send_set(
        client,
        &set,
        &AcquireSet { terms: AcquireTerms { wait_ms, ..AcquireTerms::default() }, ..AcquireSet::default() },
    );
    let answer = client.receive();
    if let Response::Error(error) = answer.response() {
        assert!([ErrorCode::Busy, ErrorCode::Timeout].contains(&error.code), "{error:?}");
        return;
    }
    let weight = if write { 1_000 } else { 1 };
    for leaf in &leaves {
        let before = holders[*leaf].fetch_add(weight, Ordering::Relaxed);
        assert!(if write { before == 0 } else { before < 1_000 }, "{before} before at {leaf}");
    }
    for leaf in &leaves {
        holders[*leaf].fetch_sub(weight, Ordering::Relaxed);
    }
    client.release(answer.granted().id);
}

#[test]
fn statistics_count_held_and_waiting_sets_of_the_whole_namespace() {
    for server in each_size() {
        let [mut a, mut b] = ["a", "b"].map(|name| tree_client(&server, name));
        let count = |at: &mut Client<TcpStream>| {
            let answer = at.ask(Request::TreeStatistics(TreeStatistics));
            let Response::TreeStatistics(counted) = answer.response() else {
                panic!("{:?}", answer.response())
            };
            counted
        };
        let unused = TreeStatisticsAnswer { segments: 1, distinct_segments: 1, ..Default::default() };
        assert_eq!(count(&mut a), unused);

        // What another path of its set covers does not count.
        let held = take(&mut a, &["+x/y", "x/y/z", "q"]);
        let (number, id) = queue_for(&mut b, &["+x"], WAIT_FOREVER_MS);
        let counted = TreeStatisticsAnswer {
            sets: 2,
            waiting_sets: 1,
            held_sets: 1,
            waiting_paths: 1,
            held_paths: 2,
            distinct_paths: 3,
            segments: 5,
            distinct_segments: 4,
        };
        assert_eq!(count(&mut a), counted);

        b.send(Request::Release(Release { id, key: None, own: false }));
        let answers = [b.receive(), b.receive()];
        assert!(answers.iter().any(|answer| answer.number() == number));
        a.release(held.id);
        assert_eq!(count(&mut b), TreeStatisticsAnswer { sets: 2, ..unused });
    }
}
