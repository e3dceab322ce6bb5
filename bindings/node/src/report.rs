//! Lists of keys, explanations and the keys that are denied most often. They cross to JavaScript as the core's JSON, whose fields
//! `ts/reports.ts` declares.

use napi::Env;
use napi::bindgen_prelude::Unknown;
use napi_derive::napi;
use polylimit::admin::{KeyFilter, ListBudget};
use polylimit::raw::{Answer, Call, report_json};

use crate::error::{Result, catch_panic};
use crate::exchange::{NativeExchange, no_answer};
use crate::limiter::{CheckRow, NativeLimiter};
use crate::number::{percent, whole};
use crate::request_attributes::AttributesRow;
use crate::text::owned_bytes;

/// Which keys a list has, when a page ends, and where it begins.
#[napi(object, object_to_js = false)]
pub struct ListSettings<'env> {
    pub policy: Option<String>,
    /// Text or bytes.
    pub key_prefix: Option<Unknown<'env>>,
    pub at_least_used: Option<f64>,
    pub entries: Option<f64>,
    pub examined: Option<f64>,
    pub pace_percent: Option<f64>,
    pub cursor: Option<String>,
}

/// The same, with the bytes of the prefix.
struct ReadSettings {
    policy: Option<String>,
    key_prefix: Vec<u8>,
    at_least_used: Option<u8>,
    budget: ListBudget,
    cursor: Option<String>,
}

impl ListSettings<'_> {
    fn read(self, env: Env) -> Result<ReadSettings> {
        let Self { policy, key_prefix, cursor, .. } = self;
        let key_prefix = key_prefix.map(|prefix| owned_bytes("keyPrefix", env, prefix)).transpose()?;
        let at_least_used = self.at_least_used.map(|used| percent("atLeastUsed", used, "0 to 255"));
        let mut budget = ListBudget::default();
        if let Some(entries) = self.entries {
            budget = budget.entries(count("entries", entries)?);
        }
        if let Some(examined) = self.examined {
            budget = budget.examined(whole("examined", examined, KEYS)?);
        }
        if let Some(pace) = self.pace_percent {
            budget = budget.pace_percent(percent("pacePercent", pace, "1 to 100")?);
        }
        let (key_prefix, at_least_used) = (key_prefix.unwrap_or_default(), at_least_used.transpose()?);
        Ok(ReadSettings { policy, key_prefix, at_least_used, budget, cursor })
    }
}

impl ReadSettings {
    fn filter(&self) -> KeyFilter<'_> {
        let mut filter = KeyFilter::default().key_prefix(&self.key_prefix);
        if let Some(policy) = &self.policy {
            filter = filter.policy(policy);
        }
        match self.at_least_used {
            Some(used) => filter.at_least_used(used),
            None => filter,
        }
    }
}

/// A number of keys.
fn count(name: &str, number: f64) -> Result<usize> {
    Ok(usize::try_from(whole(name, number, KEYS)?).unwrap_or(usize::MAX))
}

const KEYS: &str = "a whole number of keys, up to 9007199254740991";

#[napi]
impl NativeLimiter {
    /// Lists a page of keys, and leaves its report or its ticket.
    #[napi]
    pub fn list(&self, env: Env, settings: ListSettings<'_>) -> Result<()> {
        catch_panic(|| {
            let read = settings.read(env)?;
            self.handle.submit(&Call::List(read.filter(), read.budget, read.cursor.as_deref()))
        })
    }

    /// Finds the keys of which the most is used.
    #[napi]
    pub fn scan_top(&self, env: Env, most: f64, settings: ListSettings<'_>) -> Result<()> {
        catch_panic(|| {
            let read = settings.read(env)?;
            self.handle.submit(&Call::ScanTop(read.filter(), count("most", most)?, read.budget))
        })
    }

    /// Resets the keys of a page.
    #[napi]
    pub fn reset_listed(&self, env: Env, settings: ListSettings<'_>) -> Result<()> {
        catch_panic(|| {
            let read = settings.read(env)?;
            self.handle.submit(&Call::ResetListed(read.filter(), read.budget, read.cursor.as_deref()))
        })
    }

    /// Explains what a check would be answered.
    #[napi]
    pub fn explain(&self, env: Env, request: CheckRow<'_>) -> Result<()> {
        catch_panic(|| self.handle.submit(&Call::Explain(request.read(env)?.request())))
    }

    /// Explains what a request, by its attributes, would be answered.
    #[napi]
    pub fn explain_request(&self, env: Env, attributes: AttributesRow<'_>) -> Result<()> {
        catch_panic(|| {
            let read = attributes.read(env)?;
            self.handle.submit(&Call::ExplainRequest(&read.attributes()))
        })
    }

    /// The keys that this limiter has denied and admitted most often, as JSON.
    #[napi]
    pub fn top_keys(&self, most: f64) -> Result<String> {
        catch_panic(|| Ok(report_json(&self.handle.limiter().admin().top_keys(count("most", most)?))))
    }
}

#[napi]
impl NativeExchange {
    /// The newest report, as JSON.
    #[napi]
    pub fn report(&self) -> Result<String> {
        catch_panic(|| match self.exchange.take_unread() {
            Some(Ok(Answer::Keys(page))) => Ok(report_json(&page)),
            Some(Ok(Answer::KeysReset(page))) => Ok(report_json(&page)),
            Some(Ok(Answer::Explanation(explanation))) => Ok(report_json(&explanation)),
            Some(Ok(Answer::RequestExplanation(explanation))) => Ok(report_json(&explanation)),
            _ => Err(no_answer()),
        })
    }
}
