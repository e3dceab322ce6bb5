use super::*;

fn one(text: &str) -> Group {
    let mut groups = parse_traffic(text).unwrap();
    assert_eq!(groups.len(), 1, "{text}");
    groups.remove(0)
}

#[test]
fn the_example_of_the_documentation_is_read() {
    let groups =
        parse_traffic("500 clients 2/s poisson zipf=1.1; bot: 1 client 50/s from=10m to=20m denied=hammer")
            .unwrap();
    let client = Group {
        name: "client".to_owned(),
        clients: 500,
        arrivals: Arrivals::Poisson { gap_us: 500_000.0 },
        zipf: 1.1,
        from_us: 0,
        to_us: None,
        cost: 1,
        reaction: Reaction::Hammer,
    };
    let bot = Group {
        name: "bot".to_owned(),
        clients: 1,
        arrivals: Arrivals::Even { gap_us: 20_000.0 },
        zipf: 0.0,
        from_us: 600_000_000,
        to_us: Some(1_200_000_000),
        cost: 1,
        reaction: Reaction::Hammer,
    };
    assert_eq!(groups, [client, bot]);
    assert_eq!((groups[0].key(17), groups[1].key(1)), ("client-17".to_owned(), "bot".to_owned()));
}

#[test]
fn each_word_is_read() {
    assert_eq!(one("1_000 clients 30/minute even").arrivals, Arrivals::Even { gap_us: 2_000_000.0 });
    assert_eq!(one("2 clients 1/10s").arrivals, Arrivals::Even { gap_us: 10_000_000.0 });
    assert_eq!(
        one("cron: 3 clients burst=20 every=5s").arrivals,
        Arrivals::Burst { size: 20, every_us: 5_000_000 }
    );
    assert_eq!(one("1 client 2/s cost=25").cost, 25);
    assert_eq!(one("1 client 2/s cost=0").cost, 0);
    assert_eq!(one("1 client 2/s from=0").from_us, 0);
    assert_eq!(one("1 client 2/s from=0s to=1h").to_us, Some(3_600_000_000));
    assert!((one("9 clients 2/s zipf=0.5").zipf - 0.5).abs() < f64::EPSILON);
    for (text, reaction) in [
        ("hammer", Reaction::Hammer),
        ("wait", Reaction::Wait),
        ("leave", Reaction::Leave),
        ("retry=100ms", Reaction::Retry { after_us: 100_000 }),
    ] {
        assert_eq!(one(&format!("1 client 2/s denied={text}")).reaction, reaction);
    }
}

#[test]
fn what_cannot_be_read_is_told_with_what_is_allowed() {
    for (text, read, allowed) in [
        ("", "the text ends", "500 clients 2/s"),
        ("clients 2/s", "\"clients\"", "a number of clients"),
        ("0 clients 2/s", "\"0\"", "1 to 10000000"),
        ("5 clients", "there is no rate", "burst=20 every=5s"),
        ("5", "the text ends after 5", "clients"),
        ("5 people 2/s", "\"people\"", "clients"),
        ("5 clients 2/fortnight", "\"2/fortnight\"", "a rate such as 2/s"),
        ("5 clients 0/s", "\"0/s\"", "a rate such as 2/s"),
        ("5 clients 2/s 3/s", "\"a rate\" again", "one of each kind"),
        ("5 clients 2/s even poisson", "again", "one of each kind"),
        ("5 clients 2/s quickly", "\"quickly\"", "poisson"),
        ("5 clients 2/s speed=5", "\"speed=5\"", "poisson"),
        ("5 clients 2/s zipf=x", "zipf=x", "0 to 10"),
        ("5 clients 2/s zipf=-1", "zipf=-1", "0 to 10"),
        ("5 clients 2/s zipf=NaN", "zipf=NaN", "0 to 10"),
        ("5 clients burst=20", "belong together", "burst=20 every=5s"),
        ("5 clients every=5s", "belong together", "burst=20 every=5s"),
        ("5 clients burst=20 every=5s zipf=1", "without", "burst=20 every=5s"),
        ("5 clients 2/s burst=20 every=5s", "both a rate and burst=", "2/s or burst="),
        ("5 clients burst=x every=5s", "\"x\"", "1 to 1000000"),
        ("5 clients 2/s from=soon", "\"from=soon\"", "allowed is"),
        ("5 clients 2/s from=20m to=10m", "not after", "from=10m to=20m"),
        ("5 clients 2/s cost=-1", "\"-1\"", "0 to 1000000000000"),
        ("5 clients 2/s denied=cry", "\"denied=cry\"", "denied=wait"),
        ("5 clients 2/s denied=retry=never", "\"denied=retry=never\"", "allowed is"),
        ("a b: 5 clients 2/s", "\"a b\"", "letters, digits"),
        ("5 clients 2/s; 5 clients 3/s", "group 2: two groups are called client", "name of its own"),
        ("9999999 clients 2/s; b: 2 clients 2/s", "10000001 clients", "up to 10000000"),
    ] {
        let message = parse_traffic(text).unwrap_err().to_string();
        assert!(message.starts_with("traffic, group ") && message.contains(read), "{text}: {message}");
        assert!(message.contains(allowed), "{text}: {message}");
    }
}
