//! The engine from outside: what it must do as text, as a model, and under load that no turn can serve at once.

mod budgets;
mod crashes;
mod crowds;
mod exhaustive;
mod fake_log;
mod fake_quorum;
mod fan_outs;
mod forgetting;
mod judge;
mod judged;
mod kinds;
mod model;
mod node;
mod old_ids;
mod random;
mod recorder;
mod spec_language;
mod specs;
mod twin;
mod wheel;
