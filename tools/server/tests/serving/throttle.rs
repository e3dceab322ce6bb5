//! `CL.THROTTLE` compared with the arithmetic of redis-cell 0.4 (`src/cell/mod.rs` and `src/lib.rs` there), on random commands.

use std::collections::HashMap;

use polylimit::Limiter;
use polylimit::clock::ManualClock;
use polylimit_server::ServerOptions;

use crate::support::{Running, exchange};

/// The theoretical arrival time of each key, in nanoseconds.
#[derive(Default)]
struct Cell {
    arrivals: HashMap<String, i128>,
}

impl Cell {
    /// The five numbers of the reply.
    fn throttle(
        &mut self,
        key: &str,
        [max_burst, count, period, quantity]: [i128; 4],
        now: i128,
    ) -> [i128; 5] {
        let interval = period * 1_000_000_000 / count;
        let (tolerance, increment) = (interval * (max_burst + 1), interval * quantity);
        let arrival = self.arrivals.get(key).copied().unwrap_or(now);
        let next = arrival.max(now) + increment;
        let spare = now - (next - tolerance);
        let (limited, wait, left) = if spare < 0 {
            let wait = if increment <= tolerance { -spare } else { -1_000_000_000 };
            (1, wait, arrival - now)
        } else {
            self.arrivals.insert(key.to_owned(), next);
            (0, -1_000_000_000, next - now)
        };
        // A key of Redis expires at its arrival time.
        let left = left.max(0);
        let remaining = ((tolerance - left) / 1_000) / (interval / 1_000);
        let seconds = |ns: i128| ns / 1_000_000_000 + i128::from(ns % 1_000_000_000 / 1_000_000 > 0);
        [limited, max_burst + 1, remaining, seconds(wait), seconds(left)]
    }
}

#[test]
fn replies_are_those_of_redis_cell() {
    let start_us = 1_789_948_800_000_000;
    let clock = ManualClock::new(start_us).unwrap();
    let limiter = Limiter::builder().clock(clock.clone()).build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let mut stream = server.resp();
    let mut cell = Cell::default();
    // A linear congruential generator: the same sequence in every run.
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let quotas = [[15_i128, 30, 60], [0, 1, 1], [4, 10, 3600], [99, 100, 1], [3, 1, 86_400]];
    let mut now_us = start_us;
    let mut denials = 0;
    for _ in 0..2_000 {
        now_us += random(3_000_000) * random(2) * random(20);
        clock.set(now_us).unwrap();
        let which = usize::try_from(random(5)).unwrap();
        let [max_burst, count, period] = quotas[which];
        let quantity = i128::from(random(6));
        let key = format!("{which}:{}", random(2));
        let expected = cell.throttle(&key, [max_burst, count, period, quantity], i128::from(now_us) * 1_000);
        denials += expected[0];
        let lines = expected.map(|number| format!(":{number}\r\n")).concat();
        let command = format!("CL.THROTTLE {key} {max_burst} {count} {period} {quantity}");
        exchange(&mut stream, &[&command], &format!("*5\r\n{lines}"));
    }
    assert!(denials > 100, "{denials} denials show too little");
}

#[test]
fn quantity_is_1_by_default_and_given_back_below_0() {
    let clock = ManualClock::new(0).unwrap();
    let limiter = Limiter::builder().clock(clock).build().unwrap();
    let server = Running::start(limiter, ServerOptions::default());
    let mut stream = server.resp();
    exchange(&mut stream, &["cl.throttle k 9 10 10"], "*5\r\n:0\r\n:10\r\n:9\r\n:-1\r\n:1\r\n");
    exchange(&mut stream, &["CL.THROTTLE k 9 10 10 5"], "*5\r\n:0\r\n:10\r\n:4\r\n:-1\r\n:6\r\n");
    exchange(&mut stream, &["CL.THROTTLE k 9 10 10 -3"], "*5\r\n:0\r\n:10\r\n:7\r\n:-1\r\n:3\r\n");
    // More than there ever is: no wait helps.
    exchange(&mut stream, &["CL.THROTTLE k 9 10 10 11"], "*5\r\n:1\r\n:10\r\n:7\r\n:-1\r\n:3\r\n");
}

#[test]
fn mistakes_are_told_as_redis_cell_tells_them() {
    let server = Running::start(Limiter::builder().build().unwrap(), ServerOptions::default());
    let mut stream = server.resp();
    let usage =
        "-Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]\r\n";
    exchange(&mut stream, &["CL.THROTTLE k 1 2", "CL.THROTTLE"], &usage.repeat(2));
    exchange(&mut stream, &["CL.THROTTLE k a 2 3"], "-Cell error: Couldn't parse as integer: a\r\n");
    exchange(&mut stream, &["CL.THROTTLE k 1 0 3"], "-Cell error: Zero rates are not supported\r\n");
    exchange(
        &mut stream,
        &["CL.THROTTLE k -1 1 3"],
        "-Cell error: max_burst is -1: allowed is 0 or more\r\n",
    );
    exchange(&mut stream, &["PING"], "+PONG\r\n");
}
