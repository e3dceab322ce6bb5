//! The unit of time in which a quota counts, so that no product exceeds 2^53.
//!
//! Redis scripts compute in doubles, which hold every integer up to 2^53 exactly. So a bucket and a sliding window
//! count time in ticks: the finest power of ten of a microsecond for which their largest product stays within that.
//!
//! - A bucket holds at most `8 * capacity` units of debt, each worth `token = period / tick / gcd(limit, period /
//!   tick)`; the largest product is `8 * capacity * token`.
//! - A sliding window multiplies a count of at most `8 * capacity` by a part of `width / tick`.
//!
//! For example `999983/day token_bucket`: 999983 is prime, so in microseconds a unit is worth 86,400,000,000 and the
//! largest product is 8 * 999,983 * 86,400,000,000 = 6.9e17, which is above 2^53 = 9.0e15. With a tick of 100 us it
//! is 6.9e15, which fits.

/// The largest integer up to which every integer is exact in a double.
pub(crate) const MAX_EXACT: u128 = 1 << 53;

/// How many times its capacity a quota's use may reach by `charge` before it saturates.
pub(crate) const SATURATION: u64 = 8;

/// The tick in microseconds of a continuously refilled bucket, or `None` when no tick that divides the period fits.
pub(crate) fn of_bucket(limit: u64, period_us: u64, capacity: u64) -> Option<u64> {
    finest(period_us, |period| {
        let token = period / gcd(limit, period);
        u128::from(SATURATION) * u128::from(capacity) * u128::from(token)
    })
}

/// The tick in microseconds of a sliding window, or `None` when no tick that divides the sub-window fits.
pub(crate) fn of_sliding_window(capacity: u64, width_us: u64) -> Option<u64> {
    finest(width_us, |width| u128::from(SATURATION) * u128::from(capacity) * u128::from(width))
}

/// The finest power of ten that divides `span_us` and whose largest product, given the span in ticks, is exact.
fn finest(span_us: u64, largest_product: impl Fn(u64) -> u128) -> Option<u64> {
    std::iter::successors(Some(1_u64), |tick| Some(tick * 10))
        .take_while(|tick| span_us.is_multiple_of(*tick))
        .find(|tick| largest_product(span_us / tick) <= MAX_EXACT)
}

/// The greatest common divisor; `gcd(0, b)` is `b`.
pub const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// How many units of debt a tick repays under a limit and a tick.
pub(crate) fn rate(limit: u64, period_us: u64, tick_us: u64) -> u64 {
    limit / gcd(limit, period_us / tick_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_US: u64 = 86_400_000_000;

    #[test]
    fn tick_repays_as_much_as_its_microseconds() {
        for (limit, tick_us, expected) in
            [(3, 1, 3), (1_000_000, 1, 1), (1_000_000, 10, 10), (7, 1_000, 7), (0, 1, 0)]
        {
            assert_eq!(rate(limit, 1_000_000, tick_us), expected, "{limit} {tick_us}");
        }
    }

    #[test]
    fn nearly_every_quota_counts_in_microseconds() {
        assert_eq!(of_bucket(100, 60_000_000, 100), Some(1));
        assert_eq!(of_bucket(1_000_000, DAY_US, 1_000_000), Some(1));
        assert_eq!(of_sliding_window(1_000_000, DAY_US / 10), Some(10));
        assert_eq!(of_sliding_window(10_000, DAY_US / 10), Some(1));
    }

    #[test]
    fn a_large_prime_a_day_counts_in_coarser_ticks() {
        assert_eq!(of_bucket(999_983, DAY_US, 999_983), Some(100));
    }

    #[test]
    fn what_fits_no_tick_has_none() {
        // For an odd number of microseconds the only tick is one microsecond.
        assert_eq!(of_bucket(1, 1_000_000_000_001, 1_000_000_000_000), None);
        assert_eq!(of_sliding_window(1_000_000_000_000, 1_000_001), None);
    }
}
