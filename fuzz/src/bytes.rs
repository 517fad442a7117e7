//! Reads the choices of a fuzz target from its input, front to back.

/// An input that is read from its front. At its end every choice is zero.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Begins to read this input.
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Returns whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    /// Reads two bytes, little endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    /// Reads eight bytes, little endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.u8()))
    }

    /// Reads a number below `count`, which is not 0, from one byte.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.u8()) % count
    }

    /// Reads a length of two bytes and as many bytes, or as many as there are.
    pub fn piece(&mut self) -> &'a [u8] {
        let len = usize::from(self.u16());
        self.take(len)
    }

    /// Reads `len` bytes, or as many as there are.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns the bytes that were not read.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
