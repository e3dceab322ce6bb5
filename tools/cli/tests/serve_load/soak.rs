//! Load for a long time: the server does not grow. `make soak-server SECONDS_EACH=3600` takes an hour; the tests take some seconds.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::load::{Load, Pattern};
use crate::program::{Program, Store};

/// The seconds of the load, from the environment.
const SECONDS: &str = "POLYLIMIT_SOAK_SECONDS";
const SAMPLES: u32 = 40;
/// The first part of the samples, in which caches and pools fill up.
const WARM_UP: usize = 16;
/// The last part of the samples, whose least memory counts: memory that leaks is in every sample, while single samples are up to 6 MiB
/// higher, with pages that the allocator is about to give back.
const END: usize = 13;
/// How much the memory may grow from the warm-up to the end.
const MEMORY: u64 = 4 << 20;
/// Connections come and go, so that their number differs from sample to sample.
const CLIENTS: usize = 12;

#[derive(Clone, Copy, Debug)]
struct Sample {
    resident_bytes: u64,
    descriptors: usize,
    threads: usize,
}

impl Sample {
    fn of(program: &Program) -> Self {
        let folder = format!("/proc/{}", program.id());
        let status = fs::read_to_string(format!("{folder}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        let count = |of: &str| fs::read_dir(format!("{folder}/{of}")).unwrap().count();
        Self { resident_bytes: kilobytes << 10, descriptors: count("fd"), threads: count("task") }
    }
}

#[test]
fn server_does_not_grow_under_load() {
    let seconds = std::env::var(SECONDS).map_or(20, |text| text.parse().expect("seconds"));
    let store = Store::start("");
    let program = store.serve(&[]);
    let pattern =
        Pattern { pause: Duration::from_millis(10), requests_of_connection: 50, keys: Some(20_000) };
    let load = Load::start(&program, pattern);
    load.wait_for(100);
    let since = Instant::now();
    let length = Duration::from_secs(seconds);
    let mut samples = Vec::new();
    println!("seconds  requests  connections  resident KiB  descriptors  threads");
    for at in 1..=SAMPLES {
        std::thread::sleep((length * at / SAMPLES).saturating_sub(since.elapsed()));
        let sample = Sample::of(&program);
        println!(
            "{:7.1}  {:8}  {:11}  {:12}  {:11}  {:7}",
            since.elapsed().as_secs_f64(),
            load.admitted(),
            load.connections(),
            sample.resident_bytes >> 10,
            sample.descriptors,
            sample.threads
        );
        samples.push(sample);
    }
    load.stop();
    let _ = load.end();
    let (warm_up, after) = samples.split_at(WARM_UP);
    let most = |samples: &[Sample], of: fn(&Sample) -> usize| samples.iter().map(of).max().unwrap();
    let memory = |sample: &Sample| sample.resident_bytes;
    let memory_before = warm_up.iter().map(memory).max().unwrap();
    let memory_at_the_end = after[after.len() - END..].iter().map(memory).min().unwrap();
    assert!(
        memory_at_the_end <= memory_before + MEMORY,
        "the memory has grown from {memory_before} to {memory_at_the_end} bytes"
    );
    let descriptors = |samples| most(samples, |sample| sample.descriptors);
    assert!(
        descriptors(after) <= descriptors(warm_up) + CLIENTS,
        "there are {} descriptors, and were {}",
        descriptors(after),
        descriptors(warm_up)
    );
    let threads = |samples| most(samples, |sample| sample.threads);
    assert!(
        threads(after) <= threads(warm_up),
        "there are {} threads, and were {}",
        threads(after),
        threads(warm_up)
    );
    program.signal(Signal::SIGTERM);
    let (status, written) = program.end();
    assert!(
        status.success()
            && written.lines().all(|line| line.contains(" info "))
            && written.contains("info stopping: "),
        "{status}: {written}"
    );
}
