//! Rights of requests that wait for a shard, and of connections whose rights change.

use super::*;
use crate::access::{Evidence, Policy};
use crate::audit::Act;
use crate::limits::REAUTHORIZED_PER_STEP_MAX;
use crate::worker::{Client, Identification};
use waymaker_access::{Identity, Proof, Rules};
use waymaker_engine::{Access, Rights};
use waymaker_protocol::message::release::RELEASED;
use waymaker_protocol::{LockId, NamespaceKind, PathKey, Release};

const KEY: &[u8] = b"a/key";

impl Rig {
    /// Returns two workers, and gives identities these rights for all keys.
    fn with_rules(rights: &[(&str, &str)]) -> Self {
        let rig = Self::new(2);
        rig.set_rules(rights);
        rig
    }

    /// Gives rights to identities. The workers apply them to open connections later.
    fn set_rules(&self, rights: &[(&str, &str)]) {
        let rule =
            |(name, right): &(&str, &str)| format!("[[rule]]\nidentity = {name:?}\nallow = [{right:?}]\n");
        self.set_access(&rights.iter().map(rule).collect::<String>());
    }

    /// Replaces the access file. The workers apply it to open connections later.
    fn set_access(&self, text: &str) {
        let rules = Rules::parse(text).expect("valid rules");
        self.node.access.replace(Policy::of_rules(rules));
    }

    /// Gives rights to identities, and applies them to open connections.
    fn change_rules(&mut self, rights: &[(&str, &str)]) {
        self.set_rules(rights);
        self.apply_rules();
    }

    /// Applies the access file to open connections.
    fn apply_rules(&mut self) {
        self.workers[0].housekeep(self.now);
        while self.workers[0].handle_mail(self.now) {}
    }

    /// Opens a connection of this client that has not sent HELLO.
    fn open_as(&mut self, client: Client) -> ConnectionKey {
        let key = self.workers[0].handle_open(b"peer", self.now);
        self.workers[0].note_client(key, client);
        key
    }

    /// Sends a HELLO on a connection, and returns the answer.
    fn hello(&mut self, key: ConnectionKey) -> Heard {
        let (version_min, version_max, worker) = (VERSION, VERSION, ANY_WORKER);
        let hello = Hello { version_min, version_max, worker, namespace: b"flat", ..Hello::default() };
        let answers = self.ask(key, 1, &Request::Hello(hello));
        let [(1, answer)] = &answers[..] else { panic!("{answers:?}") };
        answer.clone()
    }

    /// Opens a connection with a certificate that contains this identity.
    fn connect_as(&mut self, name: &str) -> ConnectionKey {
        let key = self.open_as(certified(name));
        let answer = self.hello(key);
        assert!(matches!(answer, Heard::Welcome(_)), "{answer:?}");
        key
    }

    /// Acquires a key and returns the id of the hold.
    fn hold(&mut self, key: ConnectionKey, number: u32, name: &[u8]) -> LockId {
        let answers = self.ask(key, number, &Request::Acquire(Acquire { key: name, ..Acquire::default() }));
        let [(_, Heard::Granted(granted))] = answers[..] else { panic!("{answers:?}") };
        granted.id
    }

    /// Returns whether a connection was ended because of its rights.
    fn is_ended(&mut self, key: ConnectionKey) -> bool {
        let output =
            self.take_output(key).expect("the output of a connection that is open or says why it ends");
        let ended = heard(&output) == [(0, Heard::Refused(ErrorCode::Unauthorized))];
        assert!(ended || output.is_empty(), "{output:?}");
        assert_eq!(self.take_output(key).is_none(), ended);
        ended
    }
}

/// Returns a client with a certificate that contains this identity.
fn certified(name: &str) -> Client {
    let evidence = Evidence { certificate_names: vec![name.to_owned()], ..Evidence::default() };
    Client {
        identification: Identification::Unidentified,
        evidence: Some(Arc::new(evidence)),
        ..Client::default()
    }
}

fn release(id: LockId) -> Request<'static> {
    Request::Release(Release { id, key: None, own: false })
}

#[test]
fn a_request_that_another_worker_serves_has_the_rights_of_its_client() {
    let mut rig = Rig::with_rules(&[("alice", "acquire"), ("bob", "acquire"), ("carol", "release_others")]);
    let alice = rig.connect_as("alice");
    let id = rig.hold(alice, 2, KEY);
    let clients = ["bob", "carol", "alice"].map(|name| rig.connect_as(name));
    let turn = rig.hold_turn(KEY);
    for client in clients {
        assert_eq!(rig.ask(client, 2, &release(id)), []);
    }
    rig.give_back(turn);
    let answers = clients.map(|client| rig.hear(client));
    let not_found = (2, Heard::Refused(ErrorCode::NotFound));
    assert_eq!(answers, [[not_found.clone()], [(2, Heard::Other(RELEASED))], [not_found]]);
    // The other worker knows the identity of the client, although the connection belongs to the first worker.
    let event = rig.workers[1].poll_audit().expect("a line about the release by Carol");
    assert_eq!((event.act, event.caller.identity.as_deref()), (Act::ReleaseOther, Some("carol")));
}

#[test]
fn a_request_that_waits_for_a_shard_has_the_rights_of_the_time_at_which_it_came() {
    let mut rig = Rig::with_rules(&[("alice", "acquire"), ("bob", "acquire")]);
    let [alice, bob] = ["alice", "bob"].map(|name| rig.connect_as(name));
    let id = rig.hold(alice, 2, KEY);
    let turn = rig.hold_turn(KEY);
    assert_eq!(rig.ask(bob, 2, &release(id)), []);
    rig.change_rules(&[("alice", "acquire"), ("bob", "acquire"), ("bob", "release_others")]);
    assert_eq!(rig.ask(bob, 3, &release(id)), []);
    rig.give_back(turn);
    let answers = [(2, Heard::Refused(ErrorCode::NotFound)), (3, Heard::Other(RELEASED))];
    assert_eq!(rig.hear(bob), answers);
}

#[test]
fn a_gained_right_is_known_to_a_shard_that_knew_the_connection_without_it() {
    let mut rig = Rig::with_rules(&[("alice", "acquire"), ("bob", "acquire")]);
    let [alice, bob] = ["alice", "bob"].map(|name| rig.connect_as(name));
    let id = rig.hold(alice, 2, KEY);
    assert_eq!(rig.ask(bob, 2, &release(id)), [(2, Heard::Refused(ErrorCode::NotFound))]);
    rig.change_rules(&[("alice", "acquire"), ("bob", "acquire"), ("bob", "release_others")]);
    assert_eq!(rig.ask(bob, 3, &release(id)), [(3, Heard::Other(RELEASED))]);
}

/// A front end identifies its client before it opens a connection to a namespace. The identity may expire between these
/// two steps, so `HELLO` checks it again.
#[test]
fn a_client_whose_identity_has_expired_since_it_was_identified_is_refused() {
    let mut rig = Rig::with_rules(&[("guest", "acquire")]);
    for (proof, is_current) in [(Proof::User(1), true), (Proof::Anonymous, false)] {
        let identity = Identity { name: "guest".into(), groups: Vec::new(), proof };
        let identification = Identification::Identified(Some(Arc::new(identity)));
        let key = rig.open_as(Client { identification, ..Client::default() });
        let answer = rig.hello(key);
        assert_eq!(answer != Heard::Refused(ErrorCode::Unauthorized), is_current, "{answer:?}");
    }
}

#[test]
fn new_rules_end_no_connection_that_has_not_said_hello() {
    let mut rig = Rig::with_rules(&[("alice", "acquire")]);
    let key = rig.open_as(certified("alice"));
    rig.change_rules(&[("alice", "list")]);
    assert!(matches!(rig.hello(key), Heard::Welcome(_)));
}

#[test]
fn new_rules_reach_all_of_many_connections_and_end_those_alone_that_lost_a_right() {
    let mut rig = Rig::with_rules(&[("loser", "all"), ("keeper", "acquire")]);
    let count = 3 * REAUTHORIZED_PER_STEP_MAX as usize + 1;
    let clients: Vec<_> = ["loser", "keeper"]
        .into_iter()
        .cycle()
        .take(count)
        .map(|name| (name, rig.connect_as(name)))
        .collect();
    rig.change_rules(&[("loser", "acquire"), ("keeper", "all")]);
    for (name, client) in clients {
        assert_eq!(rig.is_ended(client), name == "loser");
    }
}

/// After new rules, each step checks the rights of a few connections. A step ends early if there are many rules or
/// quotas, and later steps must still reach all connections.
#[test]
fn new_rules_reach_all_connections_with_many_prefixes_or_quotas() {
    let prefixes = |right: &str| {
        let rule =
            |number| format!("[[rule]]\nidentity = \"loser\"\nprefix = \"{number}/\"\nallow = [{right:?}]\n");
        (0..400).map(rule).collect::<String>()
    };
    let quotas = "[[quota]]\neveryone = true\nclaims = 9\n".repeat(400);
    let everyone = |right: &str| format!("[[rule]]\neveryone = true\nallow = [{right:?}]\n");
    for (before, after) in
        [(prefixes("all"), prefixes("acquire")), (everyone("all"), everyone("acquire") + &quotas)]
    {
        let mut rig = Rig::with_rules(&[]);
        rig.set_access(&before);
        let clients = [(); REAUTHORIZED_PER_STEP_MAX as usize].map(|()| rig.connect_as("loser"));
        rig.set_access(&after);
        rig.apply_rules();
        assert!(clients.into_iter().all(|client| rig.is_ended(client)));
    }
}

#[test]
fn the_audit_line_of_an_ended_connection_has_its_namespace() {
    let mut rig = Rig::with_rules(&[("loser", "all")]);
    rig.connect_as("loser");
    rig.change_rules(&[("loser", "acquire")]);
    let event = rig.workers[0].poll_audit().expect("a line");
    assert_eq!((event.act, event.namespace.as_deref()), (Act::Deny, Some(&b"flat"[..])));
}

/// Connections of one identity share their rights if there are many rules.
#[test]
fn many_rules_give_each_identity_namespace_and_kind_its_own_rights() {
    let others = "[[rule]]\nidentity = \"other\"\nallow = [\"all\"]\n".repeat(20);
    let text = format!(
        "{others}[[rule]]\nidentity = \"me\"\nnamespace = \"one\"\nallow = [\"acquire\"]\n\
         [[rule]]\nidentity = \"me\"\nnamespace = \"two\"\nprefix = \"a/\"\nallow = [\"list\"]\n\
         [[rule]]\ngroup = \"group\"\nallow = [\"freeze\"]\n"
    );
    let policy = Policy::of_rules(Rules::parse(&text).expect("valid rules"));
    let identity = |name: &str, groups: &[&str]| {
        let groups = groups.iter().map(|group| Arc::from(*group)).collect();
        Some(Arc::new(Identity { name: name.into(), groups, proof: Proof::Anonymous }))
    };
    let (me, member) = (identity("me", &[]), identity("me", &["group"]));
    let access = |identity: &Option<Arc<Identity>>, namespace: &[u8], kind| {
        policy.access(identity.as_ref(), namespace, kind).expect("an identity has rights or none")
    };
    // Keep the rights of all five lookups in use at once, because lookups share only rights in use. A wrong lookup
    // would then find the rights of another identity, namespace or kind.
    let kept = [
        access(&me, b"one", NamespaceKind::Flat),
        access(&me, b"two", NamespaceKind::Flat),
        access(&me, b"two", NamespaceKind::Tree),
        access(&member, b"one", NamespaceKind::Flat),
        access(&identity("other", &[]), b"one", NamespaceKind::Flat),
    ];
    let somewhere = kept.each_ref().map(Access::somewhere);
    let most = Rights::ALL.without(Rights::METRICS);
    let expected = [Rights::ACQUIRE, Rights::LIST, Rights::LIST, Rights::ACQUIRE | Rights::FREEZE, most];
    assert_eq!(somewhere, expected);
    let mut path = Vec::new();
    PathKey::append(["a", "b"], &mut path).expect("a path");
    let [_, flat, tree, ..] = kept;
    for (access, key, covers) in [(&flat, &b"a/b"[..], true), (&flat, &path, false), (&tree, &path, true)] {
        assert_eq!(access.covers(Rights::LIST, key), covers, "{key:?}");
    }
}
