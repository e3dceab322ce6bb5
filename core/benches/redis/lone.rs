//! A single caller: the time of a decision, next to a blocking `PING`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use polylimit::Limiter;
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
