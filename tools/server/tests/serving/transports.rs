//! The same service over every transport: HTTP/2 and gRPC over TLS and over Unix sockets, the admin listener over both, and readiness that
//! needs the store. Metrics of certificates and of the process.

use std::fs;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use polylimit::Limiter;
use polylimit_server::{ServerOptions, TlsFiles};
use polylimit_test_servers::{Certificates, Kind, Server as Redis};
use prost::Message;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::messages::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::security::{tls_client, tls_configuration, with_tokens};
use crate::support::{Running, SOON, connect, limiter, send_on, started, wait_until};

const CHECK: &str = "/v1/check";
const RLS: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const DOCUMENT: &str = "polylimit = 1\n[policies.api]\nquotas = \"3/minute token_bucket\"\n\
    [[rules]]\nmatch = { domain = \"shop\", descriptor = \"user\" }\napply = [{ policy = \"api\", key = \"{user}\" }]\n";

fn served(listener: &str, tls: Option<TlsFiles>) -> Running {
    let limiter = Limiter::builder().document(DOCUMENT).build().unwrap();
    let mut options = ServerOptions::default();
    options.listen = vec![listener.parse().unwrap()];
    options.tls = tls;
    Running::start(limiter, options)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(SOON, work).await.expect("an answer") })
}

fn files(certificates: &Certificates) -> TlsFiles {
    TlsFiles {
        certificate: certificates.server.clone(),
        key: certificates.server_key.clone(),
        client_authorities: None,
    }
}

/// Asks once over HTTP/2 with JSON and once with gRPC, over one connection.
async fn asks_over_http_2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let ask = async |path: &str, content_type: &str, message: Bytes| {
        let mut sender = sender.clone().ready().await.unwrap();
        let request =
            http::Request::post(format!("http://limits{path}")).header("content-type", content_type);
        let request = request.header("te", "trailers").body(()).unwrap();
        let (response, mut body) = sender.send_request(request, false).unwrap();
        body.send_data(message, true).unwrap();
        let response = response.await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        while let Some(data) = body.data().await {
            bytes.extend(data.unwrap());
        }
        (bytes, body.trailers().await.unwrap())
    };
    let (answer, _) = ask(CHECK, "application/json", r#"{"policy":"api","key":"u"}"#.into()).await;
    assert_eq!(serde_json::from_slice::<Value>(&answer).unwrap()["remaining"], 2);
    let entries = vec![Entry { key: "user".to_owned(), value: "u".to_owned() }];
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    let message = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 }.encode_to_vec();
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.extend(message);
    let (answer, trailers) = ask(RLS, "application/grpc", framed.freeze()).await;
    assert_eq!(trailers.unwrap()["grpc-status"], "0");
    let response = RateLimitResponse::decode(&answer[5..]).unwrap();
    assert_eq!((response.overall_code(), response.statuses[0].limit_remaining), (Code::Ok, 1));
    connection.abort();
}

/// The value of a metric without labels.
fn metric(server: &Running, name: &str) -> Option<f64> {
    let metrics = server.admin().get("/metrics").body;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(value.parse().unwrap())
}

#[test]
fn metrics_have_the_first_expiry_of_the_certificates_in_force() {
    const EXPIRY: &str = "polylimit_server_certificate_expiry_timestamp_seconds";
    // 2030-01-01 and 2031-01-01 in seconds since 1970.
    const IN_2030: f64 = 1_893_456_000.0;
    const IN_2031: f64 = 1_924_992_000.0;
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["chain.pem", "key.pem"].map(|name| folder.path().join(name));
    let pair = KeyPair::generate().unwrap();
    fs::write(&key, pair.serialize_pem()).unwrap();
    let until = |year| {
        let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
        parameters.self_signed(&pair).unwrap().pem()
    };
    fs::write(&certificate, until(2031) + &until(2030)).unwrap();
    let mut options = ServerOptions::default();
    options.listen =
        ["https://127.0.0.1:0", "resps://127.0.0.1:0"].map(|text| text.parse().unwrap()).to_vec();
    options.admin = Some("http://127.0.0.1:0".parse().unwrap());
    options.tls = Some(TlsFiles { certificate: certificate.clone(), key, client_authorities: None });
    let server = Running::start(limiter().0, options);
    assert_eq!(metric(&server, EXPIRY), Some(IN_2030));
    fs::write(&certificate, until(2031)).unwrap();
    server.handle.reload().unwrap();
    assert_eq!(metric(&server, EXPIRY), Some(IN_2031));
    fs::write(&certificate, "nonsense").unwrap();
    let _ = server.handle.reload().unwrap_err();
    assert_eq!(metric(&server, EXPIRY), Some(IN_2031));

    // Without TLS there is no certificate.
    assert_eq!(metric(&started(), EXPIRY), None);
}

#[test]
fn metrics_of_the_process_are_those_of_the_system() {
    let server = started();
    let read = |name: &str| metric(&server, name).unwrap_or_else(|| panic!("no {name}"));
    let (before, open) = (read("process_cpu_seconds_total"), read("process_open_fds"));
    // Work of this process, until the system has counted some of it.
    let since = Instant::now();
    while read("process_cpu_seconds_total") <= before {
        assert!(since.elapsed() < SOON, "no processor time is counted");
    }
    let sockets: Vec<_> = (0..64).map(|_| connect(server.address(0))).collect();
    assert!(read("process_open_fds") >= open + 32.0, "{open}");
    drop(sockets);
    assert!(read("process_max_fds") >= read("process_open_fds"));
    let resident = read("process_resident_memory_bytes");
    assert!(resident > 1e6 && resident < read("process_virtual_memory_bytes"), "{resident}");
    assert!(read("process_threads") >= 2.0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let age = now - read("process_start_time_seconds");
    // The start is counted from that of the system, in whole seconds.
    assert!((-2.0..86_400.0).contains(&age), "{age}");
}

#[test]
fn http_2_and_grpc_are_chosen_by_alpn_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::generate(folder.path());
    let server = served("https://127.0.0.1:0", Some(files(&certificates)));
    let connect = async |protocols: &[&str]| {
        let mut configuration = tls_configuration(&certificates, &certificates, false);
        configuration.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = tokio::net::TcpStream::connect(server.address(0)).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(configuration));
        connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
    };
    run(async {
        let stream = connect(&["http/1.1", "h2"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        asks_over_http_2(stream).await;
        let stream = connect(&["http/1.1"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    });
}

#[test]
fn http_2_and_grpc_are_spoken_over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.sock");
    let _server = served(&format!("unix:{}", path.display()), None);
    run(async { asks_over_http_2(tokio::net::UnixStream::connect(&path).await.unwrap()).await });
}

#[test]
fn operators_are_answered_over_tls_and_over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::generate(folder.path());
    let mut options = with_tokens(folder.path());
    options.listen = vec!["http://127.0.0.1:0".parse().unwrap()];
    options.admin = Some("https://127.0.0.1:0".parse().unwrap());
    options.tls = Some(files(&certificates));
    let server = Running::start(limiter().0, options);
    let ask = |path: &str, fields: &[(&str, &str)]| {
        send_on(&mut tls_client(&server, 1, &certificates, false), "GET", path, fields, b"").status
    };
    assert_eq!((ask("/readyz", &[]), ask("/v1/stats", &[])), (200, 401));
    assert_eq!(ask("/v1/stats", &[("authorization", "Bearer read")]), 200);

    let path = folder.path().join("admin.sock");
    let mut options = ServerOptions::default();
    options.listen = vec!["http://127.0.0.1:0".parse().unwrap()];
    options.admin = Some(format!("unix:{}", path.display()).parse().unwrap());
    let _server = Running::start(limiter().0, options);
    let stats = send_on(&mut UnixStream::connect(&path).unwrap(), "GET", "/v1/stats", &[], b"");
    assert_eq!(stats.status, 200);
}

/// The log has the name that the server knows the caller by, and what the request says only in addition.
#[test]
fn log_names_the_caller_whatever_the_request_says() {
    let redis = Redis::start(Kind::Redis, &[]);
    let folder = tempfile::tempdir().unwrap();
    let limiter = || {
        let url = format!("{}?deadline=5s", redis.url());
        Limiter::builder().store(&url).configuration("store").build().unwrap()
    };
    let path = folder.path().join("admin.sock");
    let mut options = ServerOptions::default();
    options.listen = vec!["http://127.0.0.1:0".parse().unwrap()];
    options.admin = Some(format!("unix:{}", path.display()).parse().unwrap());
    let by_socket = Running::start(limiter(), options);
    let publish = |query: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        let version = [("if-match", if query.contains("first") { "\"0\"" } else { "\"1\"" })];
        send_on(&mut stream, "PUT", &format!("/v1/policies?{query}"), &version, DOCUMENT.as_bytes()).status
    };
    assert_eq!((publish("why=first"), publish("why=second&by=root")), (200, 200));
    drop(by_socket);
    let by_token = Running::start(limiter(), {
        let mut options = with_tokens(folder.path());
        options.listen =
            ["http://127.0.0.1:0", "resp://127.0.0.1:0"].map(|text| text.parse().unwrap()).to_vec();
        options.admin = Some("http://127.0.0.1:0".parse().unwrap());
        options
    });
    let token = [("authorization", "Bearer admin")];
    for by in [Value::Null, json!("a-admin"), json!("somebody")] {
        let item = json!({ "list": "deny", "item": "client 192.0.2.1", "why": "test", "by": by });
        let added = by_token.admin().send("POST", "/v1/lists/add", &token, item.to_string().as_bytes());
        assert_eq!(added.status, 200, "{added:?}");
    }
    let history = by_token.admin().send("GET", "/v1/history?most=5", &token, b"").json();
    let names: Vec<_> =
        history.as_array().unwrap().iter().map(|change| change["by"].as_str().unwrap()).collect();
    let user =
        format!("uid:{}", std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()));
    assert_eq!(names, ["a-admin (somebody)", "a-admin", "a-admin", &format!("{user} (root)"), &user]);
}

#[test]
fn readiness_needs_the_store_where_the_options_say_so() {
    for needs_store in [false, true] {
        let redis = Redis::start(Kind::Redis, &[]);
        let limiter = Limiter::builder().store(&redis.url()).document(DOCUMENT).build().unwrap();
        let mut options = ServerOptions::default();
        options.ready_needs_store = needs_store;
        let server = Running::start(limiter, options);
        let ready = || server.http().get("/readyz").status;
        wait_until(|| ready() == 200);
        redis.kill();
        if needs_store {
            wait_until(|| ready() == 503);
            assert_eq!(server.admin().get("/readyz").json()["code"], "not_ready");
        }
        assert_eq!((ready() == 200, server.http().get("/healthz").status), (!needs_store, 200));
    }
}
