//! SIGTERM under load.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::load::{Load, Pattern, Tally};
use crate::program::Store;

const ROUNDS: usize = 3;

/// Clients ask without a pause, so connections are never silent, and connect again as long as there is a listener.
#[test]
fn every_decision_of_a_server_that_is_terminated_has_its_answer() {
    let store = Store::start("");
    let mut before = [0; 3];
    for round in 0..ROUNDS {
        let program = store.serve(&["--drain", "4s"]);
        let pattern = Pattern { pause: Duration::from_millis(1), requests_of_connection: 1_000, keys: None };
        let load = Load::start(&program, pattern);
        load.wait_for(100);
        program.signal(Signal::SIGTERM);
        let got = load.end();
        let (status, written) = program.end();
        assert!(
            status.success()
                && written.lines().all(|line| line.contains(" info "))
                && written.contains("info stopping: "),
            "{status}: {written}"
        );
        for (shared, before) in got.iter().zip(&mut before) {
            let [asked, admitted, unanswered] =
                [&shared.tally.asked, &shared.tally.admitted, &shared.tally.unanswered].map(Tally::read);
            let spent = store.spent(shared.protocol) - *before;
            *before += spent;
            println!("round {round}, {}: {admitted} answers, {unanswered} without", shared.protocol);
            assert_eq!((spent, asked), (admitted, admitted + unanswered), "{}", shared.protocol);
        }
    }
}
