//! Certificates for TLS, made when a test starts: an authority, a server signed by it, and a client signed by it.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// The PEM files of a server with TLS. The server's certificate is for 127.0.0.1 and localhost.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The authority that signed the others.
    pub ca: PathBuf,
    /// The server's certificate.
    pub server: PathBuf,
    /// The key of the server's certificate.
    pub server_key: PathBuf,
    /// The certificate that the server has after a renewal.
    pub renewed: PathBuf,
    /// The key of that certificate.
    pub renewed_key: PathBuf,
    /// A client's certificate.
    pub client: PathBuf,
    /// The key of the client's certificate.
    pub client_key: PathBuf,
}

impl Certificates {
    /// Makes a new authority and certificates, with their files in the folder `dir`.
    pub fn generate(dir: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "polylimit test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        let ca = save(dir, "ca.pem", &params.self_signed(&key).expect("a certificate").pem());
        let issuer = Issuer::new(params, key);
        let (server, server_key) = signed(dir, "server", &HOSTS, &issuer, None);
        let (client, client_key) = signed(dir, "client", &["client"], &issuer, None);
        let (renewed, renewed_key) = signed(dir, "renewed", &HOSTS, &issuer, None);
        Self { ca, server, server_key, renewed, renewed_key, client, client_key }
    }

    /// Makes a server's certificate for 127.0.0.1 and localhost that is its own authority, as `openssl req -x509` does: its file and
    /// that of its key.
    pub fn self_signed(dir: &Path) -> (PathBuf, PathBuf) {
        let mut params =
            CertificateParams::new([HOSTS[0].to_owned(), HOSTS[1].to_owned()]).expect("names of hosts");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        (save(dir, "self.pem", &certificate.pem()), save(dir, "self.key", &key.serialize_pem()))
    }

    /// Makes an authority and a server's certificate for 127.0.0.1 and localhost that was valid until a day: the files of the
    /// authority, the certificate and its key.
    pub fn expired(dir: &Path, until: (i32, u8, u8)) -> [PathBuf; 3] {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let ca = save(dir, "old-ca.pem", &params.self_signed(&key).expect("a certificate").pem());
        let (certificate, key) = signed(dir, "old", &HOSTS, &Issuer::new(params, key), Some(until));
        [ca, certificate, key]
    }
}

const HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];

fn signed(
    dir: &Path,
    name: &str,
    hosts: &[&str],
    issuer: &Issuer<'_, KeyPair>,
    until: Option<(i32, u8, u8)>,
) -> (PathBuf, PathBuf) {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("names of hosts");
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    if let Some((year, month, day)) = until {
        params.not_after = date_time_ymd(year, month, day);
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    let file = save(dir, &format!("{name}.pem"), &certificate.pem());
    (file, save(dir, &format!("{name}.key"), &key.serialize_pem()))
}

fn save(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).expect("a file in the temporary folder");
    path
}
