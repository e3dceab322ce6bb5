//! Which callers may ask, and over which listeners.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use polylimit::Limiter;
use polylimit_server::{Server, ServerOptions, TlsFiles};
use polylimit_test_servers::Certificates;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use crate::support::{Reply, Running, connect, exchange, expect, has_ended, limiter, send_on, wait_until};

/// The lines of callers whose tokens are the names of their roles.
fn callers() -> String {
    use sha2::{Digest, Sha256};
    let digits = |token: &str| {
        Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
    };
    ["check", "read", "admin"].map(|role| format!("{role} a-{role} sha256:{}\n", digits(role))).concat()
}

pub(crate) fn with_tokens(folder: &Path) -> ServerOptions {
    let path = folder.join("tokens");
    fs::write(&path, callers()).unwrap();
    let mut options = ServerOptions::default();
    options.tokens = Some(path);
    options
}

#[test]
fn role_of_a_token_says_what_its_caller_may_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(limiter().0, with_tokens(folder.path()));
    let body = json!({ "policy": "api", "key": "k" }).to_string();
    let ask = |admin: bool, method: &str, path: &str, token: Option<&str>| {
        let client = if admin { server.admin() } else { server.http() };
        let token = token.map(|token| format!("Bearer {token}"));
        let fields: Vec<_> = token.iter().map(|token| ("authorization", &**token)).collect();
        client.send(method, path, &fields, body.as_bytes()).status
    };
    for (admin, method, path, expected) in [
        (false, "POST", "/v1/check", [401, 401, 200, 200, 200]),
        (false, "POST", "/v1/reset", [401, 401, 403, 403, 200]),
        // One unit of three for each of those that may ask.
        (false, "GET", "/v1/forward/api", [401, 401, 200, 200, 200]),
        (false, "GET", "/healthz", [200; 5]),
        (true, "GET", "/metrics", [401, 401, 403, 200, 200]),
        (true, "POST", "/v1/explain", [401, 401, 403, 200, 200]),
        (true, "PUT", "/v1/policies?why=a", [401, 401, 403, 403, 428]),
        (true, "GET", "/v1/session", [401, 401, 403, 200, 200]),
        (true, "POST", "/v1/policies/diff", [401, 401, 403, 400, 400]),
        (true, "POST", "/v1/rollback", [401, 401, 403, 403, 400]),
        (true, "POST", "/v1/lists/add", [401, 401, 403, 403, 400]),
        (true, "POST", "/v1/block", [401, 401, 403, 403, 400]),
        (true, "POST", "/v1/reset", [401, 401, 403, 403, 200]),
        (true, "GET", "/", [200; 5]),
        (true, "GET", "/readyz", [200; 5]),
    ] {
        let tokens = [None, Some("wrong"), Some("check"), Some("read"), Some("admin")];
        let statuses = tokens.map(|token| ask(admin, method, path, token));
        assert_eq!(statuses, expected, "{method} {path}");
    }
    let refused =
        server.http().send("POST", "/v1/check", &[("authorization", "Basic YTpi")], body.as_bytes());
    assert_eq!((refused.status, refused.field("www-authenticate")), (401, Some("Bearer")));
}

#[test]
fn commands_need_a_token_first() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(limiter().0, with_tokens(folder.path()));
    let mut stream = server.resp();
    let refused = "-NOAUTH Authentication required.\r\n";
    exchange(
        &mut stream,
        &["PING", "POLYLIMIT.CHECK api k", "CL.THROTTLE k 1 1 1", "INFO"],
        &format!("+PONG\r\n{}", refused.repeat(3)),
    );
    exchange(
        &mut stream,
        &["AUTH wrong"],
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    );
    // The rest of the same read is answered with the new role.
    exchange(&mut stream, &["AUTH check", "POLYLIMIT.CHECK api k"], "+OK\r\n*9\r\n:1\r\n:3\r\n:2\r\n");
    let mut stream = server.resp();
    exchange(&mut stream, &["HELLO 3"], "-NOAUTH HELLO must be called");
    let mut stream = server.resp();
    exchange(&mut stream, &["HELLO 2 AUTH any check"], "*14\r\n");
    let mut stream = server.resp();
    exchange(
        &mut stream,
        &["AUTH any read", "POLYLIMIT.RESET api k"],
        "+OK\r\n-NOPERM the caller has the role read, and this needs admin\r\n",
    );
}

#[test]
fn tokens_are_read_again_and_a_bad_file_keeps_them() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(limiter().0, with_tokens(folder.path()));
    let ask = |token: &str| {
        let token = format!("Bearer {token}");
        let body = json!({ "policy": "model", "key": "k" }).to_string();
        server.http().send("POST", "/v1/peek", &[("authorization", &token)], body.as_bytes()).status
    };
    let path = folder.path().join("tokens");
    fs::write(&path, "admin ops hunter2\n").unwrap();
    let error = server.handle.reload().unwrap_err().to_string();
    assert!(error.contains("line 1") && !error.contains("hunter2"), "{error}");
    assert_eq!(ask("check"), 200);
    fs::write(&path, callers().replace("check a-check", "# check a-check")).unwrap();
    server.handle.reload().unwrap();
    assert_eq!((ask("check"), ask("admin")), (401, 200));
}

#[test]
fn connection_loses_its_role_when_its_token_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(limiter().0, with_tokens(folder.path()));
    let mut stream = server.resp();
    let allowed = "+OK\r\n*9\r\n:1\r\n:3\r\n:2\r\n:0\r\n:20000000\r\n:0\r\n$5\r\nstore\r\n$-1\r\n:0\r\n";
    exchange(&mut stream, &["AUTH check", "POLYLIMIT.CHECK api k"], allowed);
    let mut other = server.resp();
    exchange(&mut other, &["AUTH admin"], "+OK\r\n");
    fs::write(folder.path().join("tokens"), callers().replace("check a-check", "# check a-check")).unwrap();
    server.handle.reload().unwrap();
    let refused = "-NOAUTH Authentication required.\r\n";
    exchange(&mut stream, &["POLYLIMIT.CHECK api k", "CL.THROTTLE k 1 1 1"], &refused.repeat(2));
    exchange(&mut other, &["POLYLIMIT.RESET api k"], "*10\r\n:1\r\n");
    // It may say anew who it is.
    exchange(&mut stream, &["AUTH read", "PING"], "+OK\r\n+PONG\r\n");
}

/// The error of a server with these options.
fn refused(options: ServerOptions) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limiter = Limiter::builder().build().unwrap();
    runtime.block_on(Server::bind(limiter, options)).err().expect("a refusal").to_string()
}

#[test]
fn listeners_that_others_reach_need_tls_and_callers_that_say_who_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::generate(folder.path());
    let tls = Some(TlsFiles {
        certificate: certificates.server,
        key: certificates.server_key,
        client_authorities: None,
    });
    let options = |listener: &str| {
        let mut options = ServerOptions::default();
        options.listen = vec![listener.parse().unwrap()];
        options
    };
    for listener in ["http://0.0.0.0:0", "resp://[::]:0", "http://127.0.0.1:0"] {
        let is_local = listener.contains("127");
        let plain = options(listener);
        let mut with_tokens_only = options(listener);
        with_tokens_only.tokens = with_tokens(folder.path()).tokens;
        if is_local {
            drop(Running::start(Limiter::builder().build().unwrap(), plain));
            continue;
        }
        for refused_options in [plain.clone(), with_tokens_only] {
            let error = refused(refused_options);
            assert!(error.contains("other hosts can reach it") && error.contains("--insecure"), "{error}");
        }
        let mut insecure = plain;
        insecure.insecure = true;
        drop(Running::start(Limiter::builder().build().unwrap(), insecure));
    }
    let mut without_callers = options("https://0.0.0.0:0");
    without_callers.tls.clone_from(&tls);
    assert!(refused(without_callers).contains("--tokens"));
    // The admin listener is bound as those for callers are.
    for (listener, tls, tokens, words) in [
        ("http://0.0.0.0:0", None, None, "other hosts can reach it"),
        ("http://0.0.0.0:0", None, with_tokens(folder.path()).tokens, "other hosts can reach it"),
        ("https://0.0.0.0:0", tls.clone(), None, "other hosts can reach it"),
        ("resp://127.0.0.1:0", None, None, "the admin listener speaks HTTP"),
    ] {
        let mut of_operators = options("http://127.0.0.1:0");
        of_operators.admin = Some(listener.parse().unwrap());
        (of_operators.tls, of_operators.tokens) = (tls, tokens);
        assert!(refused(of_operators).contains(words), "{listener}");
    }
    let mut secure = options("https://0.0.0.0:0");
    (secure.tls, secure.tokens) = (tls, with_tokens(folder.path()).tokens);
    drop(Running::start(Limiter::builder().build().unwrap(), secure));
    assert!(refused(options("resps://127.0.0.1:0")).contains("TLS needs a certificate"));
    assert!(refused(ServerOptions::default()).contains("no listener"));
}

pub(crate) fn tls_client(
    server: &Running,
    at: usize,
    certificates: &Certificates,
    with_certificate: bool,
) -> StreamOwned<ClientConnection, TcpStream> {
    let configuration = tls_configuration(certificates, certificates, with_certificate);
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(configuration), name).unwrap();
    StreamOwned::new(connection, connect(server.address(at)))
}

/// A client that trusts an authority, and may show a certificate of another one.
pub(crate) fn tls_configuration(
    certificates: &Certificates,
    shown: &Certificates,
    with_certificate: bool,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificates.ca).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    if with_certificate {
        let certificate = CertificateDer::from_pem_file(&shown.client).unwrap();
        let key = PrivateKeyDer::from_pem_file(&shown.client_key).unwrap();
        builder.with_client_auth_cert(vec![certificate], key).unwrap()
    } else {
        builder.with_no_client_auth()
    }
}

fn with_authorities(certificates: &Certificates) -> ServerOptions {
    let mut options = ServerOptions::default();
    options.listen =
        ["https://127.0.0.1:0", "resps://127.0.0.1:0"].map(|text| text.parse().unwrap()).to_vec();
    options.tls = Some(TlsFiles {
        certificate: certificates.server.clone(),
        key: certificates.server_key.clone(),
        client_authorities: Some(certificates.ca.clone()),
    });
    options
}

/// The status of an answer; `None` where the connection ends without one.
fn status(
    server: &Running,
    configuration: ClientConfig,
    path: &str,
    fields: &[(&str, &str)],
) -> Option<String> {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(configuration), name).unwrap();
    let mut stream = StreamOwned::new(connection, connect(server.address(0)));
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let fields = fields.concat();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n");
    let mut answer = Vec::new();
    std::io::Write::write_all(&mut stream, request.as_bytes()).ok()?;
    let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
    let answer = String::from_utf8(answer).unwrap();
    Some(answer.split(' ').nth(1)?.to_owned())
}

#[test]
fn authorities_alone_let_in_only_clients_with_their_certificates() {
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [ours, theirs] = [&folder, &other].map(|folder| Certificates::generate(folder.path()));
    let server = Running::start(limiter().0, with_authorities(&ours));
    let ask = |configuration| status(&server, configuration, "/v1/forward/api", &[]);
    assert_eq!(ask(tls_configuration(&ours, &ours, true)).as_deref(), Some("200"));
    // Without a certificate, and with one of an authority that the server does not know.
    assert_eq!(ask(tls_configuration(&ours, &ours, false)), None);
    assert_eq!(ask(tls_configuration(&ours, &theirs, true)), None);
    // A client that does not know the server's authority ends the handshake itself.
    assert_eq!(ask(tls_configuration(&theirs, &ours, true)), None);
    let mut resp = tls_client(&server, 1, &ours, true);
    exchange(&mut resp, &["POLYLIMIT.RESET api k"], "*10\r\n:1\r\n");
}

#[test]
fn connection_loses_its_role_when_the_name_of_its_certificate_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::generate(folder.path());
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, callers() + "admin machine san:client\n").unwrap();
    let mut options = with_authorities(&certificates);
    options.tokens = Some(tokens.clone());
    let server = Running::start(limiter().0, options);
    let mut resp = tls_client(&server, 1, &certificates, true);
    exchange(
        &mut resp,
        &["POLYLIMIT.RESET api k", "PING"],
        "*10\r\n:1\r\n:3\r\n:3\r\n:0\r\n:0\r\n:0\r\n$5\r\nstore\r\n$-1\r\n:0\r\n:0\r\n+PONG\r\n",
    );
    let mut http = tls_client(&server, 0, &certificates, true);
    let request = b"GET /v1/forward/api HTTP/1.1\r\nhost: a\r\n\r\n";
    std::io::Write::write_all(&mut http, request).unwrap();
    expect(&mut http, "HTTP/1.1 200 OK\r\n");
    fs::write(&tokens, callers()).unwrap();
    server.handle.reload().unwrap();
    exchange(&mut resp, &["POLYLIMIT.CHECK api k"], "-NOAUTH Authentication required.\r\n");
    std::io::Write::write_all(&mut http, request).unwrap();
    let mut remaining = Vec::new();
    while !remaining.ends_with(b"HTTP/1.1 401 ") {
        let mut byte = [0];
        std::io::Read::read_exact(&mut http, &mut byte).unwrap();
        remaining.push(byte[0]);
    }
}

#[test]
fn certificate_of_a_client_gives_it_a_role() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::generate(folder.path());
    let tokens = folder.path().join("tokens");
    let mut options = with_authorities(&certificates);
    fs::write(&tokens, callers() + "admin machine san:client\n").unwrap();
    options.tokens = Some(tokens);
    let server = Running::start(limiter().0, options);
    let body = json!({ "policy": "api", "key": "k" }).to_string();
    let ask = |with_certificate, fields: &[(&str, &str)]| -> Reply {
        let mut stream = tls_client(&server, 0, &certificates, with_certificate);
        send_on(&mut stream, "POST", "/v1/reset", fields, body.as_bytes())
    };
    assert_eq!(ask(true, &[]).status, 200);
    assert_eq!(ask(false, &[]).status, 401);
    assert_eq!(ask(false, &[("authorization", "Bearer admin")]).status, 200);
    // A token says more than a certificate.
    assert_eq!(ask(true, &[("authorization", "Bearer check")]).status, 403);
    let mut stream = tls_client(&server, 1, &certificates, true);
    exchange(&mut stream, &["POLYLIMIT.RESET api k"], "*10\r\n:1\r\n");
    let mut stream = tls_client(&server, 1, &certificates, false);
    exchange(&mut stream, &["POLYLIMIT.CHECK api k"], "-NOAUTH");
    // Not TLS at all.
    let mut plain = connect(server.address(0));
    std::io::Write::write_all(&mut plain, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(has_ended(&mut plain));
}

/// The bytes of the certificate that a server shows.
fn shown_certificate(server: &Running, certificates: &Certificates) -> Vec<u8> {
    let mut stream = tls_client(server, 0, certificates, false);
    assert_eq!(send_on(&mut stream, "GET", "/healthz", &[], b"").status, 200);
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn certificate_is_read_again_and_a_bad_one_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let first = Certificates::generate(folder.path());
    let mut options = ServerOptions::default();
    options.listen = vec!["https://127.0.0.1:0".parse().unwrap()];
    options.tls = Some(TlsFiles {
        certificate: first.server.clone(),
        key: first.server_key.clone(),
        client_authorities: None,
    });
    let server = Running::start(limiter().0, options);
    let before = shown_certificate(&server, &first);
    // A connection that is open goes on with the certificate that it has.
    let mut open = tls_client(&server, 0, &first, false);
    open.conn.complete_io(&mut open.sock).unwrap();

    // A certificate without its key, and a file that is none: both are refused, and nothing changes.
    let other = tempfile::tempdir().unwrap();
    let second = Certificates::generate(other.path());
    fs::copy(&second.server, &first.server).unwrap();
    assert!(server.handle.reload().unwrap_err().to_string().contains("server.pem cannot be used"));
    assert_eq!(shown_certificate(&server, &first), before);
    fs::write(&first.server_key, "no key").unwrap();
    assert!(server.handle.reload().unwrap_err().to_string().contains("no private key in PEM"));
    assert_eq!(shown_certificate(&server, &first), before);

    fs::copy(&second.server_key, &first.server_key).unwrap();
    server.handle.reload().unwrap();
    let after = shown_certificate(&server, &second);
    assert_ne!(after, before);
    assert_eq!(after, CertificateDer::from_pem_file(&second.server).unwrap().to_vec());
    assert_eq!(send_on(&mut open, "GET", "/healthz", &[], b"").status, 200);
}

#[test]
fn sighup_reads_tokens_and_certificates_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = Certificates::generate(folder.path());
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, callers()).unwrap();
    let mut options = with_authorities(&first);
    options.tokens = Some(tokens.clone());
    let server = Running::start_with_signals(limiter().0, options);
    let before = shown_certificate(&server, &first);
    let other = tempfile::tempdir().unwrap();
    let second = Certificates::generate(other.path());
    // Its certificate, and the authority of its clients, in place of the first ones.
    for (new, old) in
        [(&second.server, &first.server), (&second.server_key, &first.server_key), (&second.ca, &first.ca)]
    {
        fs::copy(new, old).unwrap();
    }
    fs::write(&tokens, callers() + "admin machine san:client\n").unwrap();
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGHUP).unwrap();
    let ask = |trusted: &Certificates, shown: &Certificates| {
        status(&server, tls_configuration(trusted, shown, true), "/v1/forward/api", &[])
    };
    wait_until(|| ask(&second, &second).as_deref() == Some("200"));
    assert_ne!(shown_certificate(&server, &second), before);
    // A certificate of the authority before is not verified any more.
    assert_eq!(ask(&second, &first), None);
}

#[test]
fn unix_sockets_have_the_mode_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let [http, resp] = ["http.sock", "resp.sock"].map(|name| folder.path().join(name));
    let mut options = ServerOptions::default();
    options.listen = vec![
        format!("unix:{}", http.display()).parse().unwrap(),
        format!("resp+unix:{}", resp.display()).parse().unwrap(),
    ];
    options.socket_mode = 0o640;
    // A dead process has left its socket.
    drop(std::os::unix::net::UnixListener::bind(&http).unwrap());
    let server = Running::start(limiter().0, options.clone());
    for path in [&http, &resp] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o640);
    }
    let body = json!({ "policy": "api", "key": "k" }).to_string();
    let reply = send_on(&mut UnixStream::connect(&http).unwrap(), "POST", "/v1/check", &[], body.as_bytes());
    assert_eq!(reply.json()["remaining"], 2);
    exchange(
        &mut UnixStream::connect(&resp).unwrap(),
        &["POLYLIMIT.CHECK api k"],
        "*9\r\n:1\r\n:3\r\n:1\r\n",
    );
    // A living server keeps its socket.
    assert!(refused(options).contains("cannot listen on unix:"));
    assert!(server.stop());
    assert!(!http.exists() && !resp.exists());
}

#[test]
fn open_listener_asks_for_no_token_and_may_check_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = with_tokens(folder.path());
    options.listen = vec!["http://127.0.0.1:0".parse().unwrap()];
    options.listen_open =
        ["http://127.0.0.1:0", "resp://127.0.0.1:0"].map(|text| text.parse().unwrap()).to_vec();
    let server = Running::start(limiter().0, options.clone());
    let body = json!({ "policy": "api", "key": "k" }).to_string();
    let ask = |at: usize, path: &str, fields: &[(&str, &str)]| {
        send_on(&mut connect(server.address(at)), "POST", path, fields, body.as_bytes()).status
    };
    assert_eq!((ask(0, "/v1/peek", &[]), ask(1, "/v1/peek", &[])), (401, 200));
    // What a proxy hands on may be a token of its client.
    for token in ["Bearer of the client", "Bearer admin"] {
        assert_eq!(ask(1, "/v1/peek", &[("authorization", token)]), 200);
        assert_eq!(ask(1, "/v1/reset", &[("authorization", token)]), 403);
    }
    let mut stream = connect(server.address(2));
    exchange(
        &mut stream,
        &["POLYLIMIT.RESET api k", "POLYLIMIT.PEEK api k"],
        "-NOPERM the caller has the role check, and this needs admin\r\n*9\r\n",
    );
    options.listen_open = vec!["http://0.0.0.0:0".parse().unwrap()];
    options.insecure = true;
    assert!(refused(options).contains("loopback and Unix sockets"));
}
