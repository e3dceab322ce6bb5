//! What all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use polylimit::Limiter;
use polylimit::decision::Degradation;

use crate::access::{Access, Identity, Role, TokenDigest};
use crate::caller::Caller;
use crate::counters::Counters;
use crate::error::ServeError;
use crate::life::{Life, Stage};
use crate::log::{FailedSignIns, LogRecord};
use crate::one_off::OneOffPolicies;
use crate::options::{ServerOptions, StoreLogin};
use crate::tls::Tls;
use crate::traffic::Traffic;

/// How long `/readyz` waits for the store, where readiness needs it.
const STORE_ANSWERS_WITHIN: Duration = Duration::from_millis(250);

/// The name of callers of a listener that asks for no token.
const OPEN: &str = "open listener";

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
    pub(crate) failed_sign_ins: FailedSignIns,
    /// What the last look has found about readiness, and about the configuration.
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    unready: Option<&'static str>,
    version: u64,
    digest: Box<str>,
    login: Option<StoreLogin>,
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
            failed_sign_ins: FailedSignIns::default(),
            watched: Mutex::default(),
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

    /// Whether a connection without a certificate has to give a token; not on a listener that is open.
    pub(crate) fn needs_token(&self, identity: Option<&Identity>) -> bool {
        self.access.load().is_some() && identity.is_none()
    }

    /// The generation of the table of callers: an identity from another one may not be right any more.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn by_token(&self, token: &TokenDigest) -> Option<Identity> {
        self.access.load().as_ref()?.by_token(token)
    }

    /// Finds out who a client is that has shown this certificate in the handshake.
    pub(crate) fn recognize(&self, caller: &mut Caller) {
        if caller.is_open {
            caller.identity = self.identity(caller);
            return;
        }
        caller.generation = self.generation();
        caller.identity = caller.certificate.as_deref().and_then(|shown| self.by_certificate(shown));
    }

    /// The identity of a client by its certificate, also when the table of callers was read again since the handshake.
    pub(crate) fn identity(&self, caller: &Caller) -> Option<Identity> {
        if caller.is_open {
            return Some(Identity { role: Role::Check, name: OPEN.into() });
        }
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
        if self.limiter.admin().configuration().is_some_and(|status| status.applied_at_us == 0) {
            return Some("no document of limits is active yet");
        }
        if self.options.ready_needs_store && self.limiter.ready(STORE_ANSWERS_WITHIN).await.is_err() {
            return Some("the store does not answer");
        }
        None
    }

    /// The readiness, of which each change is recorded.
    pub(crate) async fn check_ready(&self) -> Option<&'static str> {
        let unready = self.unready().await;
        let before = std::mem::replace(&mut self.watched.lock().unready, unready);
        if before != unready && !self.is_stopping() {
            self.log(&match unready {
                Some(why) => LogRecord::warn("not_ready", format!("the server is not ready: {why}")),
                None => LogRecord::info("ready", "the server is ready"),
            });
        }
        unready
    }

    /// Records which configuration has come into force since the last look.
    pub(crate) fn watch_configuration(&self) {
        let Some(status) = self.limiter.admin().configuration().filter(|status| status.applied_at_us > 0)
        else {
            return;
        };
        let mut watched = self.watched.lock();
        let is_document = watched.digest != status.digest;
        if !is_document && watched.version == status.version {
            return;
        }
        (watched.version, watched.digest) = (status.version, status.digest.clone());
        drop(watched);
        let (event, what) = if is_document {
            ("document_applied", "a document of limits has come into force")
        } else {
            ("entries_applied", "entries of the store have changed")
        };
        let record = LogRecord::info(event, what).with("source", &status.source);
        self.log(&record.with("version", status.version).with("digest", &status.digest));
    }

    /// Reads name and password for the store again, and uses them when they are others than before.
    pub(crate) fn read_store_login(&self) {
        let Some(read) = &self.options.store_login else { return };
        let login = match read() {
            Ok(login) => login.unwrap_or_default(),
            Err(error) => return self.log(&LogRecord::warn("store_login_unreadable", error)),
        };
        let before = self.watched.lock().login.replace(login.clone());
        if before.is_none_or(|before| before == login) {
            return;
        }
        self.log(&match self.limiter.admin().set_credentials(login.username.as_deref(), &login.password) {
            Ok(()) => {
                LogRecord::info("store_login_changed", "new connections to the store use another password")
            }
            Err(error) => LogRecord::warn("store_login_refused", error.message()),
        });
    }

    /// Records what the limiter says about its store and its configuration, from now on.
    pub(crate) fn watch_events(self: &Arc<Self>) {
        let app = Arc::downgrade(self);
        self.limiter.on_degraded(move |event| {
            let Some(app) = app.upgrade() else { return };
            app.log(&LogRecord::of_event(event));
            if event.reason() == Some(Degradation::Auth) && app.options.store_login.is_some() {
                // The hook runs where a decision is made, which must not wait for a file.
                std::thread::spawn(move || app.read_store_login());
            }
        });
    }

    pub(crate) fn log(&self, record: &LogRecord) {
        (self.options.log)(record);
    }

    /// Records that a caller has given a token that is not known.
    pub(crate) fn note_failed_sign_in(&self, interface: &'static str, caller: &Caller) {
        let failed = self.failed_sign_ins.note();
        if failed > 0 {
            let message = format!(
                "{failed} sign-in{} with a token that is not known",
                if failed == 1 { "" } else { "s" }
            );
            let record = LogRecord::warn("sign_in_failed", message).with("protocol", interface);
            self.log(&record.with("last_peer", caller.place()));
        }
    }
}
