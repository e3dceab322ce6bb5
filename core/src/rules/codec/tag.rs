//! The tag that tells which quota of a policy a record belongs to.

use sha2::{Digest, Sha256};

use crate::rules::quota::Quota;

/// The first bytes of a digest of the quota's identity: algorithm, period, step and buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) [u8; 4]);

impl Tag {
    pub(crate) fn of(quota: &Quota) -> Self {
        let text = format!(
            "{} {} {} {}",
            quota.algorithm(),
            quota.period_us(),
            quota.step().unwrap_or(0),
            quota.buckets().unwrap_or(0)
        );
        let digest = Sha256::digest(text);
        Self([digest[0], digest[1], digest[2], digest[3]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_identity_and_never_changes() {
        let tag = |text: &str| Tag::of(&text.parse().unwrap()).0;
        assert_eq!(tag("5/m token_bucket"), tag("7/m token_bucket burst=9 count_denied"));
        assert_ne!(tag("5/m token_bucket"), tag("5/m leaky_bucket"));
        assert_ne!(tag("5/m token_bucket"), tag("5/m token_bucket step=5"));
        assert_ne!(tag("5/m buckets=1"), tag("5/m buckets=2"));
        // Stored states depend on this value.
        assert_eq!(tag("5/m token_bucket"), TOKEN_BUCKET_OF_A_MINUTE);
    }

    const TOKEN_BUCKET_OF_A_MINUTE: [u8; 4] = [24, 112, 56, 51];
}
