//! The acts of a client that depend on the kind of its namespace.

use super::Client;
use crate::key::Key;
use crate::operation::{Operation, RegistrationListing};
use crate::world::World;
use waymaker_protocol::NamespaceKind;

impl Client {
    /// Picks a key of the client's namespace.
    pub(super) fn some_key(&self, world: &mut World) -> Key {
        let settings = world.settings.clone();
        match self.kind {
            NamespaceKind::Flat => settings.choose_key(&mut world.random),
            NamespaceKind::Tree => crate::key::TREE,
            NamespaceKind::Pool => settings.mix.choose_pool(&mut world.random),
            NamespaceKind::Registry | NamespaceKind::Lazy | NamespaceKind::Limit => {
                settings.mix.choose_registry_key(self.kind, &mut world.random)
            }
        }
    }

    /// Asks for the holders of a key.
    pub(super) fn look(&mut self, world: &mut World) {
        let key = self.some_key(world);
        let operation = match self.kind {
            NamespaceKind::Pool => Operation::Describe { pool: key },
            _ => Operation::Inspect { key },
        };
        self.ask(world, operation);
    }

    /// Performs one act in a namespace without queues. Returns false for other kinds of namespaces.
    pub(super) fn choose_without_queue(&mut self, world: &mut World) -> bool {
        let settings = world.settings.clone();
        match self.kind {
            NamespaceKind::Limit => {
                let withdrawal = settings.mix.choose_withdrawal(&mut world.random);
                self.ask(world, Operation::Take(withdrawal));
            }
            NamespaceKind::Registry | NamespaceKind::Lazy => {
                let key = self.some_key(world);
                let operation = match world.random.below(10) {
                    0..=5 => {
                        self.value += 1;
                        let (value, unix_us) = (self.value, world.unix_us());
                        let random = &mut world.random;
                        Operation::Register(settings.mix.choose_registration(key, value, unix_us, random))
                    }
                    6..=7 => Operation::Unregister { key },
                    8 => Operation::LookUp { key },
                    _ => {
                        self.walk_count += 1;
                        Operation::ListEntries(RegistrationListing {
                            walk: self.walk_count,
                            kind: self.kind,
                            cursor: 0,
                            count_max: world.random.pick(&[0, 1, 2]).unwrap_or(0),
                            like: world.random.once_in(2).then_some(self.value),
                        })
                    }
                };
                self.ask(world, operation);
            }
            NamespaceKind::Flat | NamespaceKind::Tree | NamespaceKind::Pool => return false,
        }
        true
    }
}
