//! Reading a file of the log piece by piece, so that its length costs no memory.

/// A file of the log as the disk has it.
pub trait FileReader {
    /// The length of the file in bytes.
    fn file_len(&self) -> u64;

    /// Returns `len` bytes from this offset on, or fewer if the file ends before. `len` is at most
    /// [`FRAME_LIMIT`](super::FRAME_LIMIT).
    ///
    /// # Errors
    /// If the bytes cannot be read; the text says why.
    fn read_at(&mut self, offset: u64, len: usize) -> Result<&[u8], String>;
}

/// A file that is in memory.
impl<T: AsRef<[u8]>> FileReader for T {
    fn file_len(&self) -> u64 {
        T::as_ref(self).len() as u64
    }

    fn read_at(&mut self, offset: u64, len: usize) -> Result<&[u8], String> {
        let bytes = T::as_ref(self);
        let rest = usize::try_from(offset).ok().and_then(|start| bytes.get(start..)).unwrap_or_default();
        Ok(rest.get(..len).unwrap_or(rest))
    }
}
