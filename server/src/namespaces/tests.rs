//! Tests of the namespaces.

use super::*;
use waymaker_engine::{Ticket, Time};

const FLAT: NamespaceKind = NamespaceKind::Flat;

fn open(namespaces: &mut Namespaces, name: &str) -> Result<NamespaceUse, NamespaceRefusal> {
    let opened = namespaces.open(name.as_bytes(), FLAT, &Accounts::NONE, |_| {});
    namespaces.settle(name.as_bytes(), opened.is_err(), |_| {});
    opened
}

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// Checks all namespaces that are idle at this time, of which the only shard finds those in `in_use` not empty. Returns
/// the numbers of the removed namespaces.
fn look_for(namespaces: &mut Namespaces, now: Time, in_use: &[u16]) -> Vec<u16> {
    let Some(looking) = namespaces.look(now, 1, |_| false, |_| {}) else { return Vec::new() };
    namespaces.note_looked(looking.removal, in_use, |_| {}).removed
}

#[test]
fn a_namespace_keeps_its_number_and_kind_while_it_is_used() {
    let mut namespaces = Namespaces::default();
    let (a, b) = (open(&mut namespaces, "a").unwrap(), open(&mut namespaces, "b").unwrap());
    assert_eq!((a.number(), b.number()), (0, 1));
    assert_eq!(open(&mut namespaces, "a").unwrap().number(), 0);
    let refused = namespaces.open(b"a", NamespaceKind::Pool, &Accounts::NONE, |_| {});
    assert_eq!(refused.unwrap_err(), NamespaceRefusal::OtherKind(FLAT));
    assert_eq!(namespaces.find(b"b"), Some((1, FLAT)));
    assert_eq!(namespaces.find(b"c"), None);
    namespaces.look(at(0), 1, |_| false, |_| {});
    assert!(namespaces.look(at(10 * NAMESPACE_IDLE_MS), 1, |_| false, |_| {}).is_none());
    assert_eq!(namespaces.find(b"b"), Some((1, FLAT)));
}

#[test]
fn a_built_in_namespace_has_a_fixed_kind_and_always_has_room() {
    let mut namespaces = Namespaces::default();
    for (name, kind) in BUILT_IN {
        for other in NamespaceKind::ALL.into_iter().filter(|other| *other != kind) {
            assert_eq!(
                namespaces.open(name, other, &Accounts::NONE, |_| {}).unwrap_err(),
                NamespaceRefusal::OtherKind(kind)
            );
        }
        assert_eq!(namespaces.find(name), None, "what is refused makes nothing");
    }
    let refused = namespaces.open(b"tree/locktopus/any", FLAT, &Accounts::NONE, |_| {});
    assert_eq!(refused.unwrap_err(), NamespaceRefusal::OtherKind(NamespaceKind::Tree));
    let users: Vec<_> =
        (0..NAMESPACE_COUNT_MAX).map(|number| open(&mut namespaces, &number.to_string()).unwrap()).collect();
    assert_eq!(open(&mut namespaces, "one more").unwrap_err(), NamespaceRefusal::TooMany);
    assert_eq!(open(&mut namespaces, "7").unwrap().number(), users[7].number());
    for (name, kind) in BUILT_IN {
        assert!(namespaces.open(name, kind, &Accounts::NONE, |_| {}).is_ok());
    }
}

#[test]
fn unused_namespaces_make_room_at_once() {
    let mut namespaces = Namespaces::default();
    for number in 0..3 * NAMESPACE_COUNT_MAX {
        open(&mut namespaces, &number.to_string()).expect("there is room");
    }
    assert!(namespaces.next_number <= NAMESPACE_COUNT_MAX as u32);
}

#[test]
fn a_namespace_of_a_refused_user_is_removed_unless_others_use_it() {
    let mut namespaces = Namespaces::default();
    let mut told = Vec::new();
    drop(namespaces.open(b"a", FLAT, &Accounts::NONE, |_| {}).unwrap());
    namespaces.settle(b"a", true, |_| panic!("the log hears nothing of it"));
    assert_eq!(namespaces.find(b"a"), None);
    let first = namespaces.open(b"b", FLAT, &Accounts::NONE, |_| {}).unwrap();
    let second = namespaces.open(b"b", FLAT, &Accounts::NONE, |_| {}).unwrap();
    drop(first);
    namespaces.settle(b"b", true, |_| panic!("the log hears nothing of it"));
    namespaces.settle(b"b", false, |change| told.push(format!("{change:?}")));
    assert_eq!((told.len(), namespaces.find(b"b")), (1, Some((second.number(), FLAT))));
}

#[test]
fn an_idle_empty_namespace_is_removed_and_its_number_is_not_reused() {
    let mut namespaces = Namespaces::default();
    let user = open(&mut namespaces, "a").unwrap();
    user.note_known();
    drop(user);
    assert!(look_for(&mut namespaces, at(0), &[]).is_empty(), "it has just become idle");
    assert!(look_for(&mut namespaces, at(NAMESPACE_IDLE_MS - 1), &[]).is_empty());
    assert!(look_for(&mut namespaces, at(NAMESPACE_IDLE_MS), &[0]).is_empty(), "something is in it");
    assert!(namespaces.find(b"a").is_some());
    assert_eq!(look_for(&mut namespaces, at(2 * NAMESPACE_IDLE_MS), &[]), [0]);
    assert_eq!(namespaces.find(b"a"), None);
    assert_eq!(open(&mut namespaces, "b").unwrap().number(), 1);
}

#[test]
fn namespaces_have_the_number_and_the_idle_time_that_are_set() {
    let mut namespaces = Namespaces::default();
    namespaces.limit(1, 1_000);
    let user = open(&mut namespaces, "a").unwrap();
    user.note_known();
    assert!(matches!(open(&mut namespaces, "b"), Err(NamespaceRefusal::TooMany)));
    drop(user);
    look_for(&mut namespaces, at(0), &[]);
    assert!(look_for(&mut namespaces, at(999), &[]).is_empty());
    assert_eq!(look_for(&mut namespaces, at(1_000), &[]), [0]);
}

#[test]
fn a_namespace_opened_during_its_removal_check_stays() {
    let mut namespaces = Namespaces::default();
    open(&mut namespaces, "a").unwrap().note_known();
    namespaces.look(at(0), 2, |_| false, |_| {});
    let looking = namespaces.look(at(NAMESPACE_IDLE_MS), 2, |_| false, |_| {}).expect("it is idle");
    assert!(namespaces.note_looked(looking.removal, &[], |_| {}).removed.is_empty());
    drop(open(&mut namespaces, "a").unwrap());
    assert!(
        namespaces.note_looked(looking.removal, &[], |_| {}).removed.is_empty(),
        "it was opened meanwhile"
    );
    assert!(namespaces.find(b"a").is_some());
}

#[test]
fn a_restored_namespace_with_a_built_in_name_is_renamed() {
    let mut namespaces = Namespaces::default();
    let renamed = namespaces.restore(3, b"waymaker", NamespaceKind::Pool).expect("another name");
    assert_eq!(&*renamed, b"restored/pool/waymaker");
    assert_eq!(namespaces.find(&renamed), Some((3, NamespaceKind::Pool)));
    assert_eq!(open(&mut namespaces, "waymaker").unwrap().number(), 0, "a number that the log does not name");
    assert_eq!(namespaces.restore(5, b"default", FLAT), None);
}

#[test]
fn the_order_by_number_has_each_namespace_exactly_once() {
    let mut namespaces = Namespaces::default();
    assert_eq!(namespaces.restore(7, b"old", FLAT), None);
    let _used = open(&mut namespaces, "used").unwrap();
    let known = open(&mut namespaces, "known").unwrap();
    known.note_known();
    drop(known);
    drop(open(&mut namespaces, "idle").unwrap());
    drop(namespaces.open(b"refused", FLAT, &Accounts::NONE, |_| {}).unwrap());
    namespaces.settle(b"refused", true, |_| {});
    let names = |namespaces: &Namespaces, from| {
        let all = namespaces.by_number(from);
        all.map(|(number, name, _)| (number, String::from_utf8_lossy(name).into_owned())).collect::<Vec<_>>()
    };
    let of = |number: u16, name: &str| (number, name.to_owned());
    let all = [of(0, "used"), of(1, "known"), of(2, "idle"), of(7, "old")];
    assert_eq!(names(&namespaces, 0), all);
    assert_eq!(names(&namespaces, 2), all[2..]);
    assert_eq!(names(&namespaces, u64::MAX), []);
    look_for(&mut namespaces, at(0), &[]);
    look_for(&mut namespaces, at(NAMESPACE_IDLE_MS), &[7]);
    assert_eq!(names(&namespaces, 0), [of(0, "used"), of(7, "old")]);
    drop(open(&mut namespaces, "next").unwrap());
    assert_eq!(namespaces.name_of(2), Some(&b"next"[..]));
    assert_eq!(namespaces.use_of(7).map(|user| user.number()), Some(7));
    assert!(namespaces.use_of(1).is_none());
}

#[test]
fn each_new_namespace_evicts_only_a_few_others() {
    let mut namespaces = Namespaces::default();
    for number in 0..3 * NAMESPACE_COUNT_MAX {
        let before = namespaces.count();
        assert!(open(&mut namespaces, &number.to_string()).is_ok());
        assert!(namespaces.count() + UNKNOWN_REMOVED_AT_ONCE > before);
    }
}

#[test]
fn an_operator_is_answered_even_if_another_removal_ended_the_namespace() {
    let mut namespaces = Namespaces::default();
    open(&mut namespaces, "a").unwrap().note_known();
    assert!(namespaces.look(at(0), 1, |_| false, |_| {}).is_none());
    let looking = namespaces.look(at(NAMESPACE_IDLE_MS), 1, |_| false, |_| {}).unwrap();
    let ticket = Ticket::default();
    assert_eq!(namespaces.remove_wanted(ticket, b"a", |_| false, |_| {}), Ok(false));
    assert!(namespaces.begin_requested(1).is_none(), "a removal is in progress");
    assert_eq!(namespaces.note_looked(looking.removal, &[], |_| {}).removed, [0]);
    let looking = namespaces.begin_requested(1).unwrap();
    let [(_, answer)] = namespaces.note_looked(looking.removal, &[], |_| {}).answers[..] else {
        panic!("one operator waits")
    };
    assert_eq!(answer, Ok(()), "the namespace is gone");
}

/// A lane that opens the namespace during the removal may leave a claim in a shard that has already been checked.
#[test]
fn a_namespace_used_during_a_removal_by_an_operator_stays() {
    let mut namespaces = Namespaces::default();
    open(&mut namespaces, "a").unwrap().note_known();
    let ticket = Ticket::default();
    assert_eq!(namespaces.remove_wanted(ticket, b"a", |_| false, |_| {}), Ok(false));
    let user = open(&mut namespaces, "a").unwrap();
    let looking = namespaces.begin_requested(2).expect("no removal is in progress");
    assert!(namespaces.note_looked(looking.removal, &[], |_| {}).removed.is_empty());
    drop(user);
    let RemovalResult { removed, answers } = namespaces.note_looked(looking.removal, &[], |_| {});
    assert!(removed.is_empty());
    assert!(matches!(answers[..], [(_, Err(RemovalRefusal::NotEmpty))]), "{answers:?}");
}

#[test]
fn a_declared_namespace_stays_and_leaves_the_room_of_others() {
    let mut namespaces = Namespaces::default();
    namespaces.limit(1, 1_000);
    let mut told = Vec::new();
    let number =
        namespaces.declare(b"jobs", FLAT, Some(7), |change| told.push(format!("{change:?}"))).unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(namespaces.find(b"jobs"), Some((number, FLAT)));
    namespaces.look(at(0), 1, |_| false, |_| {});
    assert!(namespaces.look(at(10_000), 1, |_| false, |_| {}).is_none());
    let ticket = Ticket::default();
    let removed = namespaces.remove_wanted(ticket, b"jobs", |_| false, |_| {});
    assert_eq!(removed, Err(RemovalRefusal::Declared));
    let refused = namespaces.open(b"jobs", NamespaceKind::Pool, &Accounts::NONE, |_| {});
    assert_eq!(refused.unwrap_err(), NamespaceRefusal::OtherKind(FLAT));
    let own = open(&mut namespaces, "jobs").unwrap();
    assert_eq!((own.number(), own.lease_default_ms()), (number, Some(7)));
    assert_eq!(open(&mut namespaces, "one").unwrap().lease_default_ms(), None);
    open(&mut namespaces, "two").expect("the unused one makes room");
    assert!(namespaces.find(b"jobs").is_some());
}

#[test]
fn a_declaration_takes_over_a_restored_namespace_of_its_kind_only() {
    let mut namespaces = Namespaces::default();
    namespaces.restore(3, b"jobs", FLAT);
    let told = |_: NamespaceChange<'_>| panic!("the log has it");
    assert_eq!(
        namespaces.declare(b"jobs", NamespaceKind::Tree, None, told),
        Err(NamespaceRefusal::OtherKind(FLAT))
    );
    assert_eq!(namespaces.declare(b"jobs", FLAT, None, told), Ok(3));
    assert_eq!(namespaces.declare(b"waymaker", FLAT, None, |_| {}), Ok(0));
    assert_eq!(namespaces.count(), 0);
}
