//! The most units of a key in any span of some lengths.

use std::collections::VecDeque;

/// Units at their times, as long as the longest span reaches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busiest {
    moments: VecDeque<(u64, u64)>,
    /// How many moments have been dropped.
    dropped: u64,
    spans: Box<[Span]>,
}

/// The moments inside of one span that ends now.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    /// The number of the oldest moment inside.
    first: u64,
    units: u64,
    most: u64,
}

impl Busiest {
    /// Counts units. Times never go back, and the lengths of the spans, in microseconds, are always the same. Spans are
    /// half-open: what is as old as a span's length is not in it.
    #[inline]
    pub(crate) fn add(&mut self, lengths_us: &[u64], time_us: u64, units: u64) {
        if units == 0 || lengths_us.is_empty() {
            return;
        }
        if self.spans.is_empty() {
            self.spans = vec![Span::default(); lengths_us.len()].into();
        }
        match self.moments.back_mut() {
            Some((last_us, sum)) if *last_us == time_us => *sum += units,
            _ => self.moments.push_back((time_us, units)),
        }
        let mut oldest = u64::MAX;
        for (span, length_us) in self.spans.iter_mut().zip(lengths_us) {
            span.units += units;
            while let Some((moment_us, sum)) = self.moments.get(index(span.first, self.dropped))
                && time_us - moment_us >= *length_us
            {
                span.units -= sum;
                span.first += 1;
            }
            span.most = span.most.max(span.units);
            oldest = oldest.min(span.first);
        }
        while self.dropped < oldest {
            self.moments.pop_front();
            self.dropped += 1;
        }
    }

    /// The most units in any span of each length; nothing when nothing was counted.
    pub(crate) fn most(&self) -> impl Iterator<Item = u64> {
        self.spans.iter().map(|span| span.most)
    }
}

fn index(number: u64, dropped: u64) -> usize {
    usize::try_from(number - dropped).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_looking_at_every_span() {
        let lengths = [7, 10, 31];
        let mut busiest = Busiest::default();
        let mut events: Vec<(u64, u64)> = Vec::new();
        let (mut time, mut random) = (0, 88_172_645_463_325_252_u64);
        for _ in 0..2_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            time += random % 5;
            let units = random >> 8 & 3;
            events.push((time, units));
            busiest.add(&lengths, time, units);
        }
        let most = lengths.map(|length| {
            let within = |end: u64| {
                let inside = events.iter().filter(|(at, _)| *at <= end && end - at < length);
                inside.map(|(_, units)| units).sum::<u64>()
            };
            events.iter().map(|(end, _)| within(*end)).max().unwrap()
        });
        assert_eq!(busiest.most().collect::<Vec<_>>(), most);
        assert!(busiest.moments.len() <= 31);
    }

    #[test]
    fn a_span_is_half_open() {
        let mut busiest = Busiest::default();
        busiest.add(&[10], 0, 1);
        busiest.add(&[10], 10, 1);
        busiest.add(&[10], 19, 1);
        assert_eq!(busiest.most().collect::<Vec<_>>(), [2]);
    }
}
