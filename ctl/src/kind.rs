//! The kinds of namespaces.

use clap::ValueEnum;
use waymaker_client::NamespaceKind;

/// Kind of a namespace. The namespaces of trees, pools and registrations are named after the namespace of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Plain keys
    Flat,
    /// Paths
    Tree,
    /// Permits of pools
    Pool,
    /// Registrations that end when their lease expires
    Registry,
    /// Registrations that stay until another owner takes their key
    Lazy,
}

impl Kind {
    /// All kinds, in the order in which they are listed.
    pub(crate) const ALL: [Self; 5] = [Self::Flat, Self::Tree, Self::Pool, Self::Registry, Self::Lazy];

    /// Name of the kind.
    pub(crate) fn name(self) -> &'static str {
        NamespaceKind::from(self).name()
    }
}

impl From<Kind> for NamespaceKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Flat => Self::Flat,
            Kind::Tree => Self::Tree,
            Kind::Pool => Self::Pool,
            Kind::Registry => Self::Registry,
            Kind::Lazy => Self::Lazy,
        }
    }
}
