//! The requests that each kind of namespace serves.

use waymaker_protocol::NamespaceKind;
use waymaker_protocol::message::opcode;

/// Kinds that serve each opcode, one bit for each kind. Opcodes that are not listed below have all bits: those that
/// every kind serves, and unknown ones, which decoding refuses.
const SERVED: [u8; 256] = {
    const FLAT: u8 = 1 << NamespaceKind::Flat as u8;
    const TREE: u8 = 1 << NamespaceKind::Tree as u8;
    const OWNED: u8 = 1 << NamespaceKind::Registry as u8 | 1 << NamespaceKind::Lazy as u8;
    const POOL: u8 = 1 << NamespaceKind::Pool as u8;
    const LIMIT: u8 = 1 << NamespaceKind::Limit as u8;
    const CLAIMS: u8 = FLAT | TREE | OWNED | POOL;
    let mut served = [CLAIMS | LIMIT; 256];
    served[opcode::ACQUIRE as usize] = FLAT;
    served[opcode::ACQUIRE_KEYS as usize] = FLAT;
    served[opcode::ACQUIRE_SET as usize] = TREE;
    served[opcode::TREE_STATISTICS as usize] = TREE;
    served[opcode::ACQUIRE_PERMITS as usize] = POOL;
    served[opcode::DESCRIBE_POOL as usize] = POOL;
    served[opcode::SET_CAPACITY as usize] = POOL;
    served[opcode::LIST_POOLS as usize] = POOL;
    served[opcode::THROTTLE as usize] = LIMIT;
    served[opcode::THROTTLE_ALL as usize] = LIMIT;
    served[opcode::REGISTER as usize] = OWNED;
    served[opcode::HEARTBEAT as usize] = OWNED;
    served[opcode::UNREGISTER as usize] = OWNED;
    served[opcode::LOOK_UP as usize] = OWNED;
    served[opcode::LIST_ENTRIES as usize] = OWNED;
    served[opcode::RELEASE as usize] = CLAIMS;
    served[opcode::STATUS as usize] = CLAIMS;
    served[opcode::LIST as usize] = CLAIMS;
    served[opcode::HOLDS as usize] = CLAIMS;
    served[opcode::VERIFY as usize] = CLAIMS;
    served[opcode::FORCE_RELEASE as usize] = CLAIMS;
    served[opcode::FREEZE as usize] = CLAIMS;
    served[opcode::EXTEND as usize] = FLAT | TREE | POOL;
    served[opcode::CANCEL as usize] = FLAT | TREE | POOL;
    served[opcode::INSPECT as usize] = FLAT | TREE | OWNED;
    served[opcode::WATCH as usize] = FLAT | OWNED;
    served[opcode::UNWATCH as usize] = FLAT | OWNED;
    served
};

/// Returns the kinds whose namespaces serve requests with this opcode, one bit for each.
pub(crate) const fn served_kinds(opcode: u8) -> u8 {
    SERVED[opcode as usize]
}

/// Whether namespaces of this kind serve requests with this opcode.
pub(crate) fn serves(kind: NamespaceKind, opcode: u8) -> bool {
    served_kinds(opcode) & 1 << kind.number() != 0
}
