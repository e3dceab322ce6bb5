//! Which documents are refused, and with which messages.

use super::*;

/// The refusal of a document: `line:column message`.
fn refusal(text: &str) -> String {
    let error = Document::parse(text.as_bytes()).expect_err(text);
    format!("{}:{} {}", error.line, error.column, error.message)
}

#[test]
fn mistakes_in_policies_are_told_with_their_place() {
    // The policy p begins in line 1, and each text is in line 4.
    for (text, expected) in [
        ("lease = 0", "4:9 lease is 0: allowed is a whole number from 1 to 1000000"),
        ("lease = '5/9ms'", "4:9 a lease for 9ms"),
        ("lease = true", "4:9 lease is true: allowed is"),
        ("plans = { '5/s' = '1/s' }", "4:11 plan is \"5/s\""),
        ("plans = { a = 5 }", "4:15 plans is 5: allowed is quotas such as"),
        ("plans = { a = ['1/s', 'x'] }", "4:23 quota at column 1"),
        ("plans = { a = [] }", "4:15 policy p has no quotas"),
        ("overrides = { k = { until = '2027-01-01T00:00:00Z' } }", "4:19 an override has no numbers"),
        (
            "overrides = { k = { numbers = '1/s', until = 2027-01-01T00:00:00Z } }",
            "4:46 until is a date or time without",
        ),
        ("overrides = { k = { numbers = '1/s', until = 'noon' } }", "4:46 time is \"noon\""),
        ("penalty = { denials = 65536, within = '1s', block = '1s' }", "4:23 denials is 65536"),
        (
            "penalty = { denials = 1.0, within = '1s', block = '1s' }",
            "4:23 denials is 1.0: allowed is a whole number",
        ),
        ("penalty = { denials = 1, within = '1fortnight', block = '1s' }", "4:35 duration at column 2"),
        (
            "penalty = { denials = 1, within = '1us', block = '1s' }",
            "4:35 duration at column 1: 1µs is out of bounds",
        ),
        (
            "penalty = { denials = 1, within = '1s 2s', block = '1s' }",
            "4:35 duration at column 4: read \"2s\"",
        ),
        ("penalty = { denials = 1, within = '', block = '1s' }", "4:35 duration at column 1: the text ends"),
        ("penalty = { denials = 1, within = '1s' }", "4:11 penalty has no block"),
        (
            "candidate = { quotas = '1/s', compare = 1001 }",
            "4:41 compare is 1001: allowed is a whole number from 0",
        ),
        ("candidate = { compare = 1 }", "4:13 candidate has no quotas"),
        ("lease = 'auto'\ncandidate = { quotas = '2/s', compare = 1 }", "5:41 compare is 1: allowed is 0"),
        (
            "lease = 'auto'\nplans.a = '1/s sliding_log'",
            "5:11 policy p cannot be leased: 1/second sliding_log",
        ),
        ("lease = 'auto'\noverrides.a = '1/s count_denied'", "5:15 policy p cannot be leased"),
        (
            "elastic = { policy = 'p', key = 'k' }",
            "4:11 policy p is the pool of p: a pool is not allowed to be elastic",
        ),
        ("elastic = { policy = 'f', key = 1 }", "4:33 key is 1: allowed is a text"),
        (
            "elastic = { policy = 'f', key = '' }\nplans.a = '2 concurrent'",
            "5:11 policy p is elastic and has 2 concurrent",
        ),
        (
            "elastic = { policy = 'f', key = '' }\npenalty = { denials = 1, within = '1s', block = '1s' }",
            "5:11 policy p is elastic: a penalty",
        ),
    ] {
        let text =
            format!("policies.f.quotas = '1/s'\npolylimit = 1\n[policies.p]\n{text}\nquotas = '1/s'\n");
        let refusal = refusal(&text);
        assert!(refusal.starts_with(expected), "{text}: {refusal}");
    }
    for (pool, expected) in [
        ("quotas = '1/s leaky_bucket'", "6:10 policy f is the pool of p and has 1/second leaky_bucket"),
        ("plans.a = '1/s count_denied'\nquotas = '1/s'", "6:11 policy f is the pool of p and has"),
        ("mode = 'shadow'\nquotas = '1/s'", "6:8 policy f is the pool of p: the mode"),
        (
            "penalty = { denials = 1, within = '1s', block = '1s' }\nquotas = '1/s'",
            "6:11 policy f is the pool of p: a penalty",
        ),
        ("elastic = { policy = 'p', key = 'k' }\nquotas = '1/s'", "6:11 policy f is the pool of p: a pool"),
    ] {
        let head = "polylimit = 1\n[policies.p]\nquotas = '1/s'\nelastic = { policy = 'f', key = 'k' }\n[policies.f]\n";
        let refusal = refusal(&format!("{head}{pool}\n"));
        assert!(refusal.starts_with(expected), "{pool}: {refusal}");
    }
}

#[test]
fn mistakes_in_calendars_of_keys_are_refused_with_their_place() {
    // The policy p begins in line 1, and each text is in line 4.
    for (text, expected) in [
        (
            "zone = '{zone}'",
            "4:8 zone concerns windows by the calendar such as 10_000/month, and the policy has none",
        ),
        (
            "plans.a = '1/day zone=UTC'\nfrom = '{day}'",
            "5:8 from concerns windows by the calendar of weeks, months or years",
        ),
        (
            "plans.a = '1/month'\nzone = 'Europe/Berlin'",
            "5:8 zone is \"Europe/Berlin\": allowed is one attribute",
        ),
        ("plans.a = '1/month'\nzone = '{path.id}'", "5:8 zone is \"{path.id}\": allowed is one attribute"),
        ("plans.a = '1/month'\nlease = 5\nzone = '{zone}'", "6:8 a policy with a lease takes no zone"),
        (
            "plans.a = '1/month'\ncandidate = { quotas = '2/s', compare = 1 }\nfrom = '{day}'",
            "6:8 compare is allowed as 0 for a policy that takes zone or from",
        ),
        (
            "plans.a = '1/month; 2/month from=15'\nfrom = '{day}'",
            "5:8 with zone and from of a key, policy p has both",
        ),
        (
            "plans.a = '1/month; 2/month zone=+01:00'\nzone = '{zone}'",
            "5:8 with zone and from of a key, policy p has both",
        ),
        (
            "overrides.k = { numbers = '9/s', zone = 'UTC' }",
            "4:41 zone concerns windows by the calendar, such as 10_000/month, and",
        ),
        ("overrides.k = { numbers = '9/year', from = '15' }", "4:44 from is a day such as 15 for months"),
        (
            "overrides.k = { numbers = '9/month', from = 'noon' }",
            "4:45 from is \"noon\": allowed are a day of the month",
        ),
        ("overrides.k = { numbers = '9/month', zone = 'Berlin' }", "4:45 zone is \"Berlin\""),
        ("plans = { 'from=1' = '1/month' }", "4:11 plan is \"from=1\""),
    ] {
        let text =
            format!("policies.f.quotas = '1/s'\npolylimit = 1\n[policies.p]\n{text}\nquotas = '1/s'\n");
        let refusal = refusal(&text);
        assert!(refusal.starts_with(expected), "{text}: {refusal}");
    }
    let pool =
        "polylimit = 1\n[policies.p]\nquotas = '1/s'\nelastic = { policy = 'f', key = 'k' }\n[policies.f]\n";
    let refusal = refusal(&format!("{pool}quotas = '1/month'\nzone = '{{zone}}'\n"));
    assert!(
        refusal.starts_with("7:8 policy f is the pool of p: its windows are the same for all keys"),
        "{refusal}"
    );
}

#[test]
fn mistakes_in_groups_are_refused_with_their_place() {
    // The policy p begins in line 1, and each text is in line 4.
    for (text, expected) in [
        ("groups = { a = { weight = 101 } }", "4:27 weight is 101: allowed is a whole number from 1 to 100"),
        ("groups = { a = { maximum = 0 } }", "4:28 maximum is 0: allowed is a whole number from 1 to 100"),
        ("groups = { a = { share = 1 } }", "4:18 \"share\" is no field of a group"),
        (
            "groups = { a = { minimum = 60 }, b = { minimum = 50 } }",
            "4:10 the minimums of the groups are 110%",
        ),
        ("groups = { a = { minimum = 60, maximum = 50 } }", "4:10 group \"a\" has a minimum of 60%"),
        ("groups = { 'a b' = {} }", "4:10 group is \"a b\""),
        ("groups = { a = { minimum = 5 } }", "5:10 the minimum of group a is 5% of 10/second token_bucket"),
        ("group = '{team}'", "4:9 group names one of the groups that share the policy, and it has no groups"),
        ("group = 'team'\ngroups = { a = {} }", "4:9 group is \"team\": allowed is one attribute"),
        (
            "groups = { a = {} }\nplans.gold = '20/s token_bucket'",
            "5:1 policy p is shared by groups: plans is not allowed",
        ),
        ("groups = { a = {} }\nlease = 5", "5:9 policy p is shared by groups: lease is not allowed"),
        (
            "groups = { a = {} }\nelastic = { policy = 'f', key = 'k' }",
            "5:11 policy p is shared by groups: elastic",
        ),
        (
            "groups = { a = {} }\npenalty = { denials = 1, within = '1s', block = '1s' }",
            "5:11 policy p is shared by groups: penalty is not allowed",
        ),
    ] {
        let quotas = "quotas = '10/s token_bucket'";
        let text = format!("policies.f.quotas = '1/s'\npolylimit = 1\n[policies.p]\n{text}\n{quotas}\n");
        let refusal = refusal(&text);
        assert!(refusal.starts_with(expected), "{text}: {refusal}");
    }
    let sliding = "polylimit = 1\n[policies.p]\ngroups = { a = {} }\nquotas = ['9 concurrent', '1/s']\n";
    assert!(refusal(sliding).starts_with("4:10 groups cannot share 1/second: allowed are token_bucket"));
    let pool =
        "polylimit = 1\n[policies.p]\nquotas = '1/s'\nelastic = { policy = 'f', key = 'k' }\n[policies.f]\n";
    let refusal = refusal(&format!("{pool}quotas = '1/s token_bucket'\ngroups = {{ a = {{}} }}\n"));
    assert!(
        refusal.starts_with("7:10 policy f is the pool of p: a pool is not allowed to have groups"),
        "{refusal}"
    );
}

#[test]
fn names_of_policies_leave_room_for_comparisons() {
    let named = |name: &str, more: &str| {
        Document::parse(format!("polylimit = 1\n[policies.\"{name}\"]\nquotas = '1/s'\n{more}").as_bytes())
    };
    let candidate = "candidate = { quotas = '2/s' }";
    assert!(named(&"x".repeat(64), "").is_ok() && named(&"x".repeat(55), candidate).is_ok());
    for (name, more, expected) in [
        ("x".repeat(65), "", "(65 bytes): allowed are 1 to 64"),
        ("a~b".to_owned(), "", "\"a~b\" has a ~"),
        ("a b".to_owned(), "", "\"a b\" (3 bytes)"),
        (String::new(), "", "\"\" (0 bytes)"),
        ("x".repeat(56), candidate, "has 56 bytes: allowed are up to 55 with a candidate"),
    ] {
        let error = named(&name, more).unwrap_err();
        assert_eq!((error.line, error.column), (2, 11));
        assert!(error.message.starts_with("policy name") && error.message.contains(expected), "{error}");
    }
}

#[test]
fn mistakes_in_other_parts_are_told_with_their_place() {
    for (text, expected) in [
        ("", "1:1 the document has no polylimit, which it needs: 1"),
        ("polylimit = 2\nfuture = 1", "1:13 polylimit is 2: allowed is 1"),
        ("polylimit = '1'", "1:13 polylimit is \"1\": allowed is 1"),
        ("polylimit = 99999999999999999999", "1:13 "),
        ("polylimit = 1\nutc_offset = '+14:01'", "2:14 utc_offset is \"+14:01\""),
        (
            "polylimit = 1\nzone = 'Europe/Berln'",
            "2:8 zone is \"Europe/Berln\", which is not known: did you mean Europe/Berlin?",
        ),
        ("polylimit = 1\nzone = 'europe/berlin'", "2:8 zone is \"europe/berlin\""),
        ("polylimit = 1\nzone = '+05:30'", "2:8 zone is \"+05:30\", which is not known: allowed are names"),
        ("polylimit = 1\nzone = 1", "2:8 zone is 1: allowed is the name of a time zone"),
        (
            "polylimit = 1\nzone = 'UTC'\nutc_offset = '+00:00'",
            "2:8 the document has utc_offset and zone: allowed is one of the two",
        ),
        ("polylimit = 1\nrules = {}", "2:9 rules is a table: allowed is a list"),
        (
            "polylimit = 1\nrules = [{ apply = [], when = {} }]",
            "2:24 \"when\" is no field of a rule: allowed are match",
        ),
        ("polylimit = 1\nrules = [{ apply = [], match.User = 'x' }]", "2:30 attribute is \"User\""),
        ("polylimit = 1\nrules = [{ apply = [], match.key = 'x' }]", "2:30 attribute is \"key\""),
        (
            "polylimit = 1\nrules = [{ apply = [], match.header = 'x' }]",
            "2:39 header is \"x\": allowed is a table",
        ),
        (
            "polylimit = 1\nrules = [{ apply = [], match.header.X-A = 'x' }]",
            "2:37 attribute is \"header.X-A\"",
        ),
        ("polylimit = 1\nrules = [{ apply = [], match.user = ['a',\n'b*c'] }]", "3:1 condition is \"b*c\""),
        ("polylimit = 1\nrules = [{ apply = [], unless.user = 1 }]", "2:38 user is 1: allowed is a text"),
        ("polylimit = 1\nlists.deny = 'user a'", "2:14 deny is \"user a\": allowed is a list"),
        ("polylimit = 1\nlists.deny = ['path.id 1']", "2:15 list item is about \"path.id\""),
        (
            "polylimit = 1\nclient.header = 'x-real'",
            "2:17 header is \"x-real\": allowed is \"x-forwarded-for\" or",
        ),
        ("{\"polylimit\": 1, \"enabled\": null}", "1:29 enabled is null: allowed is true or false"),
        ("{\"polylimit\": 1,\n \"lists\": {\"deny\": [\n\"x\"]}}", "3:1 list item is \"x\""),
        (" {\"polylimit\": 1e0}", "1:16 polylimit is 1e0: allowed is 1"),
        ("[{}]", "1:2 no TOML"),
    ] {
        assert!(refusal(text).starts_with(expected), "{text}: {}", refusal(text));
    }
    let error = Document::parse(b"polylimit = 1\n# \xff").unwrap_err();
    assert_eq!((error.line, error.column), (2, 3));
}

#[test]
fn messages_show_no_keys() {
    for text in [
        "polylimit = 1\npolicies.p = { quotas = '1/s', overrides = { 'secret' = 5 } }",
        "polylimit = 1\npolicies.p = { quotas = '1/s', overrides = { 'secret' = { numbers = 'gold' } } }",
        "polylimit = 1\npolicies.p = { quotas = '1/s', overrides = { 'secret' = { till = 5 } } }",
        "{\"polylimit\": 1, \"policies\": {\"p\": {\"quotas\": \"1/s\", \"overrides\": {\"secret\": \"1/s\", \"secret\": \"2/s\"}}}}",
        "polylimit = 1\n[policies.p]\nquotas = '1/s'\noverrides.secret = '1/s'\noverrides.secret = '2/s'",
        "polylimit = 1\nlists.deny = ['key p secret']",
    ] {
        assert!(!refusal(text).contains("secret"), "{text}: {}", refusal(text));
    }
}

#[test]
fn sizes_are_bounded() {
    let rules = |count: usize| format!("polylimit = 1\nrules = [{}]", "{apply=[]},".repeat(count));
    assert!(Document::parse(rules(1_000).as_bytes()).is_ok());
    assert!(refusal(&rules(1_001)).contains("1001 rules: allowed are up to 1000"));

    let padded = |bytes: usize| format!("polylimit = 1\n#{}", "x".repeat(bytes - 15));
    assert!(Document::parse(padded(Document::MAX_BYTES).as_bytes()).is_ok());
    assert!(refusal(&padded(Document::MAX_BYTES + 1)).starts_with("1:1 the document has 1048577 bytes"));

    let plans = |count: usize| {
        let plans: Vec<_> = (1..=count).map(|limit| format!("p{limit} = '{limit}/s'")).collect();
        let plans = plans.join("\n");
        format!("polylimit = 1\npolicies.p.quotas = '0/s'\n[policies.p.plans]\n{plans}\nagain = '1/s'\n")
    };
    assert!(Document::parse(plans(4_095).as_bytes()).is_ok());
    assert!(
        refusal(&plans(4_096)).starts_with("4099:9 policy p has more than 4096 different sets of quotas")
    );

    let applied = |sizes: &[usize]| {
        let mut parts = vec!["polylimit = 1\n".to_owned()];
        parts.extend((0..12).map(|policy| format!("policies.p{policy}.quotas = '1/s'\n")));
        let mut next = 0;
        for size in sizes {
            let names: Vec<_> =
                (next..next + size).map(|policy| format!("{{policy='p{policy}',key=''}}")).collect();
            next += size;
            parts.push(format!("[[rules]]\ncontinue = true\napply = [{}]\n", names.join(",")));
        }
        parts.concat()
    };
    for sizes in [&[8][..], &[4, 4], &[7, 1, 0]] {
        assert!(Document::parse(applied(sizes).as_bytes()).is_ok());
    }
    assert!(
        refusal(&applied(&[9]))
            .starts_with("16:9 the rule, with the continuing rules before it, applies 9 policies")
    );
    assert!(
        refusal(&applied(&[4, 4, 1]))
            .starts_with("22:9 the rule, with the continuing rules before it, applies 9")
    );
    // A rule that does not continue ends the count, and a policy counts once.
    let text = applied(&[8]).replace("continue = true", "continue = false");
    assert!(
        Document::parse(format!("{text}[[rules]]\napply = [{{policy='p9',key=''}}]\n").as_bytes()).is_ok()
    );
    let text = applied(&[8]);
    assert!(
        Document::parse(format!("{text}[[rules]]\napply = [{{policy='p1',key='x'}}]\n").as_bytes()).is_ok()
    );
}
