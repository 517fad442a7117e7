//! What the clients of one run hear, in the words of the spec files, and the names of what they hear of.

use super::command::{Command, Kind};
use super::script::Said;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// Shared by the clients of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    said: RefCell<Vec<Said>>,
    claims: RefCell<Vec<Claim>>,
    changed: Notify,
}

/// Something that has a name in the file: a claim, one of its holds, a watch, an entry.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) lane: String,
    pub(super) name: String,
    pub(super) key: String,
    pub(super) kind: Kind,
    /// Once the file may speak of it.
    pub(super) id: Option<String>,
    /// Once it is known at all.
    pub(super) secret_id: Option<String>,
    /// Its first answer came: it waits, it is held, or it is over.
    pub(super) is_answered: bool,
    /// It was granted.
    pub(super) is_held: bool,
}

impl Heard {
    /// Writes down what a lane was told.
    pub(super) fn say(&self, lane: &str, text: impl Into<String>) {
        self.0.said.borrow_mut().push(Said::new(lane, text));
        self.0.changed.notify_waiters();
    }

    /// Waits until what was said is as it should be, or for so long.
    pub(super) async fn until(&self, patience: Duration, is_as_it_should_be: impl Fn(&[Said]) -> bool) {
        let heard = async {
            loop {
                let changed = self.0.changed.notified();
                if is_as_it_should_be(&self.0.said.borrow()) {
                    return;
                }
                changed.await;
            }
        };
        // What is missing then is for the judge to say.
        let _ = tokio::time::timeout(patience, heard).await;
    }

    /// What was said since this was asked last.
    pub(super) fn take(&self) -> Vec<Said> {
        self.0.said.take()
    }

    /// Gives a name to what a command asks for, and says the number of what has it.
    pub(super) fn name(&self, command: &Command, name: &str, key: &str) -> usize {
        self.add(Claim {
            lane: command.lane.name.clone(),
            name: written(name).to_owned(),
            key: key.to_owned(),
            kind: command.kind,
            id: None,
            secret_id: None,
            is_answered: false,
            is_held: false,
        })
    }

    /// One of several keys was granted, under this id. It has a name of its own from now on.
    pub(super) fn part_granted(&self, several: usize, shown_key: &str, key: &str, id: &str) {
        let several = self.claim(several);
        let name = format!("{}.{shown_key}", several.name);
        let part = self.add(Claim { name, key: key.to_owned(), ..several });
        self.granted(part, id);
    }

    fn add(&self, claim: Claim) -> usize {
        let mut claims = self.0.claims.borrow_mut();
        claims.push(claim);
        claims.len() - 1
    }

    pub(super) fn claim(&self, number: usize) -> Claim {
        self.0.claims.borrow()[number].clone()
    }

    /// What a lane means by a name: the newest of its own, or of `LANE/`.
    pub(super) fn find(&self, lane: &str, target: &str) -> usize {
        self.try_find(lane, target).unwrap_or_else(|| panic!("no claim {target}"))
    }

    pub(super) fn try_find(&self, lane: &str, target: &str) -> Option<usize> {
        let claims = self.0.claims.borrow();
        let position = |lane, name| claims.iter().rposition(|claim| claim.lane == lane && claim.name == name);
        let of_another = || target.split_once('/').and_then(|(lane, name)| position(lane, name));
        position(lane, target).or_else(of_another)
    }

    pub(super) fn tell_id(&self, number: usize, id: &str, is_told: bool) {
        let mut claims = self.0.claims.borrow_mut();
        let claim = &mut claims[number];
        claim.secret_id = Some(id.to_owned());
        if is_told {
            claim.id = Some(id.to_owned());
        }
    }

    /// It was granted, under this id.
    pub(super) fn granted(&self, number: usize, id: &str) {
        self.tell_id(number, id, true);
        self.0.claims.borrow_mut()[number].is_held = true;
    }

    /// The first answer to an acquire came.
    pub(super) fn answered(&self, number: usize) {
        self.0.claims.borrow_mut()[number].is_answered = true;
        self.0.changed.notify_waiters();
    }

    /// One more answer is awaited.
    pub(super) fn unanswered(&self, number: usize) {
        self.0.claims.borrow_mut()[number].is_answered = false;
    }

    /// Waits for the first answer to an acquire.
    pub(super) async fn until_answered(&self, number: usize, patience: Duration) {
        self.until(patience, |_| self.0.claims.borrow()[number].is_answered).await;
    }

    /// The name of a claim as this lane knows it, if its id was told.
    pub(super) fn known_name(&self, id: &str, lane: &str) -> Option<String> {
        let claims = self.0.claims.borrow();
        let same = |claim: &&Claim| claim.id.as_deref() == Some(id);
        match (claims.iter().rfind(|claim| same(claim) && claim.lane == lane), claims.iter().rfind(same)) {
            (Some(claim), _) => Some(claim.name.clone()),
            (None, Some(claim)) => Some(format!("{}/{}", claim.lane, claim.name)),
            (None, None) => None,
        }
    }

    pub(super) fn name_of(&self, id: &str, lane: &str) -> String {
        self.known_name(id, lane).unwrap_or_else(|| "an unknown claim".to_owned())
    }
}

/// A name as the files write it.
pub(super) fn written(name: &str) -> &str {
    if name.is_empty() { "\"\"" } else { name }
}
