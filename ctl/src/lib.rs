//! waymaker-ctl: locks from the shell.
