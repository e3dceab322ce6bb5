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

/// The settings of TLS in force, for each protocol.
pub(crate) struct Tls {
    files: TlsFiles,
    http: ArcSwap<ServerConfig>,
    resp: ArcSwap<ServerConfig>,
}

impl Tls {
    pub(crate) fn read(files: TlsFiles, has_tokens: bool) -> Result<Self, ServeError> {
        let [http, resp] = configurations(&files, has_tokens)?;
        Ok(Self { files, http: ArcSwap::new(http), resp: ArcSwap::new(resp) })
    }

    /// Reads the files again; when one cannot be used, all stay as they are.
    pub(crate) fn reload(&self, has_tokens: bool) -> Result<(), ServeError> {
        let [http, resp] = configurations(&self.files, has_tokens)?;
        self.http.store(http);
        self.resp.store(resp);
        Ok(())
    }

    pub(crate) fn acceptor(&self, protocol: Protocol) -> TlsAcceptor {
        TlsAcceptor::from(match protocol {
            Protocol::Http => self.http.load_full(),
            Protocol::Resp => self.resp.load_full(),
        })
    }

    /// Whether clients are known by certificates.
    pub(crate) fn verifies_clients(&self) -> bool {
        self.files.client_authorities.is_some()
    }
}

fn configurations(files: &TlsFiles, has_tokens: bool) -> Result<[Arc<ServerConfig>; 2], ServeError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let http = configuration(files, &provider, has_tokens)?;
    let mut resp = http.clone();
    resp.alpn_protocols = Vec::new();
    Ok([Arc::new(http), Arc::new(resp)])
}

fn configuration(
    files: &TlsFiles,
    provider: &Arc<CryptoProvider>,
    has_tokens: bool,
) -> Result<ServerConfig, ServeError> {
    let certificates = certificates(&files.certificate)?;
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
