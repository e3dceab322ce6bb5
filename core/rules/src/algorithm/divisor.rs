//! Division by a number that is known in advance, as a multiplication.
//!
//! For `d` with `2^(k-1) < d <= 2^k` let `m = ceil(2^(53+k) / d)`, which is below `2^54`. Then for every `n < 2^53`
//! `floor(n / d) = floor(n * m / 2^(53+k))` (Granlund and Montgomery, "Division by Invariant Integers using
//! Multiplication", 1994, theorem 4.2): `m * d` exceeds `2^(53+k)` by less than `d <= 2^k`, so the quotient is too large
//! by less than `n / 2^53 / d < 1 / d`, which is too little to reach the next integer.
//!
//! The divisor keeps `2 m` and multiplies it by `2^10 n`: the upper half of that product is `n * m / 2^53`, and shifting
//! one register takes less time than shifting two.

/// A divisor from 1 to 2^53.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    /// Twice the multiplier `m`.
    doubled: u64,
    /// `k`.
    shift: u32,
}

impl Divisor {
    const BITS: u32 = 53;

    pub(crate) fn new(divisor: u64) -> Self {
        debug_assert!((1..=1 << Self::BITS).contains(&divisor));
        let shift = divisor.next_power_of_two().ilog2();
        let multiplier = (1_u128 << (Self::BITS + shift)).div_ceil(u128::from(divisor));
        // Below 2^55, see above.
        Self { doubled: u64::try_from(2 * multiplier).unwrap_or(u64::MAX), shift }
    }

    /// The quotient of a number up to 2^53.
    #[inline]
    pub(crate) fn quotient(self, number: u64) -> u64 {
        debug_assert!(number <= 1 << Self::BITS);
        let upper = (u128::from(number << 10) * u128::from(self.doubled)) >> 64;
        (upper as u64) >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_divides_exactly() {
        let edges = |around: u64| around.saturating_sub(2)..=(around + 2).min(1 << 53);
        let powers = (0..=53).map(|bits| 1_u64 << bits);
        let odd = [3, 7, 97, 1_001, 618_557, 999_983, 60_000_000, 86_400_000_000, 31_622_400_000_000];
        let divisors: Vec<u64> =
            powers.clone().chain(odd).flat_map(edges).filter(|divisor| *divisor > 0).collect();
        for &divisor in &divisors {
            let by = Divisor::new(divisor);
            let multiples =
                [1, 2, 3, (1 << 53) / divisor].map(|times| divisor.saturating_mul(times).min(1 << 53));
            for number in powers.clone().chain(multiples).flat_map(edges) {
                assert_eq!(by.quotient(number), number / divisor, "{number} / {divisor}");
            }
        }
    }
}
