//! The identities that a rule or a quota is for.

use crate::identity::Identity;
use crate::limits::IDENTITY_LEN_MAX;
use crate::rules::AccessFileError;
use std::collections::{BTreeMap, BTreeSet};

/// Members of the groups in the access file.
pub(crate) type Groups = BTreeMap<String, BTreeSet<String>>;

/// The identities of a rule or a quota.
#[derive(Debug)]
pub(crate) enum Who {
    Identity(String),
    Group(String),
    Everyone,
}

impl Who {
    /// Reads the three members that name identities. `place` is where they stand.
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

    /// Returns whether an identity is one of them. Its token and the file name its groups.
    pub(crate) fn is(&self, identity: &Identity, groups: &Groups) -> bool {
        match self {
            Self::Identity(name) => **name == *identity.name,
            Self::Group(group) => {
                identity.groups.iter().any(|own| **own == **group)
                    || groups.get(group).is_some_and(|members| members.contains(&*identity.name))
            }
            Self::Everyone => true,
        }
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
