//! Types of Locket resources: lock, presence or unknown.

use super::fault::Fault;
use crate::namespaces::{LOCKET_LOCK, LOCKET_PRESENCE};
use clap::ValueEnum;
use waymaker_proto::locket::{Resource, TypeCode};

/// Behaviour to follow if the published document and the code of 2024 differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LocketCompatibility {
    /// The published document: a type name without a code is accepted, and the release of a free key is an error.
    #[default]
    Documented,
    /// The code since March 2024: only type codes count, and the release of a free key succeeds.
    #[value(name = "2024")]
    Code2024,
}

/// Type of a resource. The contract expresses it as a code and as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceType {
    /// Neither lock nor presence; no filter matches it.
    Unknown,
    Lock,
    Presence,
}

impl ResourceType {
    /// Returns the stored name of the type.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Lock => LOCKET_LOCK,
            Self::Presence => LOCKET_PRESENCE,
        }
    }

    /// Returns the code of the type.
    pub(super) fn code(self) -> TypeCode {
        match self {
            Self::Unknown => TypeCode::Unknown,
            Self::Lock => TypeCode::Lock,
            Self::Presence => TypeCode::Presence,
        }
    }

    /// Returns the type with this name; `Unknown` for any other name.
    pub(super) fn named(name: &[u8]) -> Self {
        match name {
            b"lock" => Self::Lock,
            b"presence" => Self::Presence,
            _ => Self::Unknown,
        }
    }

    /// Returns the type of a resource to lock. The published document allows it to be missing.
    pub(super) fn of_lock(resource: &Resource, compatibility: LocketCompatibility) -> Result<Self, Fault> {
        let is_missing = resource.type_code == 0 && resource.r#type.is_empty();
        if is_missing && compatibility == LocketCompatibility::Documented {
            return Ok(Self::Unknown);
        }
        Self::of_filter(resource.type_code, &resource.r#type, compatibility)
    }

    /// Returns the type of a filter, which must not be missing.
    pub(super) fn of_filter(
        type_code: i32,
        name: &str,
        compatibility: LocketCompatibility,
    ) -> Result<Self, Fault> {
        let by_name = Self::named(name.as_bytes());
        let by_code = match TypeCode::try_from(type_code) {
            Ok(TypeCode::Lock) => Self::Lock,
            Ok(TypeCode::Presence) => Self::Presence,
            Ok(TypeCode::Unknown) => Self::Unknown,
            Err(_) => return Err(Fault::InvalidType),
        };
        match (compatibility, by_code) {
            (LocketCompatibility::Code2024, Self::Unknown) => Err(Fault::InvalidType),
            (LocketCompatibility::Code2024, by_code) => Ok(by_code),
            (LocketCompatibility::Documented, Self::Unknown) if by_name != Self::Unknown => Ok(by_name),
            (LocketCompatibility::Documented, Self::Unknown) => Err(Fault::InvalidType),
            (LocketCompatibility::Documented, by_code) if name.is_empty() || by_name == by_code => {
                Ok(by_code)
            }
            (LocketCompatibility::Documented, _) => Err(Fault::InvalidType),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table of Locket's contract. Each row has a type code, a type name, the result that Locket's published document
    /// requires, and the result of the original server's code since March 2024.
    #[test]
    fn a_type_filter_follows_the_table_of_the_contract() {
        use LocketCompatibility::{Code2024, Documented};
        let invalid = Err(Fault::InvalidType);
        let lock = Ok(ResourceType::Lock);
        let presence = Ok(ResourceType::Presence);
        let table = [
            (1, "", &lock, &lock),
            (2, "", &presence, &presence),
            (1, "lock", &lock, &lock),
            (2, "presence", &presence, &presence),
            (1, "presence", &invalid, &lock),
            (2, "dawg", &invalid, &presence),
            (0, "lock", &lock, &invalid),
            (0, "presence", &presence, &invalid),
            (0, "dawg", &invalid, &invalid),
            (0, "", &invalid, &invalid),
            (4, "lock", &invalid, &invalid),
            (-1, "", &invalid, &invalid),
        ];
        for (code, name, documented, code_2024) in table {
            assert_eq!(&ResourceType::of_filter(code, name, Documented), documented, "{code} {name:?}");
            assert_eq!(&ResourceType::of_filter(code, name, Code2024), code_2024, "{code} {name:?}");
        }
    }

    #[test]
    fn a_lock_needs_no_type_in_documented_compatibility() {
        let resource = Resource::default();
        let of_lock = |compatibility| ResourceType::of_lock(&resource, compatibility);
        assert_eq!(of_lock(LocketCompatibility::Documented), Ok(ResourceType::Unknown));
        assert_eq!(of_lock(LocketCompatibility::Code2024), Err(Fault::InvalidType));
    }
}
