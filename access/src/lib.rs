//! Who may do what: identities, tokens, and rules.
//!
//! Everything here is a pure function of bytes and of the time that the caller passes. The server reads the files and asks; `waymaker-ctl`
//! writes them.
