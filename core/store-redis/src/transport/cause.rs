//! Why a server cannot be used, in words for operators: what is wrong, and what to do.

use std::borrow::Cow;
use std::io;

use rustls_pki_types::UnixTime;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};

use crate::transport::failure::Failure;
use crate::transport::stream::trust::{OtherFingerprint, is_of_authority};
use polylimit_rules::decision::Degradation;
use polylimit_rules::error::excerpt;
use polylimit_rules::time::time_text;

/// A failure to connect, with its cause in words if more is known than the reason.
#[derive(Debug)]
pub(crate) struct ConnectError {
    pub(crate) failure: Failure,
    pub(crate) cause: Option<String>,
}

impl ConnectError {
    /// The cause in words.
    pub(crate) fn cause(&self) -> Cow<'_, str> {
        self.cause.as_deref().unwrap_or_else(|| advice(self.failure.reason)).into()
    }
}

impl From<Failure> for ConnectError {
    fn from(failure: Failure) -> Self {
        Self { failure, cause: None }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        error.failure
    }
}

/// What to do about a failure with this reason.
pub(crate) fn advice(reason: Degradation) -> &'static str {
    match reason {
        Degradation::Auth => "it refuses the user or the password: correct them in the URL or the options",
        Degradation::MaxClients => "it has as many clients as it may: raise its maxclients",
        Degradation::NoResources => {
            "the system gives this process no descriptor or memory to connect with: raise its limits (ulimit -n)"
        }
        Degradation::Refused => {
            "it refuses a command of every connection: see that the database of the URL exists"
        }
        Degradation::Protocol => {
            "it does not speak the protocol of Redis: see that host and port are right; if it has TLS, write rediss:// in the URL"
        }
        _ => "it does not answer: see that it runs, and that host, port and TLS are right",
    }
}

/// Explains a failed name lookup.
pub(crate) fn of_name(error: &io::Error) -> String {
    format!("its name has no address ({error}): see that it is written right")
}

/// Explains a failed connection.
pub(crate) fn of_connection(error: &io::Error) -> String {
    format!("it accepts no connections ({error}): see that it runs, and that host and port are right")
}

/// Explains a failed connection to a socket of this host.
#[cfg(unix)]
pub(crate) fn of_socket(error: &io::Error) -> String {
    format!(
        "its socket does not accept connections ({error}): see that it runs, and that this user may write to the socket"
    )
}

/// A server that closes a connection without TLS, or answers in TLS.
pub(crate) const WITHOUT_TLS: &str =
    "it ends connections without TLS before it answers: if it has TLS, write rediss:// in the URL";
/// A server that does not answer in TLS.
pub(crate) const NO_TLS: &str =
    "it does not answer a TLS handshake: if it has no TLS, write redis:// in the URL";

/// Explains a failed handshake.
pub(crate) fn of_tls(error: &io::Error) -> String {
    let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return format!("it ends the TLS handshake ({error}): if it has no TLS, write redis:// in the URL");
    };
    let advice = match inner {
        rustls::Error::InvalidMessage(_) => "it does not speak TLS: write redis:// in the URL",
        rustls::Error::InvalidCertificate(wrong) => return of_certificate(wrong),
        rustls::Error::PeerIncompatible(_)
        | rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "it has no version of TLS in common with this client, which speaks 1.2 and 1.3: let it speak one of them"
        }
        rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            "it accepts no cipher of this client, or needs a certificate of the client, by tls_cert and tls_key"
        }
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown,
        ) => {
            "it does not accept the certificate of the client: name one that it trusts by tls_cert and tls_key"
        }
        rustls::Error::AlertReceived(_) => {
            "it refuses the handshake: it may need a certificate of the client, by tls_cert and tls_key"
        }
        _ => "the TLS handshake fails",
    };
    format!("{advice} ({inner})")
}

fn of_certificate(wrong: &CertificateError) -> String {
    match wrong {
        // The second where an authority of the same name is trusted, such as an earlier one.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "its certificate is not trusted: name the certificate of its authority, or its own if it is self-signed, by tls_ca \
             ({wrong})"
        ),
        CertificateError::ExpiredContext { not_after, .. } => format!(
            "its certificate has expired, on {}: renew it, or set this host's clock",
            text(*not_after)
        ),
        CertificateError::NotValidYetContext { not_before, .. } => format!(
            "its certificate is not valid before {}: set this host's clock, or wait",
            text(*not_before)
        ),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "its certificate is for {}, not for {}: write that name in the URL, or set tls_server_name",
            names(presented),
            expected.to_str()
        ),
        wrong if is_of_authority(wrong) => {
            "its certificate is that of an authority (CA:TRUE), which a server may not have \
             unless tls_ca holds the same certificate: name it there, or let it sign another one"
                .to_owned()
        }
        CertificateError::Other(other) => match other.0.downcast_ref::<OtherFingerprint>() {
            Some(found) => format!(
                "its certificate has another fingerprint than tls_fingerprint, {found}: if it was renewed, add that one"
            ),
            None => format!("its certificate cannot be used ({wrong})"),
        },
        _ => format!("its certificate cannot be used ({wrong})"),
    }
}

fn text(time: UnixTime) -> String {
    time_text(time.as_secs().saturating_mul(1_000_000))
}

/// The names in a certificate, such as `DnsName("redis.example")`.
fn names(presented: &[String]) -> String {
    let name = |presented: &String| {
        let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        inner.unwrap_or(presented).trim_matches('"').to_owned()
    };
    match presented {
        [] => "no name (it has no subjectAltName)".to_owned(),
        presented => {
            let listed = presented.iter().map(name).collect::<Vec<_>>().join(", ");
            excerpt(&listed).trim_matches('"').to_owned()
        }
    }
}
