//! The reservations of one key: a list, and what it sets aside now and later.

use std::cmp::Reverse;
use std::time::Duration;

use smallvec::SmallVec;

use crate::groups::GroupTable;
use crate::reservation::id::ReservationId;
use crate::units::{MAX_US, micros};

/// The most reservations that one key may have at a time.
pub const MAX_RESERVATIONS: usize = 1_000;
/// The cost of a commit that charges what was reserved: above every cost, and it fits the five bytes of a script's argument.
pub const AS_RESERVED: u64 = (1 << 40) - 1;

/// What a reservation has for the time that its id is remembered when the id was committed before: nothing is charged for it. Above
/// every such time, and it fits the five bytes of a script's argument.
pub(crate) const REPEATED: u64 = (1 << 40) - 1;

/// The id of a reservation, how long it lasts, and how long its caller waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationTerms {
    /// Names the reservation among those of its key.
    pub id: ReservationId,
    /// How long the reservation lasts unless it is renewed: 1 ms to 48 h, in whole microseconds.
    pub ttl: Duration,
    /// How long the caller waits in line until the store admits the reservation; zero does not wait.
    pub timeout: Duration,
    /// How long after a commit its id is remembered, so that nothing is charged for it again: 1 ms to 48 h, in whole
    /// microseconds; zero does not remember it.
    pub remember: Duration,
}

impl ReservationTerms {
    #[doc(hidden)]
    pub const MIN_TTL_US: u64 = 1_000;
    #[doc(hidden)]
    pub const MAX_TTL_US: u64 = 48 * 3_600_000_000;

    #[doc(hidden)]
    pub fn hold(&self) -> Hold {
        Hold { id: self.id, ttl_us: micros(self.ttl), remember_us: micros(self.remember) }
    }
}

/// The cost of a commit of this many units, or of what was reserved. Units that would mean the latter are one more, and refused like
/// every cost that is too large.
pub fn commit_cost(spent: Option<u64>) -> u64 {
    spent.map_or(AS_RESERVED, |spent| if spent == AS_RESERVED { spent + 1 } else { spent })
}

/// The arguments of an operation on one reservation besides its cost, or the time of a block, which has no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The id of the reservation.
    pub id: ReservationId,
    /// How long the reservation or the block lasts from now; 0 for a commit and a cancel, and to forget a block.
    pub ttl_us: u64,
    /// How long a reserve asks its id to be remembered after the commit, or `REPEATED`; 0 for every other operation.
    pub remember_us: u64,
}

impl Hold {
    /// The shortest block.
    pub const MIN_BLOCK_US: u64 = 1_000;
    /// The longest block: 366 days.
    pub const MAX_BLOCK_US: u64 = 366 * 86_400_000_000;

    /// A block of a key for a time, or no block.
    pub fn of_block(for_us: u64) -> Self {
        Self { id: ReservationId::NONE, ttl_us: for_us, remember_us: 0 }
    }

    /// The arguments of a commit or a cancel.
    pub fn of_end(id: ReservationId) -> Self {
        Self { id, ttl_us: 0, remember_us: 0 }
    }

    /// The arguments of a renewal.
    pub fn of_renewal(id: ReservationId, ttl: Duration) -> Self {
        Self { id, ttl_us: micros(ttl), remember_us: 0 }
    }
}

/// Units of a key that are set aside, or the record of a commit, which has no units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) id: ReservationId,
    pub(crate) units: u64,
    /// It counts before this time.
    pub(crate) ends_us: u64,
    pub(crate) ttl_us: u64,
    /// How long the id is remembered after the commit, or [`REPEATED`]; 0 in the record of a commit.
    pub(crate) remember_us: u64,
}

impl Reservation {
    /// When it ends by a clock that may have gone back: it lasts no longer from now than it was made for.
    pub(crate) fn ends_by(&self, now_us: u64) -> u64 {
        self.ends_us.min(now_us.saturating_add(self.ttl_us))
    }

    fn is_valid(&self) -> bool {
        self.ends_us <= MAX_US
    }

    /// Whether it has this id; `in_groups` where ids are stored with groups.
    pub(crate) fn is(&self, id: &ReservationId, in_groups: bool) -> bool {
        if in_groups { self.id.is_in_a_group(id) } else { self.id == *id }
    }
}

/// The reservations of one key, or the commits that are remembered, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations(pub(crate) Vec<Reservation>);

/// What is set aside from one of the ends to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// When this begins to hold.
    pub(crate) from_us: u64,
    /// The units that all of them hold.
    pub units: u64,
    /// The number of reservations.
    pub alive: u64,
}

impl Reservations {
    /// Makes a list of what was stored; `None` where it cannot have been written by this project.
    pub(crate) fn of_parts(list: Vec<Reservation>) -> Option<Self> {
        let is_valid = list.len() <= MAX_RESERVATIONS && list.iter().all(Reservation::is_valid);
        is_valid.then_some(Self(list))
    }

    /// The reservations that count, with the times at which they end by this clock.
    pub(crate) fn alive(&self, now_us: u64) -> impl Iterator<Item = (u64, &Reservation)> {
        let ends = self.0.iter().map(move |reservation| (reservation.ends_by(now_us), reservation));
        ends.filter(move |(ends_us, _)| *ends_us > now_us)
    }

    pub(crate) fn held(&self, now_us: u64) -> Held {
        let none = Held { from_us: now_us, units: 0, alive: 0 };
        self.alive(now_us).fold(none, |held, (_, reservation)| Held {
            units: held.units + reservation.units,
            alive: held.alive + 1,
            ..held
        })
    }

    /// How long until the last reservation ends; 0 without one.
    pub(crate) fn reset_after_us(&self, now_us: u64) -> u64 {
        self.alive(now_us).map(|(ends_us, _)| ends_us - now_us).max().unwrap_or(0)
    }

    /// What is set aside from now on, as each of the reservations ends: the walk over the ends.
    pub(crate) fn walk(&self, now_us: u64) -> SmallVec<[Held; 4]> {
        let mut ends: Vec<(u64, u64)> =
            self.alive(now_us).map(|(ends_us, reservation)| (ends_us, reservation.units)).collect();
        ends.sort_unstable_by_key(|(ends_us, _)| Reverse(*ends_us));
        let mut held = self.held(now_us);
        let mut steps: SmallVec<[Held; 4]> = SmallVec::from_slice(&[held]);
        while let Some((from_us, units)) = ends.pop() {
            held = Held { from_us, units: held.units - units, alive: held.alive - 1 };
            match steps.last_mut() {
                Some(last) if last.from_us == from_us => *last = held,
                _ => steps.push(held),
            }
        }
        steps
    }

    /// Adds a reservation or a commit that lasts for a time from now.
    pub(crate) fn add(&mut self, id: ReservationId, units: u64, now_us: u64, ttl_us: u64, remember_us: u64) {
        self.0.push(Reservation { id, units, ends_us: end_of(now_us, ttl_us), ttl_us, remember_us });
    }

    /// Remembers a commit. Where there are as many as a key may have, the one that would be forgotten first makes room.
    pub(crate) fn remember(&mut self, ended: &Reservation, now_us: u64) {
        if self.0.len() >= MAX_RESERVATIONS {
            let first = self.0.iter().enumerate().min_by_key(|(_, commit)| commit.ends_us);
            if let Some((at, _)) = first {
                self.0.remove(at);
            }
        }
        self.add(ended.id, 0, now_us, ended.remember_us, 0);
    }

    /// The reservation with this id; `in_groups` where ids are stored with groups.
    pub(crate) fn find(&self, id: &ReservationId, in_groups: bool, now_us: u64) -> Option<Reservation> {
        let mut alive = self.alive(now_us).map(|(_, reservation)| *reservation);
        alive.find(|reservation| reservation.is(id, in_groups))
    }

    /// Whether the clock has gone back so far that a reservation would last longer than it was made for.
    fn is_ahead(&self, now_us: u64) -> bool {
        self.0.iter().any(|reservation| reservation.ends_by(now_us) < reservation.ends_us)
    }

    /// Moves the ends back if the clock has gone back. Returns whether it did.
    pub(crate) fn rewind(&mut self, now_us: u64) -> bool {
        let is_ahead = self.is_ahead(now_us);
        if is_ahead {
            for reservation in &mut self.0 {
                reservation.ends_us = reservation.ends_by(now_us);
            }
        }
        is_ahead
    }

    /// Moves the ends back if the clock has gone back, and forgets reservations that have ended.
    pub(crate) fn bring(&mut self, now_us: u64) {
        self.rewind(now_us);
        self.0.retain(|reservation| reservation.ends_us > now_us);
    }
}

/// What the groups of a key have set aside.
#[derive(Clone, Debug)]
pub(crate) struct HeldByGroups {
    pub(crate) units: SmallVec<[u64; 8]>,
    /// The number of reservations.
    pub(crate) alive: SmallVec<[u64; 8]>,
}

impl HeldByGroups {
    pub(crate) fn of(table: &GroupTable, reservations: &Reservations, now_us: u64) -> Self {
        let none = SmallVec::from_elem(0, table.groups().len());
        let mut held = Self { units: none.clone(), alive: none };
        for (_, reservation) in reservations.alive(now_us) {
            let group = table.tagged(reservation.id.group().unwrap_or_default());
            held.units[group] += reservation.units;
            held.alive[group] += 1;
        }
        held
    }
}

/// When a reservation that is made now ends; no clock shows a time after [`MAX_US`].
pub(crate) fn end_of(now_us: u64, ttl_us: u64) -> u64 {
    now_us.saturating_add(ttl_us).min(MAX_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservations(each: &[(&str, u64, u64)]) -> Reservations {
        let of = |&(id, units, ends_us): &(&str, u64, u64)| Reservation {
            id: ReservationId::new(id).unwrap(),
            units,
            ends_us,
            ttl_us: 1_000,
            remember_us: 0,
        };
        Reservations(each.iter().map(of).collect())
    }

    #[test]
    fn walk_follows_the_ends() {
        let reservations = reservations(&[("a", 5, 300), ("b", 3, 200), ("c", 1, 200), ("d", 9, 100)]);
        let steps: Vec<_> =
            reservations.walk(100).iter().map(|held| (held.from_us, held.units, held.alive)).collect();
        assert_eq!(steps, [(100, 9, 3), (200, 5, 1), (300, 0, 0)]);
    }

    #[test]
    fn commit_that_would_be_forgotten_first_makes_room() {
        let id = |number: usize| ReservationId::new(number.to_string()).unwrap();
        let mut commits = Reservations::default();
        let ended = |number: usize, remember_us| Reservation {
            id: id(number),
            units: 7,
            ends_us: 9,
            ttl_us: 9,
            remember_us,
        };
        for number in 0..MAX_RESERVATIONS {
            commits.remember(&ended(number, if number == 5 { 2_000 } else { 3_000 }), 1_000);
        }
        commits.remember(&ended(MAX_RESERVATIONS, 9_000), 1_000);
        assert_eq!((commits.0.len(), commits.find(&id(5), false, 1_000)), (MAX_RESERVATIONS, None));
        let newest = commits.find(&id(MAX_RESERVATIONS), false, 9_999).unwrap();
        assert_eq!((newest.units, newest.ends_us, newest.remember_us), (0, 10_000, 0));
        assert_eq!(commits.held(1_000).units, 0);
    }

    #[test]
    fn list_that_no_version_has_written_is_refused() {
        let most = |count: usize, ends_us| {
            let list: Vec<_> = (0..count).map(|number| (number.to_string(), 1, ends_us)).collect();
            let list: Vec<_> = list.iter().map(|(id, units, ends_us)| (&**id, *units, *ends_us)).collect();
            Reservations::of_parts(reservations(&list).0).is_some()
        };
        assert!(most(0, 0) && most(MAX_RESERVATIONS, MAX_US));
        assert!(!most(MAX_RESERVATIONS + 1, MAX_US) && !most(1, MAX_US + 1));
    }

    #[test]
    fn longest_times_are_whole_hours_and_days() {
        let hours = |us| Duration::from_micros(us).as_secs_f64() / 3_600.0;
        let longest = [hours(ReservationTerms::MAX_TTL_US), hours(Hold::MAX_BLOCK_US)];
        assert_eq!(longest.map(|it| it.to_string()), ["48", "8784"]);
    }

    #[test]
    fn clock_that_goes_back_lengthens_no_reservation() {
        let mut reservations = reservations(&[("a", 5, 5_000)]);
        assert_eq!(reservations.reset_after_us(4_500), 500);
        assert_eq!(reservations.reset_after_us(1_000), 1_000);
        assert!(!reservations.rewind(4_000) && reservations.rewind(1_000));
        assert_eq!(reservations.0[0].ends_us, 2_000);
    }
}
