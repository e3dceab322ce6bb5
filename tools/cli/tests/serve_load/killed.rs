//! SIGKILL under load.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::load::{Load, Pattern, Tally};
use crate::program::Store;

/// The units of a lease. A process holds at most twice as many of a key.
const LEASED: u64 = 50;

/// The store has what was answered; beyond that at most what had no answer yet, and what was leased.
#[test]
fn server_that_is_killed_loses_what_was_in_flight_and_leased_at_most() {
    for (lines, leased) in [(String::new(), 0), (format!("lease = \"{LEASED}\""), 2 * LEASED)] {
        let store = Store::start(&lines);
        let program = store.serve(&[]);
        let pattern = Pattern { pause: Duration::from_millis(1), requests_of_connection: 1_000, keys: None };
        let load = Load::start(&program, pattern);
        load.wait_for(200);
        load.may_break();
        program.signal(Signal::SIGKILL);
        let got = load.end();
        for shared in got {
            let [asked, admitted] = [&shared.tally.asked, &shared.tally.admitted].map(Tally::read);
            let spent = store.spent(shared.protocol);
            let protocol = shared.protocol;
            println!(
                "{protocol}: {spent} units, {admitted} answers, {} in flight, {leased} leased",
                asked - admitted
            );
            assert!(admitted <= spent, "{protocol}: {admitted} answers, but {spent} units");
            assert!(spent <= asked + leased, "{protocol}: {spent} units for {asked} requests");
        }
    }
}
