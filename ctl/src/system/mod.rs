//! The parts of waymaker-ctl that depend on the operating system.
//!
//! `linux` is complete. `portable` serves macOS: it compiles there and has not been run there. It has no job control: Ctrl-Z stops
//! waymaker-ctl alone, and the watchdog kills the command if the lock would be lost before waymaker-ctl is continued.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::*;

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
compile_error!("waymaker-ctl runs on Linux and macOS");
