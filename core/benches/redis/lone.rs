//! A single caller: the time of a decision, next to a blocking `PING`, and that of a request over several policies.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use futures_util::future::join_all;
use polylimit::{Decision, Limiter, Policy, Request};
use polylimit_test_servers::Server;
use tokio::runtime::Runtime;

use crate::contender::{Numbers, limiter};
use crate::load::median;

pub(crate) fn report(server: &Server, runtime: &Runtime, quick: bool) {
    let (rounds, each) = if quick { (3, 100) } else { (41, 1_000) };
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_nodelay(true).unwrap();
    let numbers = Numbers { limit: 1_000_000, period_s: 1_000, quotas: 1 };
    let limiter = limiter(&server.url(), numbers);
    let blocking = limiter.blocking();
    let mut figures = [const { Vec::new() }; 4];
    for round in 0..=rounds {
        let mut reply = [0; 7];
        let us = [
            timed(each, || {
                socket.write_all(b"PING\r\n").unwrap();
                socket.read_exact(&mut reply).unwrap();
            }),
            runtime.block_on(async { tokio::spawn(checks(limiter.clone(), each)).await.unwrap() }),
            runtime.block_on(checks(limiter.clone(), each)),
            timed(each, || {
                let _ = blocking.check("user:42").unwrap();
            }),
        ];
        // The first round opens the connections.
        if round > 0 {
            figures.iter_mut().zip(us).for_each(|(figures, us)| figures.push(us));
        }
    }
    let [ping, figures @ ..] = figures.map(median);
    println!(
        "\nA lone caller, us a decision (median of {rounds} rounds of {each}); a blocking PING takes {ping:.1} us\n"
    );
    println!("| polylimit | us | to PING |\n|---|---:|---:|");
    // A future on a blocked thread is woken through the event queue, which takes one system call more than a task.
    for (face, us) in ["asynchronous, in a task", "asynchronous, blocked on", "blocking"].iter().zip(figures)
    {
        println!("| {face} | {us:.1} | {:.2} |", us / ping);
    }
}

async fn checks(limiter: Limiter, each: u32) -> f64 {
    let started = Instant::now();
    for _ in 0..each {
        let _ = limiter.check("user:42").await.unwrap();
    }
    started.elapsed().as_secs_f64() * 1e6 / f64::from(each)
}

fn timed(each: u32, mut once: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..each {
        once();
    }
    started.elapsed().as_secs_f64() * 1e6 / f64::from(each)
}

/// How many keys take turns. They have states, as writing a new key takes the server much longer.
const KEYS: usize = 5_000;
const POLICIES: [&str; 3] = ["a", "b", "c"];

/// One key's request over one and over three policies, each in one call: by a lone caller and by many.
pub(crate) fn report_requests(server: &Server, runtime: &Runtime, quick: bool) {
    let (rounds, each) = if quick { (1, 100) } else { (21, 20_000) };
    let store = format!("{}?deadline=10s&outage=deny", server.url());
    let policy = |name| Policy::parse(name, "1000000000/1000s token_bucket").unwrap();
    let builder = Limiter::builder().store(&store);
    let limiter =
        POLICIES.iter().fold(builder, |builder, name| builder.policy(policy(name))).build().unwrap();
    let keys: Vec<_> = (0..KEYS).map(|number| format!("user:{number}")).collect();
    let request = async |number: usize, policies: usize| {
        let key = &keys[number % KEYS];
        let requests = POLICIES.map(|name| Request::new(key).policy(name));
        let decisions = limiter.check_together(&requests[..policies]).await.unwrap();
        assert!(decisions.iter().all(Decision::allowed));
    };
    let one_by_one = |callers: usize, policies| {
        let caller = async |first| {
            for number in (first..each).step_by(callers) {
                request(number, policies).await;
            }
        };
        let started = Instant::now();
        runtime.block_on(join_all((0..callers).map(caller)));
        started.elapsed().as_secs_f64() * 1e6 / each as f64
    };
    println!("\nA request over several policies of one key, us (median of {rounds} rounds of {each})\n");
    println!("| callers | one policy | three policies | to one policy |\n|---:|---:|---:|---:|");
    for callers in [1, 64] {
        let mut figures = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for (figures, policies) in figures.iter_mut().zip([1, 3]) {
                let us = one_by_one(callers, policies);
                // The first round writes the states.
                if round > 0 {
                    figures.push(us);
                }
            }
        }
        let [one, three] = figures.map(median);
        println!("| {callers} | {one:.1} | {three:.1} | {:.2} |", three / one);
    }
}
