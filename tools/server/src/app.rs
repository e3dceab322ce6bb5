//! What all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use polylimit::Limiter;

use crate::access::{Access, Identity, Role, TokenDigest};
use crate::caller::Caller;
use crate::counters::Counters;
use crate::error::ServeError;
use crate::life::{Life, Stage};
use crate::one_off::OneOffPolicies;
use crate::options::ServerOptions;
use crate::tls::Tls;
use crate::traffic::Traffic;

/// How long `/readyz` waits for the store, where readiness needs it.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_millis(250);

/// What all connections share.
pub(crate) struct App {
    pub(crate) limiter: Limiter,
    pub(crate) options: ServerOptions,
    pub(crate) counters: Arc<Counters>,
    pub(crate) one_off: OneOffPolicies,
    pub(crate) traffic: Traffic,
    /// How many clients listen to events.
    pub(crate) listeners: AtomicUsize,
    pub(crate) tls: Option<Tls>,
    /// The rights of callers; `None` when every caller may do everything.
    access: ArcSwapOption<Access>,
    /// How often the table of callers was read again.
    generation: AtomicU64,
    pub(crate) life: Life,
}

/// Why a caller may not do what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unauthenticated,
    Forbidden { has: Role, needs: Role },
}

impl App {
    pub(crate) fn new(limiter: Limiter, options: ServerOptions) -> Result<Self, ServeError> {
        let access = options.tokens.as_deref().map(Access::read).transpose()?;
        let has_tokens = access.as_ref().is_some_and(Access::has_tokens);
        let tls = options.tls.clone().map(|files| Tls::read(files, has_tokens)).transpose()?;
        Ok(Self {
            limiter,
            counters: Arc::default(),
            one_off: OneOffPolicies::new(options.limits.one_off_policies),
            traffic: Traffic::default(),
            listeners: AtomicUsize::new(0),
            tls,
            access: ArcSwapOption::from_pointee(access),
            generation: AtomicU64::new(0),
            life: Life::default(),
            options,
        })
    }

    /// Whether callers have to identify themselves, by a token or a certificate.
    pub(crate) fn authenticates(&self) -> bool {
        self.access.load().is_some() || self.tls.as_ref().is_some_and(Tls::verifies_clients)
    }

    /// Whether roles matter: with a file of tokens.
    pub(crate) fn asks_who(&self) -> bool {
        self.access.load().is_some()
    }

    /// Whether a connection without a certificate has to give a token.
    pub(crate) fn needs_token(&self, identity: Option<&Identity>) -> bool {
        self.access.load().is_some() && identity.is_none()
    }

    /// The generation of the table of callers: an identity that another one has told may not be right any more.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn by_token(&self, token: &TokenDigest) -> Option<Identity> {
        self.access.load().as_ref()?.by_token(token)
    }

    /// Finds out who a client is that has shown this certificate in the handshake.
    pub(crate) fn recognize(&self, caller: &mut Caller) {
        caller.generation = self.generation();
        caller.identity = caller.certificate.as_deref().and_then(|shown| self.by_certificate(shown));
    }

    /// The identity of a client by its certificate, also when the table of callers was read again since the handshake.
    pub(crate) fn identity(&self, caller: &Caller) -> Option<Identity> {
        if caller.generation == self.generation() {
            return caller.identity.clone();
        }
        caller.certificate.as_deref().and_then(|shown| self.by_certificate(shown))
    }

    /// The identity of a client with this verified certificate. Without a file of tokens, its authorities vouch for everything.
    pub(crate) fn by_certificate(
        &self,
        certificate: &rustls_pki_types::CertificateDer<'_>,
    ) -> Option<Identity> {
        match &*self.access.load() {
            Some(access) => access.by_certificate(certificate),
            None => Some(Identity { role: Role::Admin, name: "certificate".into() }),
        }
    }

    /// Whether a caller may do what needs this role.
    pub(crate) fn allows(&self, identity: Option<&Identity>, needs: Role) -> Result<(), Refusal> {
        match identity {
            _ if self.access.load().is_none() => Ok(()),
            None => Err(Refusal::Unauthenticated),
            Some(identity) if identity.role >= needs => Ok(()),
            Some(identity) => Err(Refusal::Forbidden { has: identity.role, needs }),
        }
    }

    /// Reads tokens and certificates again. What cannot be used stays as it was.
    pub(crate) fn reload(&self) -> Result<(), ServeError> {
        if let Some(path) = &self.options.tokens {
            self.access.store(Some(Arc::new(Access::read(path)?)));
            self.generation.fetch_add(1, Ordering::Release);
        }
        let has_tokens = self.access.load().as_ref().is_some_and(|access| access.has_tokens());
        self.tls.as_ref().map_or(Ok(()), |tls| tls.reload(has_tokens))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.life.has_reached(Stage::Draining)
    }

    /// Why the server is not ready, if it is not.
    pub(crate) async fn unready(&self) -> Option<&'static str> {
        if self.is_stopping() {
            return Some("the server is stopping");
        }
        if self.limiter.configuration().is_some_and(|status| status.applied_at_us == 0) {
            return Some("no document of limits is in force yet");
        }
        if self.options.ready_needs_store && self.limiter.ready(STORE_ANSWERS_WITHIN).await.is_err() {
            return Some("the store does not answer");
        }
        None
    }

    pub(crate) fn log(&self, line: &str) {
        (self.options.log)(line);
    }
}
