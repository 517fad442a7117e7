//! Ids that the server issues. Clients send them back unchanged and do not interpret them.

/// Length of an id on the wire, in bytes.
pub const ID_LEN: usize = 16;

macro_rules! opaque_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name {
            /// Location in the server. Only the server knows its layout.
            pub place: u64,
            /// Random bits that a request must contain: a client that does not know them cannot use the id.
            pub secret: u64,
        }

        impl $name {
            /// Returns the id as sent on the wire: 8 bytes of `place`, the location in the server, then 8 bytes of
            /// `secret`. Both numbers are little endian.
            #[inline]
            pub fn to_bytes(self) -> [u8; ID_LEN] {
                let mut bytes = [0; ID_LEN];
                bytes[..8].copy_from_slice(&self.place.to_le_bytes());
                bytes[8..].copy_from_slice(&self.secret.to_le_bytes());
                bytes
            }

            /// Returns the id with these bytes.
            #[inline]
            pub fn from_bytes(bytes: [u8; ID_LEN]) -> Self {
                let value = u128::from_le_bytes(bytes);
                Self { place: value as u64, secret: (value >> 64) as u64 }
            }
        }

        /// Writes 32 hexadecimal digits: place, then secret.
        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut digits = [0; 2 * ID_LEN];
                put_digits(&mut digits, u128::from(self.place) << 64 | u128::from(self.secret));
                formatter.write_str(std::str::from_utf8(&digits).unwrap_or_default())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, concat!(stringify!($name), "({})"), self)
            }
        }

        impl std::str::FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let value = parse_digits(text).ok_or(ParseIdError)?;
                Ok(Self { place: (value >> 64) as u64, secret: value as u64 })
            }
        }
    };
}

opaque_id! {
    /// Id of a claim: its location in the server and 64 secret random bits. No other claim ever gets the same id.
    LockId
}
opaque_id! {
    /// Id of a session: its location in the server and 64 secret random bits. All bits are zero without a session.
    SessionId
}

/// The text is not an id: an id has 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lock id has 32 hexadecimal digits")]
pub struct ParseIdError;

// Some front ends parse and print an id for each request. `put_digits` and `parse_digits` are several times as fast as
// the general functions of the standard library.

fn put_digits(digits: &mut [u8; 2 * ID_LEN], value: u128) {
    for (pair, byte) in digits.chunks_exact_mut(2).zip(value.to_be_bytes()) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
}

/// Parses 32 hexadecimal digits of either case. Returns `None` for any other text.
fn parse_digits(text: &str) -> Option<u128> {
    let digits: &[u8; 2 * ID_LEN] = text.as_bytes().try_into().ok()?;
    let mut value = [0; ID_LEN];
    let mut seen = 0;
    for (byte, pair) in value.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (DIGIT_VALUES[usize::from(pair[0])], DIGIT_VALUES[usize::from(pair[1])]);
        seen |= high | low;
        *byte = high << 4 | low & 15;
    }
    (seen < NO_DIGIT).then(|| u128::from_be_bytes(value))
}

const NO_DIGIT: u8 = 16;

/// Value of each byte as a hexadecimal digit; `NO_DIGIT` for all other bytes.
const DIGIT_VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < NO_DIGIT {
        let digit = b"0123456789abcdef"[value as usize];
        values[digit as usize] = value;
        values[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    values
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_round_trips_through_text_and_bytes() {
        let id = LockId { place: 0x0102_0304_0506_0708, secret: 0xfedc_ba98_7654_3210 };
        assert_eq!(id.to_string(), "0102030405060708fedcba9876543210");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
        assert_eq!(LockId::from_bytes(id.to_bytes()), id);
    }

    #[test]
    fn invalid_id_text_is_rejected() {
        for text in [
            "",
            "1",
            "+102030405060708fedcba987654321",
            &"g".repeat(32),
            &"0".repeat(33),
            "é".repeat(16).as_str(),
        ] {
            assert_eq!(text.parse::<LockId>(), Err(ParseIdError), "{text:?}");
        }
    }
}
