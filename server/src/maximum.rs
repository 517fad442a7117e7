//! Limits that an operator can disable.

use std::num::NonZeroU32;
use std::str::FromStr;

/// Value that disables a limit.
const NONE: &str = "none";
/// Largest limit. It is just below the default limit of Linux for the file descriptors of one process, 1,048,576.
const LARGEST: u32 = 1_000_000;

/// A number from 1 to 1,000,000, or no limit. The default is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maximum(Option<NonZeroU32>);

/// A text or number is not a [`Maximum`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use a number from 1 to {LARGEST}, or `{NONE}`")]
pub struct BadMaximum;

impl Maximum {
    /// No limit.
    pub const NONE: Self = Self(None);

    /// Returns this limit, or no limit for 0.
    pub const fn new(count: u32) -> Self {
        Self(NonZeroU32::new(count))
    }

    /// Returns the number, if there is a limit.
    pub fn get(self) -> Option<u32> {
        self.0.map(NonZeroU32::get)
    }
}

impl TryFrom<i64> for Maximum {
    type Error = BadMaximum;

    fn try_from(count: i64) -> Result<Self, BadMaximum> {
        match u32::try_from(count) {
            Ok(count @ 1..=LARGEST) => Ok(Self::new(count)),
            _ => Err(BadMaximum),
        }
    }
}

impl FromStr for Maximum {
    type Err = BadMaximum;

    fn from_str(text: &str) -> Result<Self, BadMaximum> {
        if text == NONE {
            return Ok(Self::NONE);
        }
        text.parse::<i64>().map_err(|_| BadMaximum)?.try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_is_a_positive_number_or_none() {
        assert_eq!("none".parse(), Ok(Maximum::NONE));
        assert_eq!("1000000".parse(), Ok(Maximum::new(LARGEST)));
        for text in ["0", "-1", "1000001", "many", "", "1.5"] {
            assert_eq!(text.parse::<Maximum>(), Err(BadMaximum), "{text}");
        }
    }
}
