//! Interface to read log files in pieces, so that memory use does not depend on the length of a file.

/// Readable file of the log.
pub trait FileReader {
    /// Returns the length of the file in bytes.
    fn file_len(&self) -> u64;

    /// Returns `len` bytes from this offset on, or fewer if the file ends before. `len` is at most
    /// [`FRAME_LIMIT`](super::FRAME_LIMIT).
    ///
    /// # Errors
    /// Returns the reason as text if the bytes cannot be read.
    fn read_at(&mut self, offset: u64, len: usize) -> Result<&[u8], String>;
}

/// File in memory.
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
