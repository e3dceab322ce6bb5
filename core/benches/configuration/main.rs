//! How long a request takes to find its limits among 1,000 rules and 100,000 overrides.
//!
//! Each figure is the median of rounds, in nanoseconds a request, of requests in random order: normalising the path, the
//! client's address, the lists, the rules, the keys, the overrides. What a store does afterwards is not in it. A second table has whole checks.
//!
//! With `-- --quick` there are fewer overrides, list items and rounds.

#![allow(
    clippy::expect_used,
    clippy::cast_precision_loss,
    reason = "a benchmark stops at the first surprise, and its figures are rounded anyway"
)]

mod checks;

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use polylimit::document::RequestAttributes;
use polylimit::testing::document::CompiledConfiguration;

const RULES: usize = 1_000;
/// How many requests a round has.
const ROUND: usize = 200;
const NOW_US: u64 = 1_789_948_800_000_000;

/// How much is measured.
#[derive(Clone, Copy)]
struct Sizes {
    overrides: usize,
    listed: usize,
    requests: usize,
    passes: usize,
}

const WHOLE: Sizes = Sizes { overrides: 100_000, listed: 10_000, requests: 10_000, passes: 30 };
const QUICK: Sizes = Sizes { overrides: 1_000, listed: 100, requests: 1_000, passes: 1 };

/// What identifies the rules of a row.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Path,
    Method,
    Header,
    Network,
    Mixed,
}

/// The parts of a request, which its attributes borrow.
struct Asked {
    method: &'static str,
    path: String,
    peer: String,
    tenant: String,
    user: String,
}

fn main() {
    // Ignores flags that `cargo bench` passes, such as --bench.
    let quick = std::env::args().any(|argument| argument == "--quick");
    let sizes @ Sizes { listed, passes, .. } = if quick { QUICK } else { WHOLE };
    let overrides: Vec<String> =
        (0..sizes.overrides).map(|user| format!("override api user=u{user}")).collect();
    let entries: Vec<(&str, &str)> = overrides
        .iter()
        .zip([GOLD, QUOTAS].into_iter().cycle())
        .map(|(text, value)| (text.as_str(), value))
        .collect();
    println!("ns a request among {RULES} rules, as the median of rounds of {ROUND}\n");
    println!(
        "| rules differ by | rules alone | and {listed} list items | and {} overrides |",
        sizes.overrides
    );
    println!("|---|---:|---:|---:|");
    for (name, kind) in [
        ("path", Kind::Path),
        ("path and method", Kind::Method),
        ("header", Kind::Header),
        ("network", Kind::Network),
        ("all of these", Kind::Mixed),
    ] {
        let asked = requests(kind, sizes);
        let compile = |listed: usize, entries: &[(&str, &str)]| {
            CompiledConfiguration::new(document(kind, listed).as_bytes(), entries.iter().copied())
                .expect("it is valid")
        };
        let all = compile(listed, &entries);
        let has_policy =
            |asked: &&Asked| all.matching(&attributes(asked), NOW_US).is_ok_and(|found| found.len() == 1);
        assert_eq!(asked.iter().filter(has_policy).count(), asked.len(), "each request has one policy");
        let figures = [compile(0, &[]), compile(listed, &[]), all]
            .map(|configuration| median_ns(&configuration, &asked, passes));
        println!("| {name} | {:.0} | {:.0} | {:.0} |", figures[0], figures[1], figures[2]);
    }
    checks::report(if quick { checks::QUICK } else { checks::WHOLE });
    println!("\nrepeat: cargo bench -p polylimit --features testing --bench configuration");
}

const GOLD: &str = r#"{"numbers": "gold"}"#;
const QUOTAS: &str = r#"{"numbers": "500/minute", "until": "2100-01-01T00:00:00Z"}"#;

fn document(kind: Kind, listed: usize) -> String {
    let mut text = String::from(
        "polylimit = 1\n[policies.api]\nquotas = \"100/minute\"\nplans = { gold = \"1000/minute\" }\n[lists]\ndeny = [",
    );
    for item in 0..listed {
        let comma = if item == 0 { "" } else { "," };
        let _ = match item % 2 {
            0 => write!(text, "{comma}\"user mallory{item}\""),
            _ => write!(text, "{comma}\"client 198.18.{}.{}\"", item / 256, item % 256),
        };
    }
    text.push_str("]\n");
    for rule in 0..RULES - 1 {
        let of_kind = match (kind, rule % 4) {
            (Kind::Mixed, 0) => Kind::Path,
            (Kind::Mixed, 1) => Kind::Method,
            (Kind::Mixed, 2) => Kind::Header,
            (Kind::Mixed, _) => Kind::Network,
            (kind, _) => kind,
        };
        let when = match of_kind {
            Kind::Method => {
                format!("path = \"/v1/m{}/{{*rest}}\", method = \"{}\"", rule / 4, METHODS[rule % 4])
            }
            Kind::Header => format!("header.x-tenant = \"tenant-{rule}\", path = \"/{{*rest}}\""),
            Kind::Network => format!("client = \"10.{}.{}.0/24\"", rule / 256, rule % 256),
            Kind::Path | Kind::Mixed => format!("path = \"/v1/resource{rule}/{{id}}\""),
        };
        let _ = writeln!(
            text,
            "[[rules]]\nmatch = {{ {when} }}\napply = [{{ policy = \"api\", key = \"{{user,client}}\" }}]"
        );
    }
    text.push_str("[[rules]]\napply = [{ policy = \"api\", key = \"{user,client}\" }]\n");
    text
}

const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];

/// Requests for every rule, in random order, of random users.
fn requests(kind: Kind, sizes: Sizes) -> Vec<Asked> {
    // xorshift64 (Marsaglia 2003)
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap_or(0) % below
    };
    let asked = |_| {
        let rule = random(RULES);
        let by_method = kind == Kind::Method || kind == Kind::Mixed && rule % 4 == 1;
        Asked {
            method: METHODS[rule % 4],
            path: if by_method {
                format!("/v1/m{}/items/7", rule / 4)
            } else {
                format!("/v1/resource{rule}/7?page=2")
            },
            peer: format!("10.{}.{}.7", rule / 256, rule % 256),
            tenant: format!("tenant-{rule}"),
            user: format!("u{}", random(2 * sizes.overrides)),
        }
    };
    (0..sizes.requests).map(asked).collect()
}

fn attributes(asked: &Asked) -> RequestAttributes<'_> {
    RequestAttributes::new()
        .method(asked.method)
        .path(&asked.path)
        .peer(&asked.peer)
        .header("host", "api.example.com")
        .header("user-agent", "curl/8.5.0")
        .header("accept", "*/*")
        .header("accept-encoding", "gzip, deflate, br")
        .header("x-tenant", &asked.tenant)
        .attribute("user", &asked.user)
}

/// Rounds are so short that other programs disturb few of them.
fn median_ns(configuration: &CompiledConfiguration, asked: &[Asked], passes: usize) -> f64 {
    let mut times: Vec<Duration> = Vec::new();
    for round in asked.chunks(ROUND).cycle().take(passes * asked.len() / ROUND) {
        let start = Instant::now();
        for asked in round {
            black_box(configuration.resolve(&attributes(asked), NOW_US)).expect("costs are numbers");
        }
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2].as_nanos() as f64 / ROUND as f64
}
