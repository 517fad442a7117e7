//! The bytes of an HTTP/2 client that calls gRPC methods.

/// The first bytes of a connection: the preface and empty SETTINGS.
pub const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const HEADERS: u8 = 1;
const DATA: u8 = 0;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Longest frame that a server must accept.
const FRAME_LEN_MAX: usize = 16 << 10;

/// Appends the call of a method with these bytes as its message.
pub fn put_call(out: &mut Vec<u8>, stream: u32, path: &str, message: &[u8]) {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "fuzz"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ] {
        // Literal without indexing, a new name; no length here reaches the 127 that needs another byte.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("a short text"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    put_frame(out, HEADERS, END_HEADERS, stream, &block);
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    let mut chunks = body.chunks(FRAME_LEN_MAX).peekable();
    while let Some(chunk) = chunks.next() {
        put_frame(out, DATA, if chunks.peek().is_none() { END_STREAM } else { 0 }, stream, chunk);
    }
}

/// Appends a frame.
pub fn put_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let len = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&len[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}
