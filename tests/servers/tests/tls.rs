//! A server with TLS has valid certificates, and requires one of the client if it is configured to.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what fails here is a failed test"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polylimit_test_servers::{ClientCertificates, Kind, Server};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

/// The reply to PING of a server with a certificate for `name`, with or without a client certificate.
fn ping(server: &Server, name: &'static str, present: bool) -> std::io::Result<String> {
    let files = server.certificates().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&files.ca)).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = if present {
        let key = PrivateKeyDer::from_pem_file(&files.client_key).unwrap();
        config.with_client_auth_cert(vec![certificate(&files.client)], key).unwrap()
    } else {
        config.with_no_client_auth()
    };
    let client = ClientConnection::new(Arc::new(config), ServerName::try_from(name).unwrap()).unwrap();
    let socket = TcpStream::connect(server.address())?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut stream = StreamOwned::new(client, socket);
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 7];
    stream.read_exact(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

#[test]
fn certificate_is_valid_for_the_address_and_name_of_the_server_only() {
    for kind in Kind::ALL {
        let server = Server::options(kind).tls(ClientCertificates::Ignored).start();
        assert!(server.url().starts_with("rediss://127.0.0.1:"));
        assert_eq!(ping(&server, "127.0.0.1", false).unwrap(), "+PONG\r\n");
        assert_eq!(ping(&server, "localhost", false).unwrap(), "+PONG\r\n");
        assert!(ping(&server, "example.org", false).is_err());
    }
}

#[test]
fn client_without_a_required_certificate_is_refused() {
    let server = Server::options(Kind::Redis).tls(ClientCertificates::Required).start();
    assert!(ping(&server, "127.0.0.1", false).is_err());
    assert_eq!(ping(&server, "127.0.0.1", true).unwrap(), "+PONG\r\n");
}
