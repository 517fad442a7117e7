//! The lock model of Waymaker: shards, claims, grant rule, leases, fences. No I/O, no clock, no randomness.
