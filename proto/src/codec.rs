//! Codec of the gRPC messages.

use prost::Message;
use std::marker::PhantomData;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Growth step of a buffer and size at which it is passed on, both in bytes. Messages are short and many streams are
/// open at once; with the library's default of 8 KiB the buffers would use most of the memory of a held lock.
const BUFFER_LEN: usize = 256;
const YIELD_LEN: usize = 32 << 10;

/// Codec of the library, with small buffers.
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
