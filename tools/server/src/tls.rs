//! TLS: certificate, key and the authorities of clients' certificates, read again when they change.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use x509_cert::Certificate;
use x509_cert::der::Decode;

use crate::endpoint::Protocol;
use crate::error::ServeError;

/// The files of TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of clients' certificates. With them, a client needs a certificate, or a token where the file of tokens has some.
    pub client_authorities: Option<PathBuf>,
}

/// The active settings of TLS.
pub(crate) struct Tls {
    files: TlsFiles,
    loaded: ArcSwap<Loaded>,
}

/// What was read from the files.
struct Loaded {
    http: Arc<ServerConfig>,
    resp: Arc<ServerConfig>,
    /// When the first certificate of the chain expires, in seconds since 1970; `None` where its validity cannot be read.
    expires_at: Option<u64>,
}

impl Tls {
    pub(crate) fn read(files: TlsFiles, has_tokens: bool) -> Result<Self, ServeError> {
        let loaded = Loaded::read(&files, has_tokens)?;
        Ok(Self { files, loaded: ArcSwap::from_pointee(loaded) })
    }

    /// Reads the files again; when one cannot be used, all stay as they are.
    pub(crate) fn reload(&self, has_tokens: bool) -> Result<(), ServeError> {
        self.loaded.store(Arc::new(Loaded::read(&self.files, has_tokens)?));
        Ok(())
    }

    pub(crate) fn acceptor(&self, protocol: Protocol) -> TlsAcceptor {
        let loaded = self.loaded.load();
        TlsAcceptor::from(Arc::clone(match protocol {
            Protocol::Http => &loaded.http,
            Protocol::Resp => &loaded.resp,
        }))
    }

    /// Whether clients are known by certificates.
    pub(crate) fn verifies_clients(&self) -> bool {
        self.files.client_authorities.is_some()
    }

    /// When the active certificate expires, in seconds since 1970: the first of its chain, since clients verify all of them.
    pub(crate) fn expires_at(&self) -> Option<u64> {
        self.loaded.load().expires_at
    }
}

impl Loaded {
    fn read(files: &TlsFiles, has_tokens: bool) -> Result<Self, ServeError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificates = certificates(&files.certificate)?;
        let expires_at = certificates.iter().filter_map(expiry).min();
        let http = configuration(files, certificates, &provider, has_tokens)?;
        let mut resp = http.clone();
        resp.alpn_protocols = Vec::new();
        Ok(Self { http: Arc::new(http), resp: Arc::new(resp), expires_at })
    }
}

/// When a certificate expires, in seconds since 1970.
fn expiry(certificate: &CertificateDer<'_>) -> Option<u64> {
    let certificate = Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate().validity().not_after.to_unix_duration().as_secs())
}

fn configuration(
    files: &TlsFiles,
    certificates: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
    has_tokens: bool,
) -> Result<ServerConfig, ServeError> {
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| {
        ServeError::of_file(&files.key, &format!("it has no private key in PEM: {error}"))
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ServeError::new(error.to_string()))?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in self::certificates(path)? {
                roots.add(certificate).map_err(|error| ServeError::of_file(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
            let verifier = if has_tokens { verifier.allow_unauthenticated() } else { verifier };
            builder.with_client_cert_verifier(
                verifier.build().map_err(|error| ServeError::of_file(path, &error))?,
            )
        }
    };
    let mut configuration = builder
        .with_single_cert(certificates, key)
        .map_err(|error| ServeError::of_file(&files.certificate, &error))?;
    configuration.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(configuration)
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let refused = |error: &dyn std::fmt::Display| {
        ServeError::of_file(path, &format!("it has no certificate in PEM: {error}"))
    };
    let read = CertificateDer::pem_file_iter(path).map_err(|error| refused(&error))?;
    let read: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| refused(&error))?;
    if read.is_empty() { Err(refused(&"none was found")) } else { Ok(read) }
}
