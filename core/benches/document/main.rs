//! How long it takes to read and check documents of 1 MiB: `cargo bench -p polylimit --features testing --bench document`.

#![allow(clippy::expect_used, reason = "a benchmark stops at the first surprise")]

use std::time::{Duration, Instant};

use polylimit::document_testing::read_document;

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
    println!("Reading and checking a document, with its canonical JSON and digest: ms, of {ROUNDS} rounds\n");
    println!("| document | format | bytes | median | slowest |\n|---|---|---|---|---|");
    for contents in DOCUMENTS {
        let mut text = format!("polylimit = 1\n{}", contents.head);
        for part in (0..contents.most).map(contents.part) {
            if text.len() + part.len() + contents.end.len() > BYTES {
                break;
            }
            text.push_str(&part);
        }
        text.push_str(contents.end);
        let json = read_document(text.as_bytes()).expect("the document is valid");
        report(contents.name, "TOML", &text);
        // The same as JSON may be longer than a document may be.
        if json.len() <= BYTES {
            report(contents.name, "JSON", &json);
        }
    }
}

fn report(name: &str, format: &str, text: &str) {
    let mut rounds: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let read = read_document(std::hint::black_box(text.as_bytes()));
            std::hint::black_box(read).expect("the document is valid");
            start.elapsed()
        })
        .collect();
    rounds.sort();
    let ms = |round: Duration| round.as_secs_f64() * 1_000.0;
    let (median, slowest) = (ms(rounds[ROUNDS / 2]), ms(rounds[ROUNDS - 1]));
    println!("| {name} | {format} | {} | {median:.1} | {slowest:.1} |", text.len());
}
