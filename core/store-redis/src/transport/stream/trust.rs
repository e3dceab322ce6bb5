//! Which certificates of servers are trusted.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};

use crate::config::target::{Fingerprint, Tls, Trust};
use polylimit_rules::error::Error;
use polylimit_rules::report::hex;

/// Verifies the certificate that a server presents. A server always has to prove that it has the certificate's key.
#[derive(Debug)]
pub(crate) struct Verifier {
    trusted: Trusted,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
enum Trusted {
    Authorities {
        chains: Arc<WebPkiServerVerifier>,
        /// The certificates of the file `tls_ca`: one that a server presents itself needs no authority and no name.
        named: Vec<CertificateDer<'static>>,
    },
    Fingerprints(Box<[Fingerprint]>),
    Any,
}

impl Verifier {
    /// Reads the certificates to trust.
    pub(crate) fn new(tls: &Tls, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let trusted = match &tls.trust {
            Trust::System => authorities(trusted_by_system()?, Vec::new(), &provider)?,
            Trust::File(file) => {
                let (mut roots, named) = (RootCertStore::empty(), certificates("tls_ca", file)?);
                for certificate in &named {
                    roots.add(certificate.clone()).map_err(|reason| {
                        let file = file.display();
                        let message =
                            format!("tls_ca {file} has a certificate that cannot be used: {reason}");
                        Error::invalid_argument(message)
                    })?;
                }
                authorities(roots, named, &provider)?
            }
            Trust::Fingerprints(fingerprints) => Trusted::Fingerprints(fingerprints.clone()),
            Trust::Any => Trusted::Any,
        };
        Ok(Self { trusted, provider })
    }
}

fn authorities(
    roots: RootCertStore,
    named: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Trusted, Error> {
    let chains = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider)).build();
    let chains = chains.map_err(|reason| Error::invalid_argument(format!("TLS cannot be used: {reason}")))?;
    Ok(Trusted::Authorities { chains, named })
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.trusted {
            Trusted::Any => Ok(ServerCertVerified::assertion()),
            Trusted::Fingerprints(pinned) => {
                let found: Fingerprint = Sha256::digest(certificate).into();
                if pinned.contains(&found) {
                    return Ok(ServerCertVerified::assertion());
                }
                Err(CertificateError::Other(OtherError(Arc::new(OtherFingerprint(found)))).into())
            }
            Trusted::Authorities { chains, named } => {
                let verified =
                    chains.verify_server_cert(certificate, intermediates, name, ocsp_response, now);
                match verified {
                    Err(rustls::Error::InvalidCertificate(wrong))
                        if is_of_the_kind_or_name(&wrong) && named.contains(certificate) =>
                    {
                        Ok(ServerCertVerified::assertion())
                    }
                    verified => verified,
                }
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a certificate is that of an authority, as `openssl req -x509` creates it, or is for another name. Its dates
/// are verified before both.
fn is_of_the_kind_or_name(wrong: &CertificateError) -> bool {
    match wrong {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => true,
        wrong => is_of_authority(wrong),
    }
}

/// Whether a server presents the certificate of an authority (CA:TRUE).
pub(crate) fn is_of_authority(wrong: &CertificateError) -> bool {
    matches!(wrong, CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity"))
}

/// The server's certificate has this fingerprint, which is not pinned.
#[derive(Debug)]
pub(crate) struct OtherFingerprint(Fingerprint);

impl std::error::Error for OtherFingerprint {}

impl fmt::Display for OtherFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

fn trusted_by_system() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    // Certificates in the system's list that cannot be used are skipped.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Error::invalid_argument(
            "the system has no certificates to trust: install them, or set tls_ca to a PEM file",
        ));
    }
    Ok(roots)
}

pub(crate) fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let unreadable = |reason| unreadable(option, file, "certificate", &reason);
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(unreadable)?;
    if certificates.is_empty() { Err(unreadable(pem::Error::NoItemsFound)) } else { Ok(certificates) }
}

/// Omits the PEM reader's reason, which would quote the file.
pub(crate) fn unreadable(option: &str, file: &Path, wanted: &str, reason: &pem::Error) -> Error {
    let file = file.display();
    Error::invalid_argument(match reason {
        pem::Error::Io(reason) => format!("{option} {file} cannot be read: {reason}"),
        pem::Error::NoItemsFound => {
            format!("{option} {file} holds no {wanted}: allowed is a PEM file with one")
        }
        _ => format!("{option} {file} is no well-formed PEM file: allowed is one with a {wanted}"),
    })
}
