//! polylimit's module in the server, next to the scripts and others: what a decision takes of the server's time, by its own count of
//! commands (`usec_per_call`) and by its processor time, which includes the kernel's for each request.

use std::time::Duration;

use polylimit::reservation::ReserveOptions;
use polylimit::{Limiter, Policy, blocking};
use polylimit_test_servers::{Kind, Server};
use redis::Connection;

use crate::contender::REDIS_RATE;
use crate::load::median;
use crate::server_cpu::cpu_us;

/// The keys of one call.
const BATCH: usize = 32;
const KEYS: usize = 1_000;
/// A bucket that never denies.
const BUCKET: &str = "1000000/1000s token_bucket";

/// What a decision took: of commands, and of the processor.
type Taken = (f64, f64);

struct Measure<'a> {
    server: &'a Server,
    /// The names of the commands that decide.
    commands: &'static [&'static str],
}

impl Measure<'_> {
    fn of(&self, decisions: usize, operate: impl FnOnce()) -> Taken {
        self.server.command(&["CONFIG", "RESETSTAT"]);
        let before = cpu_us(self.server);
        operate();
        let cpu = cpu_us(self.server) - before;
        let stats: String = self.server.query(&["INFO", "commandstats"]);
        let usec = |command: &&str| -> f64 {
            let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
            let field = line.and_then(|line| line.split("usec=").nth(1));
            field.and_then(|rest| rest.split(',').next()).map_or(0.0, |digits| digits.parse().unwrap())
        };
        let usec: f64 = self.commands.iter().map(usec).sum();
        (usec / decisions as f64, cpu / decisions as f64)
    }
}

fn limiter(server: &Server, module: bool) -> blocking::Limiter {
    let url = format!(
        "{}?deadline=10s&outage=deny&denial_cache_max=0&module={module}&prefix={module}",
        server.url()
    );
    let policy = Policy::parse("api", BUCKET).unwrap();
    let limiter = Limiter::builder().store(&url).policy(policy).build().unwrap();
    limiter.blocking()
}

pub(crate) fn report(quick: bool) {
    let server = Server::options(Kind::Redis).module().lines(&["appendonly no"]).start();
    let rounds = if quick { 1 } else { 15 };
    let calls = if quick { 64 } else { 2_048 };
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let (scripts, module) = (limiter(&server, false), limiter(&server, true));
    let users: Vec<_> = (0..KEYS).map(|user| format!("user:{user}")).collect();
    let incr = |at: usize| redis::cmd("INCR").arg(format!("incr:{at}")).to_owned();
    let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(REDIS_RATE).query(&mut connection).unwrap();
    let rate = |at: usize| {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&sha).arg(1).arg(format!("rate:{at}")).arg(1_000_000).arg(1_000_000).arg(1_000).arg(1);
        command
    };
    let throttle = |at: usize| {
        let mut command = redis::cmd("CL.THROTTLE");
        command.arg(format!("cell:{at}")).arg(999_999).arg(1_000_000).arg(1_000);
        command
    };
    let each = |connection: &mut Connection, command: &dyn Fn(usize) -> redis::Cmd| {
        (0..calls).for_each(|at| command(at % KEYS).exec(connection).unwrap());
    };
    let piped = |connection: &mut Connection, command: &dyn Fn(usize) -> redis::Cmd| {
        for from in (0..calls).step_by(BATCH) {
            let mut pipe = redis::pipe();
            for at in from..from + BATCH {
                pipe.add_command(command(at % KEYS));
            }
            pipe.exec(connection).unwrap();
        }
    };
    let check = |limiter: &blocking::Limiter| {
        (0..calls).for_each(|at| assert!(limiter.check(&users[at % KEYS]).unwrap().allowed()));
    };
    let check_many = |limiter: &blocking::Limiter| {
        for from in (0..calls).step_by(BATCH) {
            let batch = (from..from + BATCH).map(|at| &users[at % KEYS]);
            assert!(limiter.check_many(batch).into_iter().all(|decision| decision.unwrap().allowed()));
        }
    };
    let names = ["INCR", "redis_rate", "CL.THROTTLE", "polylimit, scripts", "polylimit, module"];
    let mut taken = [const { [const { Vec::new() }; 5] }; 2];
    for _ in 0..rounds {
        let measure = |commands| Measure { server: &server, commands };
        let [one, many] = &mut taken;
        one[0].push(measure(&["incr"]).of(calls, || each(&mut connection, &incr)));
        one[1].push(measure(&["evalsha"]).of(calls, || each(&mut connection, &rate)));
        one[2].push(measure(&["cl.throttle"]).of(calls, || each(&mut connection, &throttle)));
        one[3].push(measure(&["evalsha"]).of(calls, || check(&scripts)));
        one[4].push(measure(&["polylimit.decide"]).of(calls, || check(&module)));
        many[0].push(measure(&["incr"]).of(calls, || piped(&mut connection, &incr)));
        many[1].push(measure(&["evalsha"]).of(calls, || piped(&mut connection, &rate)));
        many[2].push(measure(&["cl.throttle"]).of(calls, || piped(&mut connection, &throttle)));
        many[3].push(measure(&["evalsha"]).of(calls, || check_many(&scripts)));
        many[4].push(measure(&["polylimit.decide"]).of(calls, || check_many(&module)));
    }
    println!("\nThe module next to scripts, us a decision (medians of {rounds} rounds of {calls})\n");
    println!(
        "| how | what | commands | to redis_rate | processor | to redis_rate |\n|---|---|---:|---:|---:|---:|"
    );
    for (how, taken) in ["one by one", "32 at once"].iter().zip(&taken) {
        let ratio = |at: usize, of: fn(&Taken) -> f64| {
            median(taken[at].iter().zip(&taken[1]).map(|(this, rate)| of(this) / of(rate)).collect())
        };
        for (at, name) in names.iter().enumerate() {
            let of = |of: fn(&Taken) -> f64| median(taken[at].iter().map(of).collect());
            println!(
                "| {how} | {name} | {:.2} | {:.3} | {:.2} | {:.3} |",
                of(|taken| taken.0),
                ratio(at, |taken| taken.0),
                of(|taken| taken.1),
                ratio(at, |taken| taken.1)
            );
        }
    }
    report_reservations(&server, quick);
}

/// Compares a reserve and a commit on a key with n reservations with two checks of a key that has none.
fn report_reservations(server: &Server, quick: bool) {
    println!(
        "\nReserve and commit to two checks (commands, processor)\n\n| alive | scripts | module |\n|---:|---|---|"
    );
    let rounds = if quick { 10 } else { 500 };
    for alive in [1, 20, 100] {
        print!("| {alive} |");
        for module in [false, true] {
            let limiter = limiter(server, module);
            let options = ReserveOptions::default().ttl(Duration::from_secs(3_600)).max_age(Duration::ZERO);
            let key = format!("with {alive}");
            let reserve = || limiter.reserve(&key, options).unwrap();
            let kept: Vec<_> = (1..alive).map(|_| reserve()).collect();
            let measure = Measure { server, commands: &["evalsha", "polylimit.decide"] };
            let mut ratios = [Vec::new(), Vec::new()];
            for _ in 0..if quick { 1 } else { 7 } {
                let check = measure.of(2 * rounds, || {
                    (0..2 * rounds).for_each(|_| assert!(limiter.check("without").unwrap().allowed()));
                });
                let pair = measure.of(2 * rounds, || {
                    (0..rounds).for_each(|_| assert!(reserve().commit_blocking(1).unwrap().found()));
                });
                ratios[0].push(pair.0 / check.0);
                ratios[1].push(pair.1 / check.1);
            }
            let [commands, processor] = ratios.map(median);
            print!(" {commands:.2}, {processor:.2} |");
            drop(kept);
        }
        println!();
    }
}
