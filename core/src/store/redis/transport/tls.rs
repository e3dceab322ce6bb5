//! Builds the TLS configuration from the options. Connections are opened elsewhere.
//!
//! The cryptography provider is named explicitly (ring), so that other crates in the process cannot change it. Messages
//! name the option and the file; they never contain anything that was read from it.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::error::Error;
use crate::store::redis::config::target::{Identity, Tls};

/// The configuration of every handshake. Reads the files synchronously.
pub(crate) fn client_config(tls: &Tls) -> Result<Arc<ClientConfig>, Error> {
    let roots = match &tls.ca {
        Some(file) => trusted(file)?,
        None => trusted_by_system()?,
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|reason| Error::invalid_argument(format!("TLS cannot be used: {reason}")))?
        .with_root_certificates(roots);
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = certificates("tls_cert", certificate)?;
            let private_key = private_key(key)?;
            builder.with_client_auth_cert(chain, private_key).map_err(|reason| {
                Error::invalid_argument(format!(
                    "tls_cert {} and tls_key {} cannot be used together: {reason}",
                    certificate.display(),
                    key.display()
                ))
            })?
        }
    };
    Ok(Arc::new(config))
}

/// The name that a host's certificate must contain.
pub(crate) fn server_name(tls: &Tls, host: &str) -> Result<ServerName<'static>, Error> {
    let name = tls.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned()).map_err(|_| {
        Error::invalid_argument(
            "the host is no name that a certificate can hold: set tls_server_name to one that is",
        )
    })
}

fn trusted(file: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls_ca", file)? {
        roots.add(certificate).map_err(|reason| {
            let file = file.display();
            Error::invalid_argument(format!("tls_ca {file} has a certificate that cannot be used: {reason}"))
        })?;
    }
    Ok(roots)
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

fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let unreadable = |reason| unreadable(option, file, "certificate", &reason);
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(unreadable)?;
    if certificates.is_empty() { Err(unreadable(pem::Error::NoItemsFound)) } else { Ok(certificates) }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(file).map_err(|reason| unreadable("tls_key", file, "private key", &reason))
}

/// Omits the PEM reader's reason, which would quote the file.
fn unreadable(option: &str, file: &Path, wanted: &str, reason: &pem::Error) -> Error {
    let file = file.display();
    Error::invalid_argument(match reason {
        pem::Error::Io(reason) => format!("{option} {file} cannot be read: {reason}"),
        pem::Error::NoItemsFound => {
            format!("{option} {file} holds no {wanted}: allowed is a PEM file with one")
        }
        _ => format!("{option} {file} is no well-formed PEM file: allowed is one with a {wanted}"),
    })
}

#[cfg(test)]
mod tests;
