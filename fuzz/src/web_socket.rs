//! The bytes of a WebSocket client.

/// Appends a frame. `first` is its first byte: the flag of the last frame of a message, and the opcode.
pub fn put_frame(out: &mut Vec<u8>, first: u8, payload: &[u8]) {
    out.push(first);
    match payload.len() {
        len @ 0..126 => out.push(0x80 | len as u8),
        len @ 126..65_536 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    // A mask of zeros leaves the payload as it is.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
}
