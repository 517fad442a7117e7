//! Tracks the incomplete TLS record of a connection.

/// Length of a record header: type, version and the length of the content.
const HEADER_LEN: usize = 5;

/// Received beginning of a record. The TLS library keeps it until it can decrypt the record, but does not report its
/// length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartialRecord {
    header: [u8; HEADER_LEN],
    /// Number of received bytes of the record.
    len: usize,
}

impl PartialRecord {
    /// Returns the number of received bytes of the incomplete record.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Counts bytes that were received.
    pub(super) fn note(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(self.missing_len().min(bytes.len()));
            if self.len < HEADER_LEN {
                self.header[self.len..][..part.len()].copy_from_slice(part);
            }
            self.len += part.len();
            if self.missing_len() == 0 {
                self.len = 0;
            }
            bytes = rest;
        }
    }

    /// Returns the number of missing bytes of the header or, after it, of the content.
    fn missing_len(&self) -> usize {
        if self.len < HEADER_LEN {
            return HEADER_LEN - self.len;
        }
        let [_, _, _, high, low] = self.header;
        HEADER_LEN + usize::from(u16::from_be_bytes([high, low])) - self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns records of these lengths. Their contents look like headers of long records.
    fn records(lens: &[u16]) -> Vec<u8> {
        let record = |len: &u16| {
            let header = [&[23, 3, 3][..], &len.to_be_bytes()].concat();
            [header, vec![255; usize::from(*len)]].concat()
        };
        lens.iter().flat_map(record).collect()
    }

    #[test]
    fn bytes_of_an_incomplete_record_are_counted() {
        let lens = [1, 0, 300, 16_640, 2];
        let bytes = records(&lens);
        for step in [1, 2, 3, 7, 64, 1_000, bytes.len()] {
            let mut partial = PartialRecord::default();
            let mut arrived_len = 0;
            for part in bytes.chunks(step) {
                partial.note(part);
                arrived_len += part.len();
                let mut whole_len = 0;
                for len in lens {
                    let record_len = HEADER_LEN + usize::from(len);
                    whole_len += if whole_len + record_len <= arrived_len { record_len } else { break };
                }
                assert_eq!(partial.len(), arrived_len - whole_len, "{arrived_len} bytes, {step} at a time");
            }
        }
    }
}
