//! How messages of our contracts become bytes.

use prost::Message;
use std::marker::PhantomData;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Bytes by which a buffer grows, and at which it is handed on. Our messages are short and many streams are open at once;
/// the library's own 8 KiB would be most of what a held lock costs.
const BUFFER_LEN: usize = 256;
const YIELD_LEN: usize = 32 << 10;

/// The codec of the library, with small buffers.
#[derive(Debug, Default)]
pub struct SmallBufferCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Codec for SmallBufferCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstEncoder::new(BufferSettings::new(BUFFER_LEN, YIELD_LEN))
    }

    fn decoder(&mut self) -> ProstDecoder<U> {
        ProstDecoder::new(BufferSettings::new(BUFFER_LEN, YIELD_LEN))
    }
}
