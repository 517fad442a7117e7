//! The engine from outside: what it must do as text, as a model, and under load that no turn can serve at once.

mod budgets;
mod exhaustive;
mod model;
mod random;
mod recorder;
mod spec_language;
mod specs;
mod stubs;
mod twin;
mod wheel;
