//! The program as people run it: against an echo, against Redis, against our server, and against servers that lie.

mod arguments;
mod compare;
mod echo;
mod liar;
mod program;
mod redis;
mod skip;
mod waymaker;
mod workloads;
