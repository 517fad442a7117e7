//! The dialects against the real server: what the tests of the systems themselves say of them, and what we promise beyond.

mod clever;
mod databend;
mod encrypted;
mod locket;
mod locktopus;
mod waymaker;
