//! Additive increase, multiplicative decrease: TCP's reaction to loss (Chiu and Jain, 1989), and Netflix's `AIMDLimit`.

use crate::adaptive::thousandths::{MILLI, shrunk};
use crate::adaptive::window::Measurement;

#[derive(Clone, Debug)]
pub(super) struct Aimd {
    /// A call that took longer counts as failed.
    pub(super) longest_us: u64,
}

impl Aimd {
    /// Netflix's grows by 1 with each call, so the faster the calls, the faster it grows; this one grows by 1 with each window, as
    /// TCP does with each round trip.
    #[expect(clippy::unused_self, reason = "the algorithms have the same functions")]
    pub(super) fn after(&self, limit_milli: u64, measurement: &Measurement) -> u64 {
        if measurement.is_overloaded {
            shrunk(limit_milli)
        } else if measurement.is_limiting {
            limit_milli.saturating_add(MILLI)
        } else {
            limit_milli
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_grows_by_one_and_shrinks_by_a_tenth() {
        let aimd = Aimd { longest_us: 1 };
        let calm = Measurement { mean_ns: Some(1), is_overloaded: false, is_limiting: true };
        assert_eq!(aimd.after(20_000, &calm), 21_000);
        assert_eq!(aimd.after(20_000, &Measurement { is_limiting: false, ..calm }), 20_000);
        let overload = Measurement { is_overloaded: true, ..calm };
        assert_eq!(aimd.after(20_000, &overload), 18_000);
        // A tenth of a small limit is less than a call.
        assert_eq!(aimd.after(4_000, &overload), 3_000);
        assert_eq!(aimd.after(500, &overload), 0);
    }
}
