//! How long it takes to read and check documents of 1 MiB, and to apply them while a limiter decides:
//! `cargo bench -p polylimit --features testing --bench document [-- --quick]`.

#![allow(clippy::expect_used, reason = "a benchmark stops at the first surprise")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polylimit::testing::document::read_document;
use polylimit::{Limiter, Policy, Request};

const BYTES: usize = 1 << 20;
const ROUNDS: usize = 11;

/// A document: what it begins with, parts of which as many follow as fit, and its end.
struct Contents {
    name: &'static str,
    head: &'static str,
    part: fn(usize) -> String,
    most: usize,
    end: &'static str,
}

const DOCUMENTS: [Contents; 5] = [
    Contents {
        name: "overrides by a plan",
        head: "[policies.p]\nquotas = \"100/minute\"\nplans = { gold = \"1000/minute\" }\n[policies.p.overrides]\n",
        part: |user| format!("\"user={user}\" = \"gold\"\n"),
        most: usize::MAX,
        end: "",
    },
    Contents {
        name: "overrides by quotas, 4,000 different ones",
        head: "[policies.p]\nquotas = \"100/minute\"\n[policies.p.overrides]\n",
        part: |user| format!("\"user={user}\" = \"{}/minute; 90000/day\"\n", user % 4_000),
        most: usize::MAX,
        end: "",
    },
    Contents {
        name: "policies",
        head: "",
        part: |at| format!("policies.p{at} = {{ quotas = \"{at}/minute\", mode = \"shadow\" }}\n"),
        most: usize::MAX,
        end: "",
    },
    Contents {
        name: "1,000 rules with 70 users each",
        head: "policies.p.quotas = \"100/minute\"\n",
        part: |at| {
            let users: Vec<_> = (0..70).map(|user| format!("\"u{user}\"")).collect();
            format!(
                "[[rules]]\nmatch = {{ path = \"/v1/{{tenant}}/{at}/{{*rest}}\", client = \"2001:db8:{at:x}::/48\", user = [{}] }}\n\
                 apply = [{{ policy = \"p\", key = \"{{user,client}}|{{path.tenant}}\", cost = \"{{tokens}}\" }}]\n",
                users.join(", ")
            )
        },
        most: 1_000,
        end: "",
    },
    Contents {
        name: "denied networks with times",
        head: "lists.deny = [\n",
        part: |at| format!("\"client 2001:db8:{at:x}::/48 until 2027-01-01T00:00:00Z\",\n"),
        most: usize::MAX,
        end: "]\n",
    },
];

fn main() {
    let (bytes, rounds) = if std::env::args().any(|argument| argument == "--quick") {
        (BYTES / 64, 3)
    } else {
        (BYTES, ROUNDS)
    };
    println!("Reading and checking a document, with its canonical JSON and digest: ms, of {rounds} rounds\n");
    println!("| document | format | bytes | median | slowest |\n|---|---|---:|---:|---:|");
    let texts: Vec<_> = DOCUMENTS.iter().map(|contents| (contents.name, contents.text(bytes))).collect();
    for (name, text) in &texts {
        let json = read_document(text.as_bytes()).expect("the document is valid");
        report_reading(name, "TOML", text, rounds);
        // The same as JSON may be longer than a document may be.
        if json.len() <= BYTES {
            report_reading(name, "JSON", &json, rounds);
        }
    }
    println!(
        "\nApplying it while another thread checks: ms from the call until it is active, of {rounds} rounds, and the checks of \
         that thread\n"
    );
    println!(
        "| document | bytes | median | slowest | checks | median check, us | slowest check, ms |\n|---|---:|---:|---:|---:|---:|---:|"
    );
    for (name, text) in &texts {
        report_applying(name, text, rounds);
    }
}

impl Contents {
    /// The document with as many parts as fit into this number of bytes.
    fn text(&self, bytes: usize) -> String {
        let mut text = format!("polylimit = 1\n{}", self.head);
        for part in (0..self.most).map(self.part) {
            if text.len() + part.len() + self.end.len() > bytes {
                break;
            }
            text.push_str(&part);
        }
        text.push_str(self.end);
        text
    }
}

/// The median and the greatest of some times, in milliseconds.
fn median_and_slowest(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    (ms(times[times.len() / 2]), ms(times[times.len() - 1]))
}

fn report_reading(name: &str, format: &str, text: &str, rounds: usize) {
    let times = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            let read = read_document(std::hint::black_box(text.as_bytes()));
            std::hint::black_box(read).expect("the document is valid");
            start.elapsed()
        })
        .collect();
    let (median, slowest) = median_and_slowest(times);
    println!("| {name} | {format} | {} | {median:.1} | {slowest:.1} |", text.len());
}

/// Applies a document, in turns with a small one, while a thread checks by a policy of the program.
fn report_applying(name: &str, text: &str, rounds: usize) {
    const SMALL: &str = "polylimit = 1\npolicies = {}\n";
    let policy = Policy::parse("of_program", "1000000/s token_bucket burst=4000000000").expect("quotas");
    let builder = Limiter::builder().policy(policy);
    let limiter = builder.document(SMALL).build().expect("a limiter").blocking();
    let ends = AtomicBool::new(false);
    let (applied, checks) = thread::scope(|scope| {
        let checking = scope.spawn(|| {
            let mut times = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let start = Instant::now();
                let decision = limiter.check(Request::new("key").policy("of_program")).expect("a decision");
                assert!(decision.allowed());
                times.push(start.elapsed());
            }
            times
        });
        let applied: Vec<Duration> = (0..rounds)
            .map(|_| {
                let start = Instant::now();
                limiter.admin().set_document(text).expect("the document is valid");
                let took = start.elapsed();
                limiter.admin().set_document(SMALL).expect("the document is valid");
                took
            })
            .collect();
        ends.store(true, Ordering::Relaxed);
        (applied, checking.join().expect("no panic"))
    });
    let count = checks.len();
    let ((median, slowest), (check, slowest_check)) =
        (median_and_slowest(applied), median_and_slowest(checks));
    println!(
        "| {name} | {} | {median:.1} | {slowest:.1} | {count} | {:.2} | {slowest_check:.1} |",
        text.len(),
        check * 1_000.0
    );
}
