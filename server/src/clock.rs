//! The one place that reads a clock.

use waymaker_engine::Time;

/// Where workers get the time from. A simulator hands in another.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// Milliseconds since boot, suspended time included.
    fn now(&self) -> Time;
    /// The same in nanoseconds, for rates.
    fn nanos(&self) -> u64;
    /// Microseconds since 1970: for instants that clients name, and for display.
    fn unix_micros(&self) -> i64;
}

/// The machine's boot-time clock. It goes on while the machine is suspended, so leases run out as they should.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    /// Names the boot of the machine from which its time counts.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn boot_id() -> std::io::Result<[u8; 16]> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
        let number = u128::from_str_radix(&digits, 16).map_err(std::io::Error::other)?;
        Ok(number.to_be_bytes())
    }
}

impl Clock for BootClock {
    #[inline]
    fn now(&self) -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Time::from_millis(now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000)
    }

    #[inline]
    fn nanos(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn unix_micros(&self) -> i64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        now.tv_sec * 1_000_000 + now.tv_nsec / 1000
    }
}
