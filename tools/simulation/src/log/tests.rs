use super::*;

fn read_with(log: &[u8], format: &str, key: &str, skip_malformed: u64) -> Result<LogTraffic, String> {
    let format = Format::parse(format).map_err(|error| error.to_string())?;
    let key = Template::parse(key, "--key").map_err(|error| error.to_string())?;
    format.check(&key, "--key").map_err(|error| error.to_string())?;
    let options = LogOptions { format: &format, key: &key, time: None, skip_malformed, has_rules: true };
    read_log(log, Path::new("access.log"), &options).map_err(|error| error.to_string())
}

fn read(log: &str, format: &str, key: &str) -> LogTraffic {
    read_with(log.as_bytes(), format, key, 0).unwrap()
}

fn keys(log: &LogTraffic) -> Vec<&str> {
    log.records.iter().map(|record| std::str::from_utf8(&log.keys[record.client as usize]).unwrap()).collect()
}

fn text(value: Option<&[u8]>) -> &str {
    std::str::from_utf8(value.unwrap_or(b"none")).unwrap()
}

/// What is known about a request: method, path, address, user, and the user agent.
fn facts_of(log: &LogTraffic, at: usize) -> [&str; 5] {
    let facts = &log.facts[log.records[at].facts as usize];
    let agent = facts.headers.iter().find(|(name, _)| &**name == "user-agent");
    [
        text(facts.method.as_deref()),
        text(facts.path.as_deref()),
        facts.address.as_deref().unwrap_or("none"),
        text(facts.user.as_deref()),
        text(agent.map(|(_, value)| &**value)),
    ]
}

const COMBINED: &str = r#"203.0.113.7 - - [21/Nov/2026:10:00:00 +0000] "GET /v1/items?page=2 HTTP/1.1" 200 1534 "-" "curl/8.5.0"
2001:db8::17 - alice [21/Nov/2026:10:00:01 +0000] "POST /login HTTP/2.0" 302 0 "https://example.com/?q=\x22a\x22" "Mozilla/5.0 (X11; \"Linux\") Gecko"
198.51.100.3 - - [21/Nov/2026:10:00:02 +0000] "\x16\x03\x01\x02" 400 157 "-" "-"
198.51.100.3 - - [21/Nov/2026:10:00:03 +0000] "" 408 - "-" "-" 0.004 "-"
203.0.113.9 - John Doe [21/Nov/2026:10:00:04 +0000] "GET / HTTP/1.0" 200 12 "-" "a \\ b"
"#;

#[test]
fn combined_logs_are_read() {
    let log = read(COMBINED, "combined", "$remote_addr");
    assert_eq!(keys(&log), ["203.0.113.7", "2001:db8::17", "198.51.100.3", "198.51.100.3", "203.0.113.9"]);
    assert_eq!(log.start_us, 1_795_255_200_000_000);
    assert_eq!(log.records[4].time_us, 4_000_000);
    assert_eq!(facts_of(&log, 0), ["GET", "/v1/items", "203.0.113.7", "none", "curl/8.5.0"]);
    assert_eq!(
        facts_of(&log, 1),
        ["POST", "/login", "2001:db8::17", "alice", "Mozilla/5.0 (X11; \"Linux\") Gecko"]
    );
    assert_eq!(facts_of(&log, 2), ["none", "none", "198.51.100.3", "none", "none"]);
    assert_eq!(facts_of(&log, 4), ["GET", "/", "203.0.113.9", "John Doe", "a \\ b"]);
    let summary = LogSummary { lines: 5, is_spread: true, ..LogSummary::default() };
    assert_eq!(log.summary, summary);
}

#[test]
fn common_logs_are_read() {
    let log = read(
        "::1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /apache_pb.gif HTTP/1.0\" 200 2326\n\
         example.org - - [10/Oct/2000:13:55:37 -0700] \"GET / HTTP/1.0\" 304 -\r\n",
        "common",
        "$remote_user",
    );
    assert_eq!(keys(&log), ["frank"]);
    assert_eq!((log.summary.lines, log.summary.without_key), (2, 1));
    assert_eq!(facts_of(&log, 0), ["GET", "/apache_pb.gif", "::1", "frank", "none"]);
}

#[test]
fn logs_of_caddy_are_read() {
    let log = read(
        r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"2001:db8::5","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a%20b?x=%22","headers":{"User-Agent":["curl/7.82.0"],"X-Api-Key":["k-1","k-2"]},"tls":{"resumed":false}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}
{"ts":1646861400.25,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/","headers":{}},"user_id":"bob","status":200}
"#,
        "caddy",
        "$remote_addr",
    );
    // Sorted by time, and from Caddy before 2.7 the address of the peer.
    assert_eq!(keys(&log), ["192.0.2.1", "2001:db8::5"]);
    assert_eq!(log.records[1].time_us, 1_274_102);
    assert_eq!(facts_of(&log, 0), ["GET", "/", "192.0.2.1", "bob", "none"]);
    assert_eq!(facts_of(&log, 1), ["GET", "/a%20b", "2001:db8::5", "none", "curl/7.82.0"]);
    assert!(!log.summary.is_spread);
}

#[test]
fn logs_of_caddy_have_headers_as_keys() {
    let line = r#"{"ts":1646861401.5,"request":{"method":"GET","remote_ip":"127.0.0.1","headers":{"X-Api-Key":["k-1","k-2"]}}}"#;
    assert_eq!(keys(&read(line, "caddy", "$http_x_api_key")), ["k-1"]);
    assert_eq!(keys(&read(line, "caddy", "${request.headers.X-Api-Key}@$remote_addr")), ["k-1@127.0.0.1"]);
}

#[test]
fn logs_of_json_are_read() {
    let log = read(
        r#"{"time":"2026-11-21T10:00:00.5+00:00","remote_addr":"192.0.2.1","request":"GET /x?y HTTP/1.1","user":{"id":17}}
{"time":"2026-11-21T10:00:01+00:00","remote_addr":"192.0.2.2","request_method":"PUT","request_uri":"/z#f","user":{"id":"\"<script>"}}
{"time":"2026-11-21T10:00:02+00:00","remote_addr":"192.0.2.2","user":{"id":null}}
"#,
        "json",
        "${user.id}",
    );
    assert_eq!(keys(&log), ["17", "\"<script>"]);
    assert_eq!(facts_of(&log, 0)[..3], ["GET", "/x", "192.0.2.1"]);
    assert_eq!(facts_of(&log, 1)[..3], ["PUT", "/z", "192.0.2.2"]);
    assert_eq!(log.summary.without_key, 1);
}

#[test]
fn variables_of_nginx_are_a_format() {
    let format =
        r#"[$time_iso8601] $remote_addr:$remote_port "$http_x_forwarded_for" "$request" ${request_time}s"#;
    let log = read(
        "[2026-11-21T10:00:00+00:00] 2001:db8::1:41342 \"203.0.113.7, 10.0.0.1\" \"GET /a\\x20b HTTP/1.1\" 0.004s\n",
        format,
        "$http_x_forwarded_for",
    );
    assert_eq!(keys(&log), ["203.0.113.7, 10.0.0.1"]);
    // A path with a space is no path.
    assert_eq!(facts_of(&log, 0)[..3], ["none", "none", "2001:db8::1"]);
    let log = read(
        "1795255200.123 GET k=a b;\n1795255200.000 GET k=c;\n",
        "$msec $request_method k=$arg_key;",
        "$arg_key",
    );
    assert_eq!(keys(&log), ["c", "a b"]);
    assert_eq!(log.records[1].time_us, 123_000);
}

#[test]
fn whole_seconds_are_spread() {
    let second =
        |number: u32| format!("h - - [21/Nov/2026:10:00:0{number} +0000] \"GET / HTTP/1.1\" 200 1\n");
    let log =
        read(&[second(1), second(0), second(1), second(1), second(0)].concat(), "common", "$remote_addr");
    let times: Vec<u64> = log.records.iter().map(|record| record.time_us).collect();
    assert_eq!(times, [0, 500_000, 1_000_000, 1_333_333, 1_666_666]);
    assert!(log.summary.is_spread);
}

#[test]
fn malformed_lines_are_told_with_their_numbers() {
    let log = format!("{COMBINED}nonsense\n\n{{\"a\":1}}\n\u{fffd}");
    let message = read_with(log.as_bytes(), "combined", "$remote_addr", 0).unwrap_err();
    assert!(
        message.starts_with("access.log:6: read \"nonsense\", allowed is a line of the format combined"),
        "{message}"
    );
    assert!(message.ends_with("give --skip-malformed COUNT to leave out such lines"), "{message}");
    let message = read_with(log.as_bytes(), "combined", "$remote_addr", 2).unwrap_err();
    assert!(message.starts_with("access.log:9: "), "{message}");
    assert!(message.contains("2 lines before it were malformed, and --skip-malformed allows 2"), "{message}");
    let read = read_with(log.as_bytes(), "combined", "$remote_addr", 3).unwrap();
    assert_eq!((read.summary.lines, read.summary.malformed, read.records.len()), (8, 3, 5));
    assert_eq!(read.summary.malformed_examples.len(), 3);
}

#[test]
fn what_is_wrong_with_a_line_is_told() {
    for (line, format, part) in [
        (&b"{\"ts\":1}"[..], "combined", "a line of the format combined"),
        (b"a - - [99/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 1", "common", "read the time \"99/Nov"),
        (b"[1]", "json", "allowed is a JSON object"),
        (b"{\"ts\":", "json", "allowed is a JSON object"),
        (b"\xff\xfe", "json", "allowed is a JSON object"),
        (b"{}", "json", "there is no time: name its field by --time"),
        (b"{\"ts\":true}", "caddy", "read the time true"),
        (b"{\"ts\":\"soon\"}", "caddy", "read the time \"soon\""),
        (b"x", "$msec $remote_addr", "a line of the format \"$msec $remote_addr\""),
        (b"\x1f\x8b\x08", "combined", "unpack it"),
        (b"", "combined", "no request with a key"),
        (b"{\"ts\":1}", "caddy", "no request with a key"),
        (b"{\"ts\":99999999999,\"request\":{\"remote_ip\":\"a\"}}", "caddy", "1970 to 2255"),
    ] {
        let message = read_with(line, format, "$remote_addr", 0).unwrap_err();
        assert!(message.contains(part) && message.contains("access.log"), "{message}");
    }
}

#[test]
fn formats_and_keys_that_cannot_be_used_are_refused() {
    for (format, key, part) in [
        ("apache", "$remote_addr", "combined, vhost_combined, common, caddy, traefik, envoy, json"),
        ("$remote_addr", "$remote_addr", "has no time"),
        ("$ $msec", "$remote_addr", "allowed is a variable"),
        ("combined", "$cookie_id", "the variables of the format: $remote_addr, $remote_ident"),
        ("combined", "remote_addr", "a text with a variable"),
        ("$msec $request_uri", "$request_method", "$request_uri, $uri"),
    ] {
        let message = read_with(b"", format, key, 0).unwrap_err();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn keys_may_be_any_bytes() {
    let line = b"h - - [21/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"\xff\\x00<script>\"\n";
    let log = read_with(line, "combined", "$http_user_agent", 0).unwrap();
    assert_eq!(&*log.keys[0], b"\xff\0<script>");
}

#[test]
fn virtual_host_is_no_client() {
    let line = "www.example.com:443 192.0.2.1 - - [21/Nov/2026:10:00:00 +0000] \"GET /a HTTP/1.1\" 200 1 \"-\" \"curl\"\n";
    for line in [line, &line.replace(":443", "")] {
        let message = read_with(line.as_bytes(), "combined", "$remote_addr", 0).unwrap_err();
        assert!(message.contains("give --format vhost_combined"), "{message}");
        let log = read(line, "vhost_combined", "$remote_addr");
        assert_eq!(keys(&log), ["192.0.2.1"]);
        assert_eq!(facts_of(&log, 0), ["GET", "/a", "192.0.2.1", "none", "curl"]);
    }
}

#[test]
fn logs_of_traefik_and_envoy_are_read() {
    let traefik = r#"{"ClientAddr":"192.0.2.1:4132","ClientHost":"192.0.2.1","ClientUsername":"-","RequestHost":"a","RequestMethod":"POST","RequestPath":"/login?x=1","StartUTC":"2026-11-21T10:00:00.25Z","request_User-Agent":"curl","time":"2026-11-21T10:00:01Z"}"#;
    let log = read(traefik, "traefik", "$remote_addr");
    assert_eq!(keys(&log), ["192.0.2.1"]);
    assert_eq!(facts_of(&log, 0), ["POST", "/login", "192.0.2.1", "none", "curl"]);
    let envoy = r#"{"start_time":"2026-11-21T10:00:00.250Z","method":"GET","path":"/a?b","downstream_remote_address":"[2001:db8::1]:4132","user_agent":"curl","authority":"a"}"#;
    let log = read(envoy, "envoy", "$remote_addr");
    assert_eq!(keys(&log), ["2001:db8::1"]);
    assert_eq!(facts_of(&log, 0), ["GET", "/a", "2001:db8::1", "none", "curl"]);
}

#[test]
fn field_of_the_time_may_be_named() {
    let line = br#"{"at":{"begin":1646861401.5},"remote_addr":"a","time":"x"}"#;
    let (format, key) = (Format::parse("json").unwrap(), Template::parse("$remote_addr", "--key").unwrap());
    let read = |time: &str| {
        let options =
            LogOptions { format: &format, key: &key, time: Some(time), skip_malformed: 0, has_rules: false };
        read_log(&line[..], Path::new("access.log"), &options)
    };
    assert_eq!(read("at.begin").unwrap().start_us, 1_646_861_401_500_000);
    assert!(read("at.end").unwrap_err().to_string().contains("there is no field \"at.end\""));
}

#[test]
fn rules_need_a_method_or_a_path() {
    let (format, key) = (Format::parse("json").unwrap(), Template::parse("$ClientHost", "--key").unwrap());
    let line = br#"{"ClientHost":"a","RequestMethod":"GET","RequestPath":"/","time":1646861401}"#;
    let options = LogOptions { format: &format, key: &key, time: None, skip_malformed: 0, has_rules: true };
    let message = read_log(&line[..], Path::new("access.log"), &options).unwrap_err().to_string();
    assert!(message.contains("rules about them match nothing") && message.contains("traefik"), "{message}");
}
