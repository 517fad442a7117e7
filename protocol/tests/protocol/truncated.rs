//! Bodies that end too early.

use proptest::prelude::*;
use waymaker_protocol::DecodeError;
use waymaker_protocol::frame::HEADER_LEN;

use crate::arbitrary::{config, message};
use crate::layout::{cut_error, layout};
use crate::samples::samples;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_error_for_a_truncated_body_names_the_cut_field(message in message()) {
        let bytes = message.encode(1);
        for cut in HEADER_LEN..bytes.len() {
            match cut_error(message.sender(), &bytes, cut) {
                DecodeError::Truncated { field, offset, need, have } => {
                    prop_assert_eq!(have, cut);
                    prop_assert!(
                        offset <= cut && cut < offset + need && offset + need <= bytes.len(),
                        "cut at {}: {} at {} with {} bytes", cut, field, offset, need
                    );
                }
                DecodeError::BadMagic => prop_assert!(cut < HEADER_LEN + 8),
                error => prop_assert!(false, "cut at {}: {}", cut, error),
            }
        }
    }
}

#[test]
fn every_field_is_named_if_it_is_cut_at_any_byte() {
    for sample in samples() {
        let (sender, bytes) = (sample.message.sender(), sample.message.encode(sample.number));
        for field in layout(sender, &bytes).into_iter().skip_while(|field| field.offset < HEADER_LEN) {
            for cut in field.offset..field.offset + field.len {
                let error = cut_error(sender, &bytes, cut);
                assert_eq!(error.field(), field.name, "{} cut at {cut}", sample.name);
            }
        }
    }
}
