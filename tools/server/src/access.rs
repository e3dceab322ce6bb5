//! The rights of callers: roles, and the file of tokens and certificates that have them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, ServerName};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::ServeError;

/// What a caller may do; each role may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Asks for decisions, spends and gives back.
    Check,
    /// Reads documents, keys, explanations and metrics.
    Read,
    /// Changes documents, and resets keys.
    Admin,
}

impl Role {
    pub(crate) const ALL: [Self; 3] = [Self::Check, Self::Read, Self::Admin];

    /// The name, as in the file of tokens.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

/// The identity of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) role: Role,
    pub(crate) name: Arc<str>,
}

/// The SHA-256 of a token.
#[derive(Clone)]
pub(crate) struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub(crate) fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

/// The rights of all callers.
#[derive(Debug)]
pub(crate) struct Access {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    identity: Identity,
    proof: Proof,
}

enum Proof {
    Token(TokenDigest),
    /// A name among the subject alternative names of a client's certificate.
    Certificate(ServerName<'static>),
}

/// Shows no digest.
impl std::fmt::Debug for Proof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Token(_) => f.write_str("Token"),
            Self::Certificate(name) => f.debug_tuple("Certificate").field(name).finish(),
        }
    }
}

impl Access {
    /// Reads a file with one caller in each line: `ROLE NAME sha256:DIGITS` or `ROLE NAME san:NAME`. Empty lines and lines that begin
    /// with `#` are skipped.
    pub(crate) fn read(path: &Path) -> Result<Self, ServeError> {
        let text = fs::read_to_string(path).map_err(|error| ServeError::of_file(path, &error))?;
        Self::parse(&text).map_err(|message| ServeError::of_file(path, &message))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut entries = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // The line itself may be a secret that was written in place of its digest.
            let entry = Entry::parse(line).ok_or_else(|| {
                format!(
                    "line {} cannot be read: allowed are ROLE NAME sha256:64_HEXADECIMAL_DIGITS and ROLE NAME san:NAME, with the roles \
                     check, read and admin; `printf %s TOKEN | sha256sum` writes the digits",
                    number + 1
                )
            })?;
            entries.push(entry);
        }
        if entries.is_empty() {
            return Err("it names no caller: write lines such as ROLE NAME sha256:DIGITS".to_owned());
        }
        Ok(Self { entries })
    }

    /// Whether a caller may come without a certificate.
    pub(crate) fn has_tokens(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.proof, Proof::Token(_)))
    }

    /// The caller that has this token. Every digest is compared, each in constant time.
    pub(crate) fn by_token(&self, token: &TokenDigest) -> Option<Identity> {
        let mut found = None;
        for entry in &self.entries {
            if let Proof::Token(known) = &entry.proof
                && bool::from(known.0.ct_eq(&token.0))
            {
                found = Some(&entry.identity);
            }
        }
        found.cloned()
    }

    /// The caller that has this certificate, which was verified: of several names the one with the highest role.
    pub(crate) fn by_certificate(&self, certificate: &CertificateDer<'_>) -> Option<Identity> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let named = self.entries.iter().filter(|entry| match &entry.proof {
            Proof::Token(_) => false,
            Proof::Certificate(name) => verify_server_name(&parsed, name).is_ok(),
        });
        named.map(|entry| &entry.identity).max_by_key(|identity| identity.role).cloned()
    }
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let role = words.next()?;
        let role = Role::ALL.into_iter().find(|known| known.name() == role)?;
        let name = words.next()?;
        let proof = words.next()?;
        if words.next().is_some() {
            return None;
        }
        let proof = match proof.split_once(':')? {
            ("sha256", digits) => Proof::Token(TokenDigest(digest_of(digits)?)),
            ("san", name) => Proof::Certificate(ServerName::try_from(name.to_owned()).ok()?),
            _ => return None,
        };
        Some(Self { identity: Identity { role, name: name.into() }, proof })
    }
}

fn digest_of(digits: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// SHA-256 of `secret`.
    const DIGITS: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn token_is_found_by_its_digest_alone() {
        let access = Access::parse(&format!(
            "# callers\n\nread monitor sha256:{DIGITS}\nadmin ops san:ops.internal\n"
        ))
        .unwrap();
        let identity = access.by_token(&TokenDigest::of(b"secret")).unwrap();
        assert_eq!((identity.role, &*identity.name), (Role::Read, "monitor"));
        for other in ["secret ", DIGITS] {
            assert!(access.by_token(&TokenDigest::of(other.as_bytes())).is_none());
        }
        assert!(access.has_tokens() && !format!("{access:?}").contains("2bb8"));
    }

    #[test]
    fn lines_that_cannot_be_read_are_refused_without_showing_them() {
        for line in [
            "secret",
            "root ops sha256:00",
            "admin ops secret",
            "admin ops sha256:secret",
            "admin ops san:",
            "admin ops san:a b",
        ] {
            let message = Access::parse(&format!("#\n{line}\n")).unwrap_err();
            assert!(message.starts_with("line 2 ") && !message.contains("secret"), "{message}");
        }
        assert!(Access::parse("# no line\n").unwrap_err().contains("no caller"));
    }

    #[test]
    fn roles_contain_the_ones_before() {
        assert!(Role::Check < Role::Read && Role::Read < Role::Admin);
    }
}
