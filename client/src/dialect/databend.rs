//! Databend's distributed semaphore.
