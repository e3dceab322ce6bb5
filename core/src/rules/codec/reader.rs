//! Reads numbers from untrusted bytes.

/// The bytes that are left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a big-endian number of `length` bytes, at most 8.
    pub(crate) fn number(&mut self, length: usize) -> Option<u64> {
        self.bytes(length).map(number)
    }

    /// Reads a length, which is a number of `length` bytes.
    pub(crate) fn length(&mut self, length: usize) -> Option<usize> {
        self.number(length).and_then(|length| usize::try_from(length).ok())
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|byte| byte[0])
    }
}

/// The big-endian number in at most 8 bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
