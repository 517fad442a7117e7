//! Multi-key claims.

use waymaker_protocol::{Event, GrantedKey, GrantedKeys};

use super::*;
use crate::key::Key;
use crate::loss::LossCallback;
use crate::request::claim::{Wanted, WantedKey};

const KEYS: [&str; 2] = ["a", "b"];

impl Rig {
    fn acquire_keys(&mut self) -> Answer {
        self.acquire_with(OWN, Wait::Forever, |job| {
            let keys = KEYS.map(|key| WantedKey { key: key.as_bytes().into(), shared: false });
            job.claim.wanted = Wanted::Keys(keys.into());
        })
    }

    /// Returns a grant of both keys, decided now. The ids of the holds have the `LockId::place` 8 for the first key and
    /// 9 for the second.
    fn granted_keys(&self) -> Response<'static> {
        let key = |(place, key): (u64, &'static str)| GrantedKey {
            id: id(place),
            fence: place,
            remaining_ms: 3_000,
            shared: false,
            key: key.as_bytes(),
        };
        let keys = [8, 9].into_iter().zip(KEYS).map(key).collect();
        Response::GrantedKeys(GrantedKeys { stamp_ms: self.stamp_ms(), keys, ..GrantedKeys::default() })
    }
}

#[test]
fn the_locks_of_a_multi_key_claim_are_renewed_and_released_independently() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_keys();
    rig.sent();
    let granted = rig.granted_keys();
    rig.receive(1, &granted);
    let mut locks = answer.try_recv().unwrap().unwrap();
    assert_eq!(
        locks.iter().map(|lock| (lock.key(), lock.fence())).collect::<Vec<_>>(),
        [(&b"a"[..], 8), (b"b", 9)]
    );
    rig.advance_to(11_000);
    rig.sends(&[(2, "extend 8 by 3000"), (3, "extend 9 by 3000")]);
    rig.receive(0, &Response::Event(Event::Expired { id: id(8) }));
    assert!(!locks[0].is_held() && locks[1].is_held());
    drop(locks.pop());
    rig.sends(&[(4, "release 9")]);
}

/// Returns a lane that received a grant of two keys after an outage, although the server had decided the grant before
/// it. So the lane asks the server to confirm each hold. The first hold is confirmed, and the lane waits for the
/// response about the second. Also returns the answer of the acquire, which is still open.
fn confirming_the_second() -> (Rig, Answer) {
    let mut rig = Rig::new();
    let answer = rig.acquire_keys();
    rig.sent();
    let granted = rig.granted_keys();
    rig.lose_connection();
    rig.come_back(true);
    rig.sent();
    rig.receive(1, &granted);
    rig.sends(&[(3, "extend 8 by 3000")]);
    let extended = rig.extended(3_000);
    rig.receive(3, &extended);
    rig.sends(&[(4, "extend 9 by 3000")]);
    (rig, answer)
}

/// The caller needs all keys, so a grant that has lost one of them is useless.
#[test]
fn a_partly_lost_multi_key_grant_is_released_and_acquired_again() {
    let (mut rig, mut answer) = confirming_the_second();
    rig.receive(4, &not_found());
    assert!(answer.try_recv().is_err());
    let sent = rig.sent();
    assert_eq!(sent[0].1, "release 8");
    assert!(sent[1].1.starts_with("AcquireKeys"), "{sent:?}");
    rig.advance_to(10_001);
    let granted = rig.granted_keys();
    rig.receive(sent[1].0, &granted);
    assert_eq!(answer.try_recv().unwrap().unwrap().len(), 2);
}

/// The lane confirms one key after the other, so a confirmed key may end before the last is confirmed.
#[test]
fn a_multi_key_claim_is_sent_again_if_a_confirmed_key_ends() {
    let (mut rig, mut answer) = confirming_the_second();
    rig.receive(0, &Response::Event(Event::Expired { id: id(8) }));
    let extended = rig.extended(3_000);
    rig.receive(4, &extended);
    assert!(answer.try_recv().is_err());
    let sent = rig.sent();
    assert_eq!(sent[0].1, "release 9");
    assert!(sent[1].1.starts_with("AcquireKeys"), "{sent:?}");
}

#[test]
fn confirmation_restarts_at_a_confirmed_key_whose_lease_changes() {
    let (mut rig, mut answer) = confirming_the_second();
    let stamp_ms = rig.stamp_ms();
    rig.receive(0, &Response::Event(Event::LeaseMoved { id: id(8), remaining_ms: 1_000, stamp_ms }));
    let extended = rig.extended(3_000);
    rig.receive(4, &extended);
    assert!(answer.try_recv().is_err());
    rig.sends(&[(5, "extend 8 by 3000")]);
}

#[test]
fn the_loss_callback_of_a_multi_key_claim_runs_once() {
    let mut rig = Rig::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let on_loss = {
        let told = Arc::clone(&told);
        LossCallback::new(move |reason| told.lock().unwrap().push(reason))
    };
    let mut answer = rig.acquire_with(Lease::Own { ms: 0 }, Wait::Try, |job| {
        job.claim.wanted = Wanted::Keys(vec![WantedKey { key: Key::from(&b"a"[..]), shared: false }]);
        job.renew = false;
        job.on_loss = Some(on_loss);
    });
    rig.sent();
    let granted = rig.granted_keys();
    rig.receive(1, &granted);
    let locks = answer.try_recv().unwrap().unwrap();
    rig.receive(0, &Response::Event(Event::Expired { id: id(9) }));
    rig.advance_to(20_000);
    assert!(locks.iter().all(|lock| !lock.is_held()));
    assert_eq!(*told.lock().unwrap(), [LossReason::Expired]);
}

/// The client does not know the ids of holds that were granted during the outage, and request numbers start again in a
/// new session. So only the request id leads to the holds.
#[test]
fn a_multi_key_claim_keeps_its_request_id_in_a_new_session() {
    let mut rig = Rig::new();
    let _answer = rig.acquire_keys();
    let (_, first) = rig.sent().remove(0);
    assert!(first.contains("request_id: Some("), "{first}");
    rig.lose_connection();
    rig.come_back(false);
    let (number, again) = rig.sent().remove(0);
    assert_eq!((number, &again), (1, &first));
    let _other = rig.acquire_keys();
    assert_ne!(rig.sent().remove(0).1, first);
}

/// The acquire was sent long before the server decided it, so its round trip reveals nothing about the server's clock.
#[test]
fn a_grant_of_several_keys_after_a_wait_moves_no_deadline() {
    let mut rig = Rig::new();
    let mut answer = rig.acquire_keys();
    rig.sent();
    rig.advance_to(12_000);
    let Response::GrantedKeys(granted) = rig.granted_keys() else { unreachable!() };
    rig.receive(1, &Response::GrantedKeys(GrantedKeys { waited: true, ..granted }));
    let locks = answer.try_recv().unwrap().unwrap();
    assert_eq!(locks[0].hold.deadline(), at(12_000 + 3_000 - 80));
}
