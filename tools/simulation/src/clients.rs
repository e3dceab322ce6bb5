//! Generated clients: a heap of what each does next.
//!
//! Each client has random numbers of its own, so its gaps are the same under every policy, whatever the others do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::attempt::{Attempt, Ends, Source, Verdict};
use crate::traffic::{Arrivals, Group, Reaction};

/// All clients of some groups.
pub(crate) struct Clients {
    groups: Vec<Behaviour>,
    states: Vec<Client>,
    /// The time of each client's next attempt.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    ends: Ends,
}

/// What the clients of a group have in common.
struct Behaviour {
    arrivals: Arrivals,
    cost: u64,
    reaction: Reaction,
    end_us: u64,
}

struct Client {
    random: Xoshiro256PlusPlus,
    group: u32,
    /// By which gaps are multiplied, for the client's share of the rate.
    stretch: f64,
    /// The time of the request, exactly.
    at_us: f64,
    /// When the request was made that is being repeated.
    first_us: Option<u64>,
    /// How many requests of a burst follow.
    burst_left: u32,
}

impl Clients {
    /// The clients of these groups until the end of the simulation.
    pub(crate) fn new(groups: &[Group], seed: u64, end_us: u64) -> Self {
        let mut made =
            Self { groups: Vec::new(), states: Vec::new(), heap: BinaryHeap::new(), ends: Ends::default() };
        for group in groups {
            let behaviour = Behaviour {
                arrivals: group.arrivals,
                cost: group.cost,
                reaction: group.reaction,
                end_us: group.to_us.unwrap_or(end_us).min(end_us),
            };
            let at = u32::try_from(made.groups.len()).unwrap_or(u32::MAX);
            for stretch in stretches(group) {
                made.add(&behaviour, at, stretch, group.from_us, seed);
            }
            made.groups.push(behaviour);
        }
        made
    }

    fn add(&mut self, behaviour: &Behaviour, group: u32, stretch: f64, from_us: u64, seed: u64) {
        let number = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        // The generator mixes its seed, so seeds that are close to each other are fine.
        let seed = seed ^ u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut client = Client {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            group,
            stretch,
            at_us: exact(from_us),
            first_us: None,
            burst_left: 0,
        };
        client.start(behaviour.arrivals);
        let time_us = whole(client.at_us);
        self.states.push(client);
        if time_us < behaviour.end_us {
            self.heap.push(Reverse((time_us, number)));
        }
    }
}

/// By how much each client's gaps are longer than the mean: the mean rate of the group stays as it is.
fn stretches(group: &Group) -> impl Iterator<Item = f64> + use<> {
    let (count, zipf) = (group.clients, group.zipf);
    let weight = move |rank: u32| f64::from(rank).powf(-zipf);
    let mean = (1..=count).map(weight).sum::<f64>() / f64::from(count);
    (1..=count).map(move |rank| mean / weight(rank))
}

impl Client {
    /// Sets the time of the first request. Clients are at random points of their gaps.
    fn start(&mut self, arrivals: Arrivals) {
        match arrivals {
            Arrivals::Even { gap_us } => self.at_us += self.uniform() * gap_us * self.stretch,
            Arrivals::Poisson { .. } => self.advance(arrivals),
            Arrivals::Burst { size, every_us } => {
                self.at_us += self.uniform() * exact(every_us);
                self.burst_left = size - 1;
            }
        }
    }

    /// Sets the time of the next request.
    fn advance(&mut self, arrivals: Arrivals) {
        match arrivals {
            Arrivals::Even { gap_us } => self.at_us += gap_us * self.stretch,
            // The gaps of a Poisson process have an exponential distribution.
            Arrivals::Poisson { gap_us } => self.at_us -= (1.0 - self.uniform()).ln() * gap_us * self.stretch,
            Arrivals::Burst { .. } if self.burst_left > 0 => self.burst_left -= 1,
            Arrivals::Burst { size, every_us } => {
                self.at_us += exact(every_us);
                self.burst_left = size - 1;
            }
        }
    }

    /// A number from 0 to below 1, of 53 random bits.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "times are below 2^53 microseconds")]
fn exact(time_us: u64) -> f64 {
    time_us as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded down, and saturated")]
fn whole(time_us: f64) -> u64 {
    time_us as u64
}

impl Source for Clients {
    #[inline]
    fn next(&mut self) -> Option<Attempt> {
        let Reverse((time_us, number)) = *self.heap.peek()?;
        let client = &self.states[number as usize];
        Some(Attempt {
            time_us,
            client: number,
            cost: self.groups[client.group as usize].cost,
            first_us: client.first_us.unwrap_or(time_us),
            is_repeated: client.first_us.is_some(),
            line: number,
        })
    }

    #[inline]
    fn answer(&mut self, attempt: &Attempt, verdict: Verdict) {
        let Some(mut top) = self.heap.peek_mut() else { return };
        let client = &mut self.states[attempt.client as usize];
        let behaviour = &self.groups[client.group as usize];
        let repeated_after_us = match behaviour.reaction {
            _ if verdict.allowed => None,
            Reaction::Hammer => None,
            Reaction::Leave => {
                self.ends.left += 1;
                PeekMut::pop(top);
                return;
            }
            Reaction::Wait if verdict.retry_after_us.is_none() => {
                self.ends.given_up += 1;
                None
            }
            Reaction::Wait => verdict.retry_after_us,
            Reaction::Retry { after_us } => Some(after_us),
        };
        let next_us = if let Some(after_us) = repeated_after_us {
            client.first_us = Some(attempt.first_us);
            // A wait of 0 would never end.
            attempt.time_us.saturating_add(after_us.max(1))
        } else {
            if client.first_us.take().is_some() {
                // The client has waited, and what follows comes later.
                client.at_us = exact(attempt.time_us);
            }
            client.advance(behaviour.arrivals);
            whole(client.at_us)
        };
        if next_us < behaviour.end_us {
            *top = Reverse((next_us, attempt.client));
        } else {
            self.ends.unfinished += u64::from(client.first_us.is_some());
            PeekMut::pop(top);
        }
    }

    fn ends(&self) -> Ends {
        self.ends
    }
}

#[cfg(test)]
mod tests;
