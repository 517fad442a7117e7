//! The engine from outside: what it must do as text, as a model, and under load that no turn can serve at once.

mod accounts;
mod budgets;
mod colliding_sets;
mod crashes;
mod crowds;
mod entering;
mod exhaustive;
mod fake_log;
mod fake_quorum;
mod fan_outs;
#[path = "../../../log/tests/fixtures/fixture.rs"]
mod fixture;
mod forgetting;
#[path = "../../../protocol/tests/protocol/frozen_folder.rs"]
mod frozen_folder;
#[cfg(debug_assertions)]
mod growth;
mod judge;
mod judged;
mod kinds;
mod late_news;
mod log_fixtures;
mod log_records;
mod lost_lanes;
mod mailboxes;
mod measures;
mod model;
mod namespace_terms;
mod node;
mod old_ids;
#[cfg(debug_assertions)]
mod pool_pages;
mod random;
mod recorder;
mod restored_conflicts;
mod short_sequences;
mod spec_language;
mod specs;
mod stale_work;
#[cfg(debug_assertions)]
mod steps;
mod twin;
mod unused_namespaces;
mod wheel;
