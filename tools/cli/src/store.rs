//! The limiter of a command: which store it asks, and where its policies come from.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use polylimit::blocking::Limiter;
use polylimit::{LimiterBuilder, Policy};

use crate::arguments::GlobalOptions;
use crate::exit::{Exit, Failure};

/// How long a command waits until the store answers for the first time. A decision waits as long as its deadline says.
const CONNECTED_WITHIN: Duration = Duration::from_secs(2);
/// How long a command waits for the active configuration.
const CONFIGURED_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

impl GlobalOptions {
    /// The URL of the store; that of `@FILE` stands in the file.
    fn store_url(&self) -> Result<String, Failure> {
        let given = self.store.as_deref().filter(|url| !url.is_empty()).ok_or_else(|| {
            Failure::usage(
                "no store is named: give --store URL, such as redis://localhost, or set POLYLIMIT_STORE",
            )
        })?;
        Self::url_of(given)
    }

    /// The URL of the store, or this one where none is named.
    #[cfg(feature = "serve")]
    pub(crate) fn store_url_or(&self, otherwise: &str) -> Result<String, Failure> {
        Self::url_of(self.store.as_deref().filter(|url| !url.is_empty()).unwrap_or(otherwise))
    }

    fn url_of(given: &str) -> Result<String, Failure> {
        match given.strip_prefix('@') {
            None => Ok(given.to_owned()),
            Some(path) => {
                let text = fs::read_to_string(path).map_err(|error| Failure::of_file(path, &error))?;
                Ok(text.trim().to_owned())
            }
        }
    }

    /// A limiter that knows no policies by name, and needs no rights for a configuration.
    pub(crate) fn plain_limiter(&self) -> Result<Limiter, Failure> {
        let limiter = self.unasked_limiter()?;
        // Without an answer the operation reports why.
        let _ = limiter.ready(CONNECTED_WITHIN);
        Ok(limiter)
    }

    /// The same for commands that do not ask the store themselves: it fails where the store does not answer.
    pub(crate) fn answering_limiter(&self) -> Result<Limiter, Failure> {
        let limiter = self.unasked_limiter()?;
        limiter.ready(CONNECTED_WITHIN)?;
        Ok(limiter)
    }

    fn unasked_limiter(&self) -> Result<Limiter, Failure> {
        Ok(polylimit::Limiter::builder().store(&self.store_url()?).build()?.blocking())
    }

    /// A limiter whose policies are those of `--policies`, or else the published ones, together with the entries of a store in
    /// Redis.
    pub(crate) fn following_limiter(&self) -> Result<Limiter, Failure> {
        let url = self.store_url()?;
        let builder = polylimit::Limiter::builder().store(&url);
        Ok(self.configured(builder, &url)?.build()?.blocking())
    }

    pub(crate) fn configured(&self, builder: LimiterBuilder, url: &str) -> Result<LimiterBuilder, Failure> {
        let is_redis = url.starts_with("redis");
        let file = self.policies.as_deref().map(Path::display);
        Ok(match file {
            Some(file) if is_redis => builder.configuration(&format!("store+file:{file}")),
            Some(file) => builder.configuration(&format!("file:{file}")),
            None if url.contains("configuration=") => builder,
            None if is_redis => builder.configuration("store"),
            None => {
                return Err(Failure::usage(
                    "no document is named, and only a store in Redis has one: give --policies FILE, or quotas such as 100/minute",
                ));
            }
        })
    }

    /// A limiter whose configuration is active.
    pub(crate) fn configured_limiter(&self) -> Result<Limiter, Failure> {
        let limiter = self.following_limiter()?;
        await_configuration(&limiter)?;
        Ok(limiter)
    }

    /// A limiter of the store that documents are published in. The store need not have one yet.
    pub(crate) fn publishing_limiter(&self) -> Result<Limiter, Failure> {
        let url = self.store_url()?;
        let builder = polylimit::Limiter::builder().store(&url);
        if !url.starts_with("redis") {
            return Err(Failure::usage(
                "documents are published in Redis: give --store URL, such as redis://localhost",
            ));
        }
        let builder = if url.contains("configuration=") { builder } else { builder.configuration("store") };
        Ok(builder.build()?.blocking())
    }

    /// A limiter and its policy of this name, or of these quotas.
    pub(crate) fn limiter_for(&self, policy: &str) -> Result<(Limiter, Policy), Failure> {
        if Policy::is_quotas(policy) {
            let limiter = self.plain_limiter()?;
            let policy = limiter.asynchronous().policy_for(Some(policy), None)?;
            return Ok((limiter, policy));
        }
        let limiter = self.configured_limiter()?;
        match limiter.asynchronous().policy(policy) {
            Some(policy) => Ok((limiter, policy)),
            None => Err(unknown_policy(&limiter, policy)),
        }
    }
}

impl GlobalOptions {
    /// A limiter that knows the policies whose keys are listed: those of a document, if there is one.
    pub(crate) fn limiter_for_keys(&self, policy: Option<&str>) -> Result<Limiter, Failure> {
        if let Some(policy) = policy {
            return Ok(self.limiter_for(policy)?.0);
        }
        let has_document = match &self.policies {
            Some(_) => true,
            None if self.store_url()?.starts_with("redis") => self
                .publishing_limiter()?
                .admin()
                .published_document(None)
                .is_ok_and(|document| document.is_some()),
            None => false,
        };
        if has_document { self.configured_limiter() } else { self.plain_limiter() }
    }
}

/// Waits until the configuration is active that is there now, and fails with the reason when it will not be.
fn await_configuration(limiter: &Limiter) -> Result<(), Failure> {
    let status = || limiter.asynchronous().admin().configuration();
    let source = status().map(|status| status.source).unwrap_or_default();
    // A right that is missing, and a store that does not answer, are reported at once.
    let version =
        if source.starts_with("store") { limiter.admin().configuration_entries()?.version } else { 0 };
    if &*source == "store" && limiter.admin().published_document(None)?.is_none() {
        return Err(Failure::usage(
            "no document is published in this store: publish one with `polylimit policies put`, name a file with --policies, or \
             give quotas such as 100/minute",
        ));
    }
    let since = Instant::now();
    while let Some(status) = status().filter(|status| status.applied_at_us == 0 || status.version < version) {
        if since.elapsed() > CONFIGURED_WITHIN {
            let why = status.error.map_or_else(|| "it is not there in time".to_owned(), Into::into);
            return Err(Failure::new(
                Exit::Undecided,
                format!("the configuration of {source} is not active: {why}"),
            ));
        }
        sleep(PAUSE);
    }
    Ok(())
}

fn unknown_policy(limiter: &Limiter, policy: &str) -> Failure {
    let source =
        limiter.asynchronous().admin().configuration().map(|status| status.source).unwrap_or_default();
    let policies = limiter.asynchronous().policies();
    // A ~ is in the name of a candidate only.
    let mut names: Vec<_> = policies.iter().map(Policy::name).filter(|name| !name.contains('~')).collect();
    names.truncate(20);
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Failure::usage(format!(
        "there is no policy {policy:?} in the document of {source}: it has {names}; quotas such as 100/minute are allowed, too"
    ))
}

/// Whether a URL has a password or another secret.
pub(crate) fn has_secret(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let in_user_info = authority.rsplit_once('@').is_some_and(|(user_info, _)| user_info.contains(':'));
    let is_secret =
        |name: &str| LimiterBuilder::options().iter().any(|option| option.secret && option.name == name);
    let mut parameters = rest.split_once('?').map_or("", |(_, query)| query).split('&');
    in_user_info || parameters.any(|parameter| is_secret(parameter.split('=').next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_url_are_found() {
        for url in [
            "redis://:secret@localhost",
            "rediss://user:secret@localhost:6380/2",
            "redis+unix://user:secret@/run/redis.sock",
            "redis://user@localhost?password=secret",
            "redis://localhost?prefix=a&key_secret=secret",
        ] {
            assert!(has_secret(url), "{url}");
        }
        for url in [
            "redis://localhost",
            "redis://user@localhost?deadline=1s",
            "memory:",
            "local:web",
            "@/run/secrets/url",
        ] {
            assert!(!has_secret(url), "{url}");
        }
    }
}
