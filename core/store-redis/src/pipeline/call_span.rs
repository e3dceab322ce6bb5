//! The span of a script call, with the feature `tracing`; without it, nothing.
//!
//! A call decides operations of many callers. Its span is a child of the span of the first of them, and follows from those of
//! the others.

#[cfg(feature = "tracing")]
pub(crate) use enabled::{CallSpan, CallerSpan};

#[cfg(not(feature = "tracing"))]
pub(crate) use absent::{CallSpan, CallerSpan};

#[cfg(feature = "tracing")]
mod enabled {
    use tracing::field::Empty;
    use tracing::level_filters::LevelFilter;
    use tracing::{Span, info_span};

    use crate::script::call::ScriptReference;
    use crate::transport::connect::Address;
    use polylimit_rules::decision::Degradation;
    use polylimit_rules::policy::Policy;

    /// The span in which a caller started an operation.
    #[derive(Debug)]
    pub(crate) struct CallerSpan(Span);

    impl CallerSpan {
        pub(crate) fn current() -> Self {
            Self(if LevelFilter::current() >= LevelFilter::INFO { Span::current() } else { Span::none() })
        }
    }

    /// The span of a call, from its sending until its reply. It ends when this is dropped.
    #[derive(Debug)]
    pub(crate) struct CallSpan(Span);

    impl CallSpan {
        /// The span of a call under a policy that decides the operations of these callers.
        pub(crate) fn start<'a>(
            callers: impl Iterator<Item = &'a CallerSpan>,
            policy: &Policy,
            script: ScriptReference,
            server: &Address,
        ) -> Self {
            if LevelFilter::current() < LevelFilter::INFO {
                return Self(Span::none());
            }
            let mut callers = callers.map(|CallerSpan(span)| span);
            let operation = match script {
                ScriptReference::Hash => "EVALSHA",
                ScriptReference::Source => "EVAL",
                ScriptReference::Module => "POLYLIMIT.DECIDE",
            };
            let span = info_span!(
                target: "polylimit",
                parent: callers.next().and_then(Span::id),
                "polylimit.store",
                otel.kind = "client",
                db.system.name = "redis",
                db.operation.name = operation,
                db.operation.batch.size = Empty,
                server.address = Empty,
                server.port = Empty,
                polylimit.policy = policy.name(),
                error.type = Empty,
            );
            if span.is_disabled() {
                return Self(span);
            }
            let mut operations = 1_u64;
            for caller in callers {
                span.follows_from(caller.id());
                operations += 1;
            }
            if operations > 1 {
                span.record("db.operation.batch.size", operations);
            }
            match server {
                Address::Tcp(endpoint) => {
                    span.record("server.address", &*endpoint.host);
                    span.record("server.port", endpoint.port);
                }
                Address::Unix(path) => _ = span.record("server.address", path.to_string_lossy().as_ref()),
                Address::Service { service, .. } => _ = span.record("server.address", &**service),
            }
            Self(span)
        }

        pub(crate) fn failed(&self, reason: Degradation) {
            self.0.record("error.type", reason.name());
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod absent {
    use crate::script::call::ScriptReference;
    use crate::transport::connect::Address;
    use polylimit_rules::decision::Degradation;
    use polylimit_rules::policy::Policy;

    #[derive(Debug)]
    pub(crate) struct CallerSpan;

    impl CallerSpan {
        #[inline]
        pub(crate) fn current() -> Self {
            Self
        }
    }

    #[derive(Debug)]
    pub(crate) struct CallSpan;

    impl CallSpan {
        #[inline]
        pub(crate) fn start<'a>(
            _: impl Iterator<Item = &'a CallerSpan>,
            _: &Policy,
            _: ScriptReference,
            _: &Address,
        ) -> Self {
            Self
        }

        #[inline]
        #[expect(clippy::unused_self, reason = "as with the feature")]
        pub(crate) fn failed(&self, _: Degradation) {}
    }
}
