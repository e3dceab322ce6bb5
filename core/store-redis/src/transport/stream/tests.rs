//! Handshakes without a network, and malformed files.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::CertificateDer;

use crate::config::target::Trust;
use crate::transport::stream::*;

/// A temporary directory for one test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("polylimit-tls-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for a name and its key, as PEM.
    fn certify(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    /// A server that requires a client certificate of this authority.
    fn server(&self, name: &str) -> ServerConnection {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap();
        let (certificate, key) = self.certify(name);
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        ServerConnection::new(Arc::new(config)).unwrap()
    }
}

/// Exchanges data until neither side has more to send.
fn shake_hands(tls: &Tls, host: &str, mut server: ServerConnection) -> Result<(), rustls::Error> {
    let mut client =
        ClientConnection::new(client_config(tls).unwrap(), server_name(tls, host).unwrap()).unwrap();
    while client.wants_write() || server.wants_write() {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        let mut sent = &sent[..];
        while !sent.is_empty() {
            server.read_tls(&mut sent).unwrap();
            server.process_new_packets()?;
        }
        let mut sent = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut sent).unwrap();
        }
        let mut sent = &sent[..];
        while !sent.is_empty() {
            client.read_tls(&mut sent).unwrap();
            client.process_new_packets()?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    let mut nothing = [0];
    assert!(server.reader().read(&mut nothing).is_err());
    Ok(())
}

#[test]
fn both_sides_are_verified() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let (certificate, key) = authority.certify("client");
    let tls = Tls {
        trust: Trust::File(folder.file("ca.pem", &authority.0.pem())),
        identity: Some(Identity {
            certificate: folder.file("cert.pem", &certificate),
            key: folder.file("key.pem", &key),
        }),
        server_name: None,
    };
    shake_hands(&tls, "redis.example", authority.server("redis.example")).unwrap();
    shake_hands(&tls, "192.0.2.7", authority.server("192.0.2.7")).unwrap();
    let named = Tls { server_name: Some("redis.example".into()), ..tls.clone() };
    shake_hands(&named, "192.0.2.7", authority.server("redis.example")).unwrap();

    let refused = |tls: &Tls, server| shake_hands(tls, "redis.example", server).unwrap_err().to_string();
    assert!(refused(&tls, authority.server("other.example")).contains("not valid for name"));
    assert!(refused(&tls, Authority::new().server("redis.example")).contains("invalid peer certificate"));
    let anonymous = Tls { identity: None, ..tls.clone() };
    assert!(refused(&anonymous, authority.server("redis.example")).contains("no certificates"));
}

#[test]
fn mistakes_name_the_option_and_the_file() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let (certificate, key) = authority.certify("client");
    let certificate = folder.file("cert.pem", &certificate);
    let key = folder.file("key.pem", &key);
    let empty = folder.file("empty.pem", "");
    let damaged = folder.file("damaged.pem", "-----BEGIN CERTIFICATE-----\nhunter2!\n");
    let none = folder.0.join("none.pem");
    let ca = |file: &PathBuf| client_config(&Tls { trust: Trust::File(file.clone()), ..Tls::default() });
    let identity = |certificate: &PathBuf, key: &PathBuf| {
        let identity = Some(Identity { certificate: certificate.clone(), key: key.clone() });
        client_config(&Tls { trust: Trust::File(certificate.clone()), identity, ..Tls::default() })
    };
    let (_, other_key) = authority.certify("other");
    let other_key = folder.file("other.pem", &other_key);
    let table = [
        (ca(&none), "tls_ca F/none.pem cannot be read: No such file or directory (os error 2)"),
        (ca(&empty), "tls_ca F/empty.pem holds no certificate: allowed is a PEM file with one"),
        (ca(&key), "tls_ca F/key.pem holds no certificate: allowed is a PEM file with one"),
        (ca(&damaged), "tls_ca F/damaged.pem is no well-formed PEM file: allowed is one with a certificate"),
        (
            identity(&certificate, &none),
            "tls_key F/none.pem cannot be read: No such file or directory (os error 2)",
        ),
        (
            identity(&certificate, &certificate),
            "tls_key F/cert.pem holds no private key: allowed is a PEM file with one",
        ),
        (
            identity(&certificate, &other_key),
            "tls_cert F/cert.pem and tls_key F/other.pem cannot be used together: keys may not be consistent: \
             KeyMismatch",
        ),
    ];
    for (result, message) in table {
        let read = result.unwrap_err().to_string().replace(folder.0.to_str().unwrap(), "F");
        assert_eq!(read, message);
    }
}

#[test]
fn the_system_is_trusted_unless_told_otherwise() {
    // Whether there are system certificates depends on the machine.
    match client_config(&Tls::default()) {
        Ok(config) => assert!(!config.client_auth_cert_resolver.has_certs()),
        Err(error) => assert_eq!(
            error.to_string(),
            "the system has no certificates to trust: install them, or set tls_ca to a PEM file"
        ),
    }
}

#[test]
fn a_host_that_no_certificate_can_hold_is_refused() {
    let name = |host| server_name(&Tls::default(), host);
    assert_eq!(name("::1").unwrap(), ServerName::try_from("::1").unwrap());
    let message = name("a_.-b..").unwrap_err().to_string();
    assert_eq!(
        message,
        "the host is not a name that a certificate can have: set tls_server_name to one that is"
    );
}
