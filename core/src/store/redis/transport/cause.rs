//! Why a server cannot be used, in words for operators: what is wrong, and what to do.

use std::io;

use tokio_rustls::rustls::{self, CertificateError};

use crate::rules::decision::Degradation;

/// What can be done about a reason.
pub(crate) fn advice(reason: Degradation) -> &'static str {
    match reason {
        Degradation::Auth => "it refuses the user or the password: correct them in the URL or the options",
        Degradation::MaxClients => "it has as many clients as it may: raise its maxclients",
        Degradation::NoResources => {
            "the system gives this process no descriptor or memory to connect with: raise its limits (ulimit -n)"
        }
        _ => "it does not answer: see that it runs, and that host, port and TLS are right",
    }
}

/// What a failed handshake means.
pub(crate) fn of_tls(error: &io::Error) -> String {
    let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return format!("it ends the TLS handshake ({error}): if it has no TLS, write redis:// in the URL");
    };
    let advice = match inner {
        rustls::Error::InvalidMessage(_) => "it does not speak TLS: write redis:// in the URL",
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            // The second where an authority of the same name is trusted, such as an earlier one.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is not trusted: name the certificate of its authority by tls_ca"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired: renew it, or set this host's clock"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet: set this host's clock"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is for another name: write that name in the URL, or set tls_server_name"
            }
            CertificateError::Other(_) if inner.to_string().contains("CaUsedAsEndEntity") => {
                "its certificate is that of an authority (CA:TRUE), which a server may not have: let it sign another one, or make it with \
                 basicConstraints=CA:FALSE and name it by tls_ca"
            }
            _ => "its certificate cannot be used",
        },
        rustls::Error::AlertReceived(_) => {
            "it refuses the handshake: it may need a certificate of the client, by tls_cert and tls_key"
        }
        _ => "the TLS handshake fails",
    };
    format!("{advice} ({inner})")
}
