//! The kinds of namespaces.

use clap::ValueEnum;
use waymaker_client::NamespaceKind;

/// Describes the kinds, for help pages.
pub(crate) const HELP: &str = "\
Kinds:
  flat      plain keys
  tree      paths
  pool      permits of pools
  registry  registrations that end when their lease expires
  lazy      registrations that stay until another owner takes their key";

/// Kind of a namespace. The namespaces of trees, pools and registrations are named after the namespace of the keys.
///
/// [`HELP`] describes the variants: a comment at a variant would make every help page longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Flat,
    Tree,
    Pool,
    Registry,
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
