//! What polylimit's middlewares cost a service under its usual server: `benches/http/run`.
//!
//! All services of a framework run at the same time, each in a process of its own, and get slices of load in turns. A ratio
//! compares slices of the same round, so that other load on the machine affects both alike. The services share one core; the
//! client and Redis share another.

#![allow(clippy::cast_precision_loss, reason = "figures are rounded anyway")]

mod figures;
mod load;
mod options;
mod service;
mod variant;

use std::error::Error;
use std::process::{Command, ExitCode, Stdio};

use figures::{Slice, Spread};
use options::Options;
use polylimit_test_servers::{Kind, Server};
use variant::{FRAMEWORKS, Framework, Running, Variant};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("http-benchmark: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let options = Options::read()?;
    let redis = Server::start(Kind::Redis, &["save \"\"", "appendonly no"]);
    if options.pins {
        pin(std::process::id());
        pin(redis.pid());
    }
    println!(
        "{} rounds. In each, every service gets a slice of {:?} from {} connections.",
        options.rounds, options.slice, options.connections
    );
    println!(
        "Medians of the slices, and in brackets quartiles. A ratio is that of the bare service to this one in the same round:"
    );
    println!("below 1, this one handles fewer requests in the same time or processor time.");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Without those limiters that only one framework has.
    let compared: Vec<String> =
        Variant::all(None, &options, "").into_iter().skip(1).map(|variant| variant.title).collect();
    let mut rows = Vec::new();
    for framework in FRAMEWORKS.iter().filter(|framework| options.includes(framework.name)) {
        let services = runtime.block_on(measure(framework, &options, &redis))?;
        print_table(framework, &services, &options);
        let ratios: Vec<String> = services
            .iter()
            .skip(1)
            .take(compared.len())
            .map(|service| format!("{:.2}", by_processor(&services[0], service).median))
            .collect();
        rows.push(format!("| {} | {} |", framework.name, ratios.join(" | ")));
    }
    println!("\n### All frameworks, by processor time\n");
    println!("| | {} |\n|---|{}", compared.join(" | "), "---:|".repeat(compared.len()));
    println!("{}", rows.join("\n"));
    Ok(())
}

/// Measures all services of a framework. The first of the result is the bare one.
async fn measure(
    framework: &Framework,
    options: &Options,
    redis: &Server,
) -> Result<Vec<Running>, Box<dyn Error>> {
    let mut services = Vec::new();
    for variant in Variant::all(framework.peer, options, &redis.url()) {
        services.push(variant.start(framework, options)?);
    }
    for service in &mut services {
        service.connect(redis, options.connections).await?;
        service.warm_up(options).await?;
    }
    for round in 0..options.rounds {
        for turn in 0..services.len() {
            let count = services.len();
            let service = &mut services[(round + turn) % count];
            let slice = service.measure(options).await?;
            service.slices.push(slice);
        }
    }
    Ok(services)
}

fn print_table(framework: &Framework, services: &[Running], options: &Options) {
    println!("\n### {} ({})\n", framework.name, framework.server);
    println!("| | requests/s | ratio | processor time, us a request | ratio |\n|---|---:|---:|---:|---:|");
    let bare = &services[0];
    for service in services {
        let title = &service.variant.title;
        let per_second = Spread::of(&service.slices, Slice::per_second).median;
        let processor = Spread::of(&service.slices, Slice::processor_us).median;
        let (by_time, by_processor) = (by_time(bare, service), by_processor(bare, service));
        println!("| {title} | {per_second:.0} | {by_time} | {processor:.1} | {by_processor} |");
    }
    if let Some((revision, _)) = &options.before {
        for (store, now, before) in
            [("memory", &services[3], &services[5]), ("Redis", &services[4], &services[6])]
        {
            let (by_time, by_processor) = (by_time(before, now), by_processor(before, now));
            println!(
                "\n{store}: {revision} to now, {by_time} by time, {by_processor} by processor time; above 1, it is faster now."
            );
        }
    }
}

/// How many requests a service handles, to those of another one.
fn by_time(other: &Running, service: &Running) -> Spread {
    Spread::of_ratios(&service.slices, &other.slices, |own, other| own.per_second() / other.per_second())
}

/// How many requests a service handles in the same processor time, to those of another one.
fn by_processor(other: &Running, service: &Running) -> Spread {
    Spread::of_ratios(&service.slices, &other.slices, |own, other| other.processor_us() / own.processor_us())
}

/// Pins a process to the core of the client and of Redis.
fn pin(process: u32) {
    let _ = Command::new("taskset")
        .args(["-a", "-cp", "1", &process.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}
