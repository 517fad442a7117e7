//! The identities that a rule or a quota applies to.

use crate::access_file_error::AccessFileError;
use crate::identity::Identity;
use crate::limits::IDENTITY_LEN_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// Members of each group in the access file.
pub(crate) type Groups = BTreeMap<String, BTreeSet<String>>;

/// The identities of a rule or a quota.
#[derive(Debug)]
pub(crate) enum Who {
    Identity(String),
    Group(String),
    Everyone,
}

impl Who {
    /// Parses the three members that select identities. `place` is their place in the file, for errors.
    pub(crate) fn parse(
        place: &str,
        identity: Option<String>,
        group: Option<String>,
        everyone: bool,
    ) -> Result<Self, AccessFileError> {
        let who = match (identity, group, everyone) {
            (Some(identity), None, false) => Self::Identity(identity),
            (None, Some(group), false) => Self::Group(group),
            (None, None, true) => Self::Everyone,
            _ => return Err(AccessFileError::Who { place: place.to_owned() }),
        };
        if let Self::Identity(name) | Self::Group(name) = &who {
            check_name(&format!("{place}:"), name)?;
        }
        Ok(who)
    }

    /// Returns whether a client is selected.
    pub(crate) fn is(&self, member: &Member<'_>) -> bool {
        match self {
            Self::Identity(name) => name == member.name,
            Self::Group(group) => member.groups.contains(&**group),
            Self::Everyone => true,
        }
    }
}

/// An identity with all its groups, prepared for many comparisons.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    name: &'a str,
    groups: BTreeSet<&'a str>,
}

impl<'a> Member<'a> {
    /// Collects the groups from the credentials and from the access file.
    pub(crate) fn new(identity: &'a Identity, groups: &'a Groups) -> Self {
        let of_file = groups.iter().filter(|(_, members)| members.contains(&*identity.name));
        let of_file = of_file.map(|(group, _)| group.as_str());
        let groups = identity.groups.iter().map(|group| &**group).chain(of_file).collect();
        Self { name: &identity.name, groups }
    }
}

/// Checks the name of an identity or a group.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), AccessFileError> {
    let is_name = (1..=IDENTITY_LEN_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if is_name {
        Ok(())
    } else {
        Err(AccessFileError::BadName { what: what.to_owned(), name: name.escape_debug().to_string() })
    }
}
