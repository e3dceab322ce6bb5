//! The name of a reservation, which its caller chooses.

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::groups::GroupTag;
use crate::report::hex;

/// Random bytes of the system, in hexadecimal digits.
#[doc(hidden)]
pub fn random_hex<const BYTES: usize>() -> Result<String, Error> {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random).map_err(|error| {
        Error::new(ErrorKind::Internal, format!("the system has no random numbers: {error}"))
    })?;
    Ok(hex(&random))
}

/// Names one reservation of a key: 1 to 64 bytes that the caller chooses, or random ones.
///
/// A reserve with an id that is there changes nothing and is admitted. So a caller that has received no
/// answer repeats the operation with the same id, and nothing is set aside twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationId {
    /// The bytes, followed by zeros; as stored under a policy with groups, the group's tag is behind them.
    bytes: [u8; Self::MAX_STORED_LENGTH],
    length: u8,
}

impl ReservationId {
    /// The longest id, in bytes.
    pub const MAX_LENGTH: usize = 64;
    /// The longest id with the tag of a group.
    const MAX_STORED_LENGTH: usize = Self::MAX_LENGTH + size_of::<GroupTag>();

    /// The id of these bytes.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) when they are not 1 to 64 bytes.
    pub fn new(id: impl AsRef<[u8]>) -> Result<Self, Error> {
        let read = id.as_ref();
        if !(1..=Self::MAX_LENGTH).contains(&read.len()) {
            return Err(Error::invalid_argument(format!(
                "the id of a reservation has {} bytes: allowed are 1 to {}",
                read.len(),
                Self::MAX_LENGTH
            )));
        }
        Ok(Self::of_bytes(read))
    }

    fn of_bytes(read: &[u8]) -> Self {
        let mut bytes = [0; Self::MAX_STORED_LENGTH];
        bytes[..read.len()].copy_from_slice(read);
        let length = u8::try_from(read.len()).unwrap_or(u8::MAX);
        Self { bytes, length }
    }

    /// An id as it is stored; `None` where it cannot have been.
    pub(crate) fn stored(read: &[u8]) -> Option<Self> {
        (1..=Self::MAX_STORED_LENGTH).contains(&read.len()).then(|| Self::of_bytes(read))
    }

    /// The id as it is stored for a reservation of a group.
    pub(crate) fn in_group(&self, tag: GroupTag) -> Self {
        Self::of_bytes(&[self.as_bytes(), &tag.0].concat())
    }

    /// The group of a reservation that is stored under a policy with groups.
    pub(crate) fn group(&self) -> Option<GroupTag> {
        let id = self.as_bytes();
        id.last_chunk().filter(|_| id.len() > size_of::<GroupTag>()).map(|tag| GroupTag(*tag))
    }

    /// Whether this is stored for a reservation of that id, in any group.
    pub(crate) fn is_in_a_group(&self, id: &Self) -> bool {
        self.as_bytes().split_last_chunk::<4>().is_some_and(|(own, _)| own == id.as_bytes())
    }

    /// The id of an operation that concerns no reservation: no reservation has it.
    #[doc(hidden)]
    pub const NONE: Self = Self { bytes: [0; Self::MAX_STORED_LENGTH], length: 0 };

    /// An id of 16 random bytes as 32 hexadecimal digits. No two processes choose the same.
    ///
    /// # Errors
    /// [`Internal`](ErrorKind::Internal) when the operating system has no random numbers.
    pub fn random() -> Result<Self, Error> {
        Self::new(random_hex::<16>()?)
    }

    /// The bytes of the id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Shows the id as text where it is text.
impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReservationId({})", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_has_1_to_64_bytes() {
        assert_eq!(ReservationId::new("a").unwrap().as_bytes(), b"a");
        assert_eq!(ReservationId::new([0xFF; 64]).unwrap().as_bytes(), [0xFF; 64]);
        for read in ["", &"x".repeat(65)] {
            let refused = ReservationId::new(read).unwrap_err().to_string();
            assert!(refused.contains("allowed are 1 to 64"), "{refused}");
        }
    }

    #[test]
    fn stored_id_of_a_group_has_a_byte_of_its_own() {
        let tag = GroupTag(*b"tag!");
        let id = ReservationId::new("a").unwrap();
        let stored = id.in_group(tag);
        assert_eq!((stored.group(), stored.is_in_a_group(&id)), (Some(tag), true));
        assert_eq!(ReservationId::stored(b"tag!").unwrap().group(), None);
        // The longest one has 64 bytes and the tag.
        let is_stored = |length| ReservationId::stored(&vec![1; length]).is_some();
        assert_eq!([0, 1, 68, 69].map(is_stored), [false, true, true, false]);
    }

    #[test]
    fn random_ids_differ() {
        let ids = [ReservationId::random().unwrap(), ReservationId::random().unwrap()];
        assert!(ids[0] != ids[1] && ids[0].as_bytes().len() == 32);
    }
}
