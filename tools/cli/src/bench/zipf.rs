//! Which key a request has: all alike, or some more often than others.

/// Keys by their rank: the n-th is asked in proportion to 1 / n^exponent.
#[derive(Debug)]
pub(crate) struct KeyChoice {
    /// The share of each key and of those before it; empty where all are alike.
    cumulated: Vec<f64>,
    keys: u32,
}

impl KeyChoice {
    pub(crate) fn new(keys: u32, exponent: f64) -> Self {
        if exponent == 0.0 {
            return Self { cumulated: Vec::new(), keys };
        }
        let mut sum = 0.0;
        let add = |rank: u32| {
            sum += f64::from(rank).powf(-exponent);
            sum
        };
        let mut cumulated: Vec<f64> = (1..=keys).map(add).collect();
        for share in &mut cumulated {
            *share /= sum;
        }
        Self { cumulated, keys }
    }

    pub(crate) fn choose(&self, random: &mut fastrand::Rng) -> u32 {
        if self.cumulated.is_empty() {
            return random.u32(0..self.keys);
        }
        let at = random.f64();
        let found = self.cumulated.partition_point(|share| *share <= at);
        u32::try_from(found).unwrap_or(u32::MAX).min(self.keys - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_zipfs_law() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut counts = [0_u32; 10];
        let choice = KeyChoice::new(10, 1.0);
        for _ in 0..100_000 {
            counts[choice.choose(&mut random) as usize] += 1;
        }
        let harmonic: f64 = (1..=10).map(|rank| 1.0 / f64::from(rank)).sum();
        for (rank, count) in (1..).zip(counts) {
            let expected = 100_000.0 / harmonic / f64::from(rank);
            assert!(
                (f64::from(count) - expected).abs() < 5.0 * expected.sqrt(),
                "{rank}: {count} {expected}"
            );
        }
        let alike = KeyChoice::new(2, 0.0);
        let firsts = (0..10_000).filter(|_| alike.choose(&mut random) == 0).count();
        assert!((4_700..5_300).contains(&firsts), "{firsts}");
    }
}
