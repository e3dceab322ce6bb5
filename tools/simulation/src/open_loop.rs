//! Requests of generated clients that go on whatever the answers are, for simulations that answer later than they are asked.

use crate::attempt::{Attempt, Source, Verdict};
use crate::clients::Clients;
use crate::error::SimulationError;
use crate::traffic::{Group, Reaction, parse_traffic};

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// In microseconds since the start.
    pub time_us: u64,
    /// The number of the client, from 0.
    pub client: u32,
    /// The units that the request asks for.
    pub cost: u64,
}

/// The requests of all clients in the order of their times.
pub struct OpenLoop {
    clients: Clients,
    groups: Vec<Group>,
}

impl OpenLoop {
    /// The requests of traffic as text, in the form that `polylimit simulate --traffic` takes.
    ///
    /// # Errors
    /// The text is malformed, or its clients react to denials.
    pub fn new(traffic: &str, seed: u64, end_us: u64) -> Result<Self, SimulationError> {
        let groups = parse_traffic(traffic)?;
        if let Some(group) = groups.iter().find(|group| group.reaction != Reaction::Hammer) {
            return Err(SimulationError::usage(format!(
                "the clients {} react to denials: allowed is denied=hammer only, which is the default",
                group.name
            )));
        }
        Ok(Self { clients: Clients::new(&groups, seed, end_us), groups })
    }

    /// The keys of the clients, by their numbers.
    pub fn keys(&self) -> impl Iterator<Item = String> {
        self.groups.iter().flat_map(|group| (1..=group.clients).map(|number| group.key(number)))
    }
}

impl Iterator for OpenLoop {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let attempt = self.clients.next()?;
        self.clients.answer(&attempt, Verdict::ADMITTED);
        let Attempt { time_us, client, cost, .. } = attempt;
        Some(Arrival { time_us, client, cost })
    }
}

impl std::fmt::Debug for OpenLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenLoop").field("groups", &self.groups).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_clients_arrive_at_their_rate_with_keys_of_their_own() {
        let arrivals = OpenLoop::new("a: 2 clients 10/s; b: 1 client 5/s cost=3", 1, 2_000_000).unwrap();
        assert_eq!(arrivals.keys().collect::<Vec<_>>(), ["a-1", "a-2", "b"]);
        let all: Vec<_> = arrivals.collect();
        assert!(all.is_sorted_by_key(|arrival| arrival.time_us));
        let of = |client| all.iter().filter(|arrival| arrival.client == client).count();
        assert_eq!([of(0), of(1), of(2)], [20, 20, 10]);
        assert!(all.iter().all(|arrival| arrival.cost == if arrival.client == 2 { 3 } else { 1 }));
    }

    #[test]
    fn clients_that_react_to_denials_are_refused() {
        for reaction in ["wait", "leave", "retry=100ms"] {
            let text = format!("1 client 2/s denied={reaction}");
            assert!(OpenLoop::new(&text, 1, 1_000).unwrap_err().to_string().contains("denied=hammer"));
        }
    }
}
