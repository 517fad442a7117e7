//! Rights of requests that wait for a shard, and of connections whose rights change.

use super::*;
use crate::access::{Evidence, Policy};
use crate::limits::REAUTHORIZED_PER_STEP_MAX;
use crate::worker::{Client, KnownAs};
use waymaker_access::{Identity, Proof, Rules};
use waymaker_protocol::LockId;
use waymaker_protocol::message::release::RELEASED;

const KEY: &[u8] = b"a/key";

impl Rig {
    /// Two workers, and these rights of identities for all keys.
    fn with_rules(rights: &[(&str, &str)]) -> Self {
        let rig = Self::new(2);
        rig.set_rules(rights);
        rig
    }

    /// Gives rights to identities. The workers apply them to open connections later.
    fn set_rules(&self, rights: &[(&str, &str)]) {
        let rule =
            |(name, right): &(&str, &str)| format!("[[rule]]\nidentity = {name:?}\nallow = [{right:?}]\n");
        let rules = Rules::parse(&rights.iter().map(rule).collect::<String>()).expect("valid rules");
        self.node.access.replace(Policy::of_rules(rules));
    }

    /// Gives rights to identities, and applies them to open connections.
    fn change_rules(&mut self, rights: &[(&str, &str)]) {
        self.set_rules(rights);
        self.workers[0].housekeep(self.now);
        while self.workers[0].handle_mail(self.now) {}
    }

    /// A connection of this client that has said nothing yet.
    fn open_as(&mut self, client: Client) -> ConnectionKey {
        let key = self.workers[0].handle_open(b"peer", self.now);
        self.workers[0].note_client(key, client);
        key
    }

    /// Returns the answer to the HELLO of a connection.
    fn hello(&mut self, key: ConnectionKey) -> Heard {
        let (version_min, version_max, worker) = (VERSION, VERSION, ANY_WORKER);
        let hello = Hello { version_min, version_max, worker, namespace: b"flat", ..Hello::default() };
        let answers = self.ask(key, 1, &Request::Hello(hello));
        let [(1, answer)] = &answers[..] else { panic!("{answers:?}") };
        answer.clone()
    }

    /// An open connection whose certificate names this identity.
    fn connect_as(&mut self, name: &str) -> ConnectionKey {
        let key = self.open_as(certified(name));
        let answer = self.hello(key);
        assert!(matches!(answer, Heard::Welcome(_)), "{answer:?}");
        key
    }

    /// Takes a key and returns the id of the hold.
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

/// A client whose certificate names this identity.
fn certified(name: &str) -> Client {
    let evidence = Evidence { certificate_names: vec![name.to_owned()], ..Evidence::default() };
    Client { known_as: KnownAs::Unidentified, evidence: Some(Arc::new(evidence)), ..Client::default() }
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

/// A front end identifies its client before it opens a connection to a namespace.
#[test]
fn a_client_whose_identity_has_expired_since_it_was_identified_is_refused() {
    let mut rig = Rig::with_rules(&[("guest", "acquire")]);
    for (proof, is_current) in [(Proof::User(1), true), (Proof::Anonymous, false)] {
        let identity = Identity { name: "guest".into(), groups: Vec::new(), proof };
        let known_as = KnownAs::Identified(Some(Arc::new(identity)));
        let key = rig.open_as(Client { known_as, ..Client::default() });
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
