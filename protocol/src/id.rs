//! Ids that the server hands out and clients hand back unread.

/// Length of an id on the wire.
pub const ID_LEN: usize = 16;

macro_rules! opaque_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name {
            /// Where the server finds it again. Its layout is the server's own.
            pub place: u64,
            /// Random bits: whoever knows them may act.
            pub secret: u64,
        }

        impl $name {
            /// The id as it stands on the wire: place, then secret, little endian.
            #[inline]
            pub fn to_bytes(self) -> [u8; ID_LEN] {
                let mut bytes = [0; ID_LEN];
                bytes[..8].copy_from_slice(&self.place.to_le_bytes());
                bytes[8..].copy_from_slice(&self.secret.to_le_bytes());
                bytes
            }

            /// The id that stands in these bytes.
            #[inline]
            pub fn from_bytes(bytes: [u8; ID_LEN]) -> Self {
                let value = u128::from_le_bytes(bytes);
                Self { place: value as u64, secret: (value >> 64) as u64 }
            }
        }

        /// 32 hexadecimal digits: place, then secret.
        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "{:016x}{:016x}", self.place, self.secret)
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
                let (place, secret) = parse_halves(text)?;
                Ok(Self { place, secret })
            }
        }
    };
}

opaque_id! {
    /// One claim: its place in the server and 64 secret random bits. Never used again for another claim.
    LockId
}
opaque_id! {
    /// One session: its place in the server and 64 secret random bits. All zero where there is no session.
    SessionId
}

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id is 32 hexadecimal digits")]
pub struct ParseIdError;

fn parse_halves(text: &str) -> Result<(u64, u64), ParseIdError> {
    // `from_str_radix` also takes a sign, which an id never has.
    if text.len() != 2 * ID_LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ParseIdError);
    }
    let half = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| ParseIdError);
    Ok((half(&text[..ID_LEN])?, half(&text[ID_LEN..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_give_the_same_id_back() {
        let id = LockId { place: 0x0102_0304_0506_0708, secret: 0xfedc_ba98_7654_3210 };
        assert_eq!(id.to_string(), "0102030405060708fedcba9876543210");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(LockId::from_bytes(id.to_bytes()), id);
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
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
