//! Tables of URLs: the parsed target, or the complete error message.

use crate::config::RedisOptions;
use crate::config::target::{
    ChangingCredentials, Credentials, CredentialsSource, Endpoint, Endpoints, Secret, Target, Tls,
};
use crate::config::url::*;

fn target(url: &str) -> Target {
    RedisOptions::parse(url)
        .and_then(|options| options.settings())
        .unwrap_or_else(|error| panic!("{url}: {error}"))
        .target
}

fn refusal(url: &str) -> String {
    RedisOptions::parse(url).and_then(|options| options.check()).expect_err(url).to_string()
}

fn endpoint(host: &str, port: u16) -> Endpoint {
    Endpoint { host: host.into(), port }
}

fn secret(text: &str) -> Secret {
    Secret::from(Box::from(text))
}

fn server(host: &str, port: u16) -> Target {
    let endpoints = Endpoints::Tcp(endpoint(host, port));
    Target {
        endpoints,
        tls: None,
        credentials: None,
        changing: None,
        sentinel_credentials: None,
        sentinel_changing: None,
        database: 0,
    }
}

#[test]
fn one_server() {
    let table = [
        ("redis://h", server("h", 6379)),
        ("redis://h/", server("h", 6379)),
        ("redis://h?", server("h", 6379)),
        ("REDIS://h/?&", server("h", 6379)),
        ("redis://redis-1.example_x.:7000", server("redis-1.example_x.", 7000)),
        ("redis://192.0.2.7:1/0", server("192.0.2.7", 1)),
        ("redis://[2001:DB8::7]:65535", server("2001:db8::7", 65535)),
        ("redis://[::1]", server("::1", 6379)),
        ("redis://h/15", Target { database: 15, ..server("h", 6379) }),
        ("redis://h?db=2147483647", Target { database: i32::MAX.unsigned_abs(), ..server("h", 6379) }),
        ("rediss://h", Target { tls: Some(Tls::default()), ..server("h", 6379) }),
    ];
    for (url, expected) in table {
        assert_eq!(target(url), expected, "{url}");
    }
}

#[test]
fn user_info() {
    let table = [
        ("redis://u:p@h", Some("u"), "p"),
        ("redis://:p@h", None, "p"),
        ("redis://u:a:b@h", Some("u"), "a:b"),
        ("redis://%75%40:%2F%3f%23%25%3A%20é@h", Some("u@"), "/?#%: é"),
        ("redis://u:p,q@h", Some("u"), "p,q"),
        ("redis://u@h?password=p%26", Some("u"), "p&"),
        ("redis://h?password=p&username=u", Some("u"), "p"),
    ];
    for (url, username, password) in table {
        let credentials = Credentials { username: username.map(secret), password: secret(password) };
        assert_eq!(target(url), Target { credentials: Some(credentials), ..server("h", 6379) }, "{url}");
    }
}

#[test]
fn sockets() {
    for (url, path, database) in [
        ("redis+unix:///run/redis.sock", "/run/redis.sock", 0),
        ("redis+unix:///a%20b/%40?db=1", "/a b/@", 1),
    ] {
        let expected = Target { endpoints: Endpoints::Unix(path.into()), database, ..server("", 0) };
        assert_eq!(target(url), expected, "{url}");
    }
    assert!(target("redis+unix://:p@/run/redis.sock").credentials.is_some());
}

#[test]
fn sentinels() {
    let endpoints = Endpoints::Sentinel {
        service: "main".into(),
        sentinels: [endpoint("a", 26379), endpoint("::1", 1), endpoint("c", 26379)].into(),
    };
    let plain = Target { endpoints, ..server("", 0) };
    assert_eq!(target("redis-sentinel://a,[::1]:1,c/main"), plain);
    assert_eq!(target("redis-sentinel://a,[::1]:1,c/main/"), plain);
    assert_eq!(target("redis-sentinel://a,[::1]:1,c/m%61in/3"), Target { database: 3, ..plain.clone() });
    let full = Target {
        tls: Some(Tls::default()),
        credentials: Some(Credentials { username: None, password: secret("p") }),
        sentinel_credentials: Some(Credentials { username: Some(secret("s")), password: secret("q") }),
        ..plain
    };
    let url = "rediss-sentinel://:p@a,[::1]:1,c/main?sentinel_username=s&sentinel_password=q";
    assert_eq!(target(url), full);
    let changing = ChangingCredentials {
        option: "sentinel_password_file",
        source: CredentialsSource::File("/q".into()),
        username: Some(secret("s")),
    };
    let full = Target { sentinel_credentials: None, sentinel_changing: Some(changing), ..full };
    assert_eq!(target(&url.replace("password=q", "password_file=/q")), full);
}

#[test]
fn clusters() {
    let endpoints = Endpoints::Cluster { seeds: [endpoint("a", 6379), endpoint("b", 7001)].into() };
    let plain = Target { endpoints, ..server("", 0) };
    assert_eq!(target("redis-cluster://a,b:7001"), plain);
    assert_eq!(target("redis-cluster://a,b:7001/"), plain);
    assert_eq!(target("rediss-cluster://a,b:7001"), Target { tls: Some(Tls::default()), ..plain });
}

const SCHEMES: &str = "allowed are redis://, rediss://, redis+unix://, redis-sentinel://, rediss-sentinel://, \
                       redis-cluster://, rediss-cluster://, and without a server memory:, local:<name>, \
                       file:///<path>";
const AT: &str = "store URL has an @ that does not end the user info: in user info and parameters, write @ as %40, / as %2F \
                  and ? as %3F";
const PORT: &str =
    "store URL has a mistake in host: allowed is a port from 1 to 65535; an IPv6 address stands in [ and ]";
const HOST: &str = "store URL has a mistake in host: allowed are up to 253 letters, digits, -, _ and dots, or an IPv6 \
                    address in [ and ]";
const SPACE: &str =
    "store URL has white space or a control character: write it as % and two hexadecimal digits";
const EMPTY: &str =
    "store URL has empty user info or an empty password: allowed is user:password@ or :password@";
const SOCKET: &str = "store URL has no path of a socket: allowed is redis+unix:///path/to.sock";
const SERVICE: &str = "store URL has no name of a service: allowed is redis-sentinel://host,host/service, as the sentinels \
                       call it";
const DB: &str = "db is out of range (not shown): allowed is 0 to 2147483647";
const CLUSTER_DB: &str = "db is not for clusters, which have only database 0: leave it out";

#[test]
fn mistakes_before_the_query() {
    let unknown = format!("store URL has no known scheme: {SCHEMES}");
    let several = "store URL has several hosts: several are for redis-sentinel:// and redis-cluster://, with or without TLS";
    let table = [
        ("", unknown.as_str()),
        ("redis", &unknown),
        ("redis:h", &unknown),
        ("h:6379", &unknown),
        ("u:p@h", &unknown),
        ("p://u@h", &unknown),
        ("://h", &format!("store URL begins with \"\": {SCHEMES}")),
        ("http://h", &format!("store URL begins with \"http\": {SCHEMES}")),
        (" redis://h", SPACE),
        ("redis://h\n", SPACE),
        ("redis://u:p\0@h", SPACE),
        ("redis://u:p@q@h", AT),
        ("redis://u:p/q@h", AT),
        ("redis://u:p?q@h", AT),
        ("redis://h?prefix=a@b", AT),
        ("redis://u:p#q@h", "store URL has a #: write it as %23"),
        ("redis://h/0#x", "store URL has a #: write it as %23"),
        ("redis://@h", EMPTY),
        ("redis://:@h", EMPTY),
        ("redis://u:@h", EMPTY),
        (
            "redis://u:%zz@h",
            "store URL has a % without two hexadecimal digits in the user info: write % as %25",
        ),
        ("redis://u:%ff@h", "store URL has bytes that are not UTF-8 in the user info: allowed is UTF-8"),
        ("redis://u@h", "username is given without password: give both, or only the password"),
        ("redis://", "store URL has a mistake in host: it is empty"),
        ("redis://:1", "store URL has a mistake in host: it is empty"),
        ("redis:///0", "store URL has a mistake in host: it is empty"),
        ("redis://h:", PORT),
        ("redis://h:0", PORT),
        ("redis://h:65536", PORT),
        ("redis://h:+1", PORT),
        ("redis://h:p", PORT),
        ("redis://::1", "store URL has a mistake in host: it is empty"),
        ("redis://fe80::1", PORT),
        ("redis://[::1", "store URL has a mistake in host: allowed is an IPv6 address in [ and ]"),
        ("redis://[h]", "store URL has a mistake in host: allowed is an IPv6 address in [ and ]"),
        ("redis://[::1]1", "store URL has a mistake in host: allowed after ] is : and a port"),
        ("redis://256.1.1.1", "store URL has a mistake in host: it is all digits, and no IPv4 address"),
        ("redis://6379", "store URL has a mistake in host: it is all digits, and no IPv4 address"),
        ("redis://h%41", HOST),
        ("redis://é", HOST),
        ("redis://a,b", several),
        ("redis://h/x", DB),
        ("redis://h/-1", DB),
        ("redis://h/0/", DB),
        ("redis://h//0", DB),
        ("redis://h/2147483648", "db is \"2147483648\": allowed is 0 to 2147483647"),
        ("redis+unix://", SOCKET),
        ("redis+unix:///", SOCKET),
        ("redis+unix:///a%00", SOCKET),
        (
            "redis+unix://a/b",
            "store URL has a host before the path of a socket: allowed is redis+unix:///path/to.sock",
        ),
        ("redis-sentinel://a", SERVICE),
        ("redis-sentinel://a/", SERVICE),
        ("redis-sentinel://a//0", SERVICE),
        ("redis-sentinel://a/%0A", SERVICE),
        ("redis-sentinel://a/s/x", DB),
        ("redis-sentinel://a/s/0/0", DB),
        ("redis-sentinel://a,/s", "store URL has a mistake in host 2: it is empty"),
        ("redis-cluster://a:x,b", &PORT.replace("in host", "in host 1")),
        ("redis-cluster://a/0", CLUSTER_DB),
        ("redis-cluster://a?db=0", CLUSTER_DB),
        ("redis-cluster://a/x", DB),
    ];
    for (url, message) in table {
        assert_eq!(refusal(url), message, "{url}");
    }
    let many = format!("redis-cluster://{}h", "h,".repeat(64));
    assert_eq!(refusal(&many), "store URL has 65 hosts: allowed are up to 64");
    let long = format!("redis://{}", "h".repeat(MAX_LENGTH));
    assert_eq!(refusal(&long), "store URL has 65544 bytes: allowed are up to 65536");
}

#[test]
fn mistakes_in_the_query() {
    const TIME: &str = ", as a whole number of us, ms, s, m or h";
    let known = RedisOptions::ALL.iter().map(|option| option.name).collect::<Vec<_>>().join(", ");
    let unshown = format!(
        "store URL: an option is not known, and not shown next to a secret (an & in a secret is written as %26): allowed are \
         {known}"
    );
    let table = [
        ("redis://h?deadline=50", &*format!("deadline is \"50\": allowed is 1ms to 60s{TIME}")),
        ("redis://h?deadline=0", &format!("deadline is \"0\": allowed is 1ms to 60s{TIME}")),
        ("redis://h?deadline=61s", &format!("deadline is \"61s\": allowed is 1ms to 60s{TIME}")),
        ("redis://h?deadline=5%20ms", &format!("deadline is \"5 ms\": allowed is 1ms to 60s{TIME}")),
        (
            "redis://h?max_connection_age=1ms",
            &format!("max_connection_age is \"1ms\": allowed is 0 (never), or 1s to 24h{TIME}"),
        ),
        ("redis://h?max_in_flight=-1", "max_in_flight is \"-1\": allowed is 1 to 1000000"),
        (
            "redis://h?max_outstanding_bytes=1GB",
            "max_outstanding_bytes is \"1GB\": allowed is 64KiB to 1024MiB, as a whole number of bytes, KiB or MiB",
        ),
        (
            "redis://h?fallback_share=NaN",
            "fallback_share is \"NaN\": allowed is more than 0, up to 1, with at most 6 decimals",
        ),
        ("redis://h?outage=open", "outage is \"open\": allowed is fallback, allow or deny"),
        (
            "redis://h?prefix=%7Ba%7D",
            "prefix is \"{a}\": allowed is 1 to 64 letters, digits and -._~@:/+=,;!$&'()*|",
        ),
        (
            "redis://h?client_name=",
            "client_name is \"\": allowed is 1 to 64 printable ASCII characters without spaces",
        ),
        (
            "rediss://h?tls_server_name=a%20b",
            "tls_server_name is \"a b\": allowed is a host name or an IP address",
        ),
        ("rediss://h?tls_ca=", "tls_ca is \"\": allowed is the path of a file"),
        ("redis://h?password=", "password is out of range (not shown): allowed is 1 to 16384 bytes"),
        ("redis://h?deadlin=1s", "store URL: option \"deadlin\" is not known: did you mean deadline?"),
        ("redis://h?Deadline=1s", "store URL: option \"Deadline\" is not known: did you mean deadline?"),
        ("redis://h?colour=1s", &format!("store URL: option \"colour\" is not known: allowed are {known}")),
        ("redis://h?key_secret=a&b=c", &unshown),
        ("redis://h?Password=a", &unshown),
        (
            "redis://h?key_secret=a&deadline=b",
            &format!("deadline is out of range (not shown): allowed is 1ms to 60s{TIME}"),
        ),
        ("redis://h?deadline=b&key_secret=a", &format!("deadline is \"b\": allowed is 1ms to 60s{TIME}")),
        (
            "redis://h?a",
            "store URL has a parameter without a value: allowed is name=value, with & between them",
        ),
        (
            "redis://h?prefix=%",
            "store URL has a % without two hexadecimal digits in the value of a parameter: write % as %25",
        ),
        ("redis://h?prefix=a&prefix=a", "store URL has prefix more than once: set it once"),
        ("redis://h/1?db=1", "store URL has db more than once: set it once"),
        ("redis://:p@h?password=p", "store URL has password more than once: set it once"),
        (
            "redis://h?reconnect_min=1s",
            "reconnect_min is 1s and reconnect_max is 200ms: allowed is a reconnect_max that is not shorter",
        ),
        (
            "redis://h?tls_ca=a",
            "tls_ca is only for TLS: use rediss://, rediss-sentinel:// or rediss-cluster://, or leave it out",
        ),
        ("rediss://h?tls_cert=a", "tls_cert is given without tls_key: give both"),
        ("rediss://h?tls_key=a", "tls_key is given without tls_cert: give both"),
        (
            "redis-cluster://h?sentinel_password=a",
            "sentinel_password is only for Sentinel: use redis-sentinel:// or rediss-sentinel://, or leave it out",
        ),
        (
            "redis-sentinel://h/s?sentinel_username=a",
            "sentinel_username is given without sentinel_password: give both, or only the password",
        ),
        ("redis://h?topology_refresh=1s", "topology_refresh is only for Sentinel and clusters: leave it out"),
    ];
    for (url, message) in table {
        assert_eq!(refusal(url), message, "{url}");
    }
}

#[test]
fn mistakes_about_tls_and_credentials() {
    let table = [
        (
            "rediss://h?ssl_cert_reqs=none",
            "store URL: option \"ssl_cert_reqs\" is not known: use tls_ca, or tls_fingerprint to pin a certificate, or \
             tls_insecure=true, which verifies nothing and is for development only; TLS itself is the scheme rediss://",
        ),
        (
            "redis://h?family=0",
            "store URL: option \"family\" is not known: leave it out: all addresses of a name are tried, of IPv4 and IPv6",
        ),
        ("redis://h?socket_timeout=5", "store URL: option \"socket_timeout\" is not known: use deadline"),
        (
            "rediss://h#insecure",
            "store URL ends in #insecure: verify the server by tls_ca or tls_fingerprint, or write tls_insecure=true as a \
             parameter, for development only",
        ),
        (
            "rediss://h?tls_fingerprint=ab",
            "tls_fingerprint is \"ab\": allowed is 1 to 8 fingerprints of 64 hexadecimal digits, with commas between them, \
             as openssl x509 -fingerprint -sha256 prints one after the =",
        ),
        ("rediss://h?tls_insecure=yes", "tls_insecure is \"yes\": allowed is true or false"),
        (
            "redis://h?tls_insecure=true",
            "tls_insecure is only for TLS: use rediss://, rediss-sentinel:// or rediss-cluster://, or leave it out",
        ),
        (
            "rediss://h?tls_insecure=true&tls_ca=a",
            "tls_ca and tls_insecure contradict each other: leave one out",
        ),
        (
            "redis://:p@h?password_file=a",
            "password and password_file contradict each other: leave one out, also in the user info of the URL",
        ),
        (
            "redis://u@h?password_file=a&password_command=b",
            "password_command and password_file contradict each other: leave one out",
        ),
        (
            "redis-sentinel://h/s?sentinel_password=a&sentinel_password_file=b",
            "sentinel_password and sentinel_password_file contradict each other: leave one out",
        ),
        (
            "redis-sentinel://h/s?sentinel_password_command=a&sentinel_password_file=b",
            "sentinel_password_command and sentinel_password_file contradict each other: leave one out",
        ),
        (
            "redis://h?sentinel_password_file=a",
            "sentinel_password_file is only for Sentinel: use redis-sentinel:// or rediss-sentinel://, or leave it out",
        ),
        ("redis://h?password_file=", "password_file is \"\": allowed is the path of a file"),
    ];
    for (url, message) in table {
        assert_eq!(refusal(url), message, "{url}");
    }
}

#[test]
fn escapes_are_decoded_and_nothing_else() {
    for (text, decoded) in
        [("", ""), ("a+b", "a+b"), ("%40%2f%2F%25", "@//%"), ("%C3%A9é", "éé"), ("%00", "\0")]
    {
        assert_eq!(decode("it", text).unwrap(), decoded);
    }
}

#[test]
fn other_escapes_are_refused() {
    for text in ["%", "%4", "a%", "%zz", "%4g", "%%40", "% 4", "%é"] {
        let message = decode("it", text).unwrap_err().to_string();
        assert_eq!(message, "store URL has a % without two hexadecimal digits in it: write % as %25");
    }
    let message = decode("it", "%FF").unwrap_err().to_string();
    assert_eq!(message, "store URL has bytes that are not UTF-8 in it: allowed is UTF-8");
}
