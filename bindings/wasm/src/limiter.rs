//! A limiter with the memory store, as `ts/limiter.ts` holds it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use polylimit::raw::Call;
use polylimit::{Error, ErrorKind, Limiter, LimiterBuilder, Policy};
use serde::Deserialize;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::answers;
use crate::arguments::{Result, UNITS, duration, invalid, number, read, to_js, whole};
use crate::request::{KeyRequest, RequestValues, Terms, reservation_id};
use crate::values::NativeClock;

#[derive(Deserialize)]
struct Settings {
    url: String,
    policies: Vec<PolicyRow>,
    /// Options by their names in the core.
    options: Vec<(String, String)>,
    document: Option<String>,
}

#[derive(Deserialize)]
struct PolicyRow {
    name: String,
    quotas: String,
    outage: Option<String>,
}

/// A limiter of the core.
#[wasm_bindgen]
pub struct NativeLimiter(Limiter);

#[wasm_bindgen]
impl NativeLimiter {
    /// Builds a limiter.
    ///
    /// # Errors
    /// A setting is not allowed, as for every method.
    #[wasm_bindgen(constructor)]
    pub fn new(settings: JsValue, clock: Option<NativeClock>) -> Result<Self> {
        let Settings { url, policies, options, document } = read(settings)?;
        let mut builder = Limiter::builder().store(&url);
        for PolicyRow { name, quotas, outage } in policies {
            if let Some(outage) = outage {
                builder = builder.option(&format!("outage.{name}"), &outage);
            }
            builder = builder.policy(parse_policy(&name, &quotas)?);
        }
        for (name, text) in options {
            builder = builder.option(&name, &text);
        }
        if let Some(document) = document {
            builder = builder.document(&document);
        }
        if let Some(clock) = clock {
            builder = builder.clock(clock.0);
        }
        builder.build().map(Self).map_err(|error| to_js(&error))
    }

    /// An operation on one key.
    pub fn operate(&self, operation: &str, request: JsValue) -> Result<JsValue> {
        let read: KeyRequest = read(request)?;
        let read = read.checked()?;
        let request = read.request();
        let call = match operation {
            "check" => Call::Check(request),
            "peek" => Call::Peek(request),
            "take" => Call::Take(request),
            "charge" => Call::Charge(request),
            "refund" => Call::Refund(request),
            "reset" => Call::Reset(request),
            "explain" => Call::Explain(request),
            _ => return Err(invalid(&format!("there is no operation {operation:?}"))),
        };
        self.call(&call)
    }

    /// Reserves. A request of several keys is decided together.
    pub fn reserve(&self, requests: JsValue, terms: JsValue) -> Result<JsValue> {
        let (each, terms) = (read_each(requests)?, read::<Terms>(terms)?.read()?);
        let requests: Vec<_> = each.iter().map(KeyRequest::request).collect();
        let answer = match requests.as_slice() {
            [request] => self.call(&Call::Reserve(*request, terms))?,
            several => self.call(&Call::ReserveTogether(several, terms))?,
        };
        // The id may be a random one.
        Ok(js_sys::Array::of2(&answer, &js_sys::Uint8Array::from(terms.id.as_bytes())).into())
    }

    /// Ends a reservation, or has it end later: `time_or_units` is what was spent, or milliseconds.
    pub fn end(
        &self,
        operation: &str,
        request: JsValue,
        id: &[u8],
        time_or_units: Option<f64>,
    ) -> Result<JsValue> {
        let read: KeyRequest = read(request)?;
        let read = read.checked()?;
        let (request, id) = (read.request(), reservation_id(id)?);
        let call = match operation {
            "commit" => {
                let spent = time_or_units.map(|spent| whole("spent", spent, UNITS)).transpose()?;
                Call::Commit(request, id, spent)
            }
            "cancel" => Call::Cancel(request, id),
            _ => Call::Renew(request, id, duration("ttlMs", time_or_units.unwrap_or(f64::NAN))?),
        };
        self.call(&call)
    }

    /// Blocks the key for that many milliseconds; 0 forgets the block.
    pub fn block(&self, request: JsValue, for_ms: f64) -> Result<JsValue> {
        let read: KeyRequest = read(request)?;
        let read = read.checked()?;
        self.call(&Call::Block(read.request(), duration("forMs", for_ms)?))
    }

    /// Decides several requests: `each` on its own, or together.
    pub fn several(&self, how: &str, requests: JsValue) -> Result<JsValue> {
        let each = read_each(requests)?;
        let requests: Vec<_> = each.iter().map(KeyRequest::request).collect();
        self.call(&match how {
            "each" => Call::CheckMany(&requests),
            "peek" => Call::PeekTogether(&requests),
            _ => Call::CheckTogether(&requests),
        })
    }

    /// Decides a request by its attributes.
    pub fn decide(&self, attributes: JsValue, terms: JsValue) -> Result<JsValue> {
        let (read, terms) = (read::<RequestValues>(attributes)?, read::<Terms>(terms)?.read()?);
        self.call(&Call::Decide(&read.read(), terms))
    }

    /// Explains what a request by its attributes would be answered, as JSON.
    #[wasm_bindgen(js_name = explainRequest)]
    pub fn explain_request(&self, attributes: JsValue) -> Result<JsValue> {
        let read: RequestValues = read(attributes)?;
        self.call(&Call::ExplainRequest(&read.read()))
    }

    /// The policies that rules apply to a request.
    pub fn matching(&self, attributes: JsValue) -> Result<JsValue> {
        let read: RequestValues = read(attributes)?;
        let found = self.0.admin().matching(&read.read()).map_err(|error| to_js(&error))?;
        answers::matches(&found)
    }

    #[wasm_bindgen(js_name = setPolicy)]
    pub fn set_policy(&self, name: &str, quotas: &str) -> Result<()> {
        self.0.set_policy(parse_policy(name, quotas)?).map_err(|error| to_js(&error))
    }

    #[wasm_bindgen(js_name = setDocument)]
    pub fn set_document(&self, text: &str) -> Result<JsValue> {
        self.0
            .admin()
            .set_document(text)
            .map_err(|error| to_js(&error))
            .and_then(|changed| answers::status(&changed))
    }

    #[wasm_bindgen(js_name = setEntry)]
    pub fn set_entry(&self, entry: &str, value: &str) -> Result<JsValue> {
        self.call(&Call::SetEntry(entry, value))
    }

    #[wasm_bindgen(js_name = deleteEntry)]
    pub fn delete_entry(&self, entry: &str) -> Result<JsValue> {
        self.call(&Call::DeleteEntry(entry))
    }

    /// Which document is active; undefined without one.
    pub fn configuration(&self) -> Result<JsValue> {
        self.0.admin().configuration().map_or(Ok(JsValue::UNDEFINED), |active| answers::status(&active))
    }

    #[wasm_bindgen(js_name = candidateCounts)]
    pub fn candidate_counts(&self, policy: &str) -> Result<JsValue> {
        self.0
            .admin()
            .candidate_counts(policy)
            .map_or(Ok(JsValue::UNDEFINED), |counts| answers::candidate(&counts))
    }

    /// The names of the policies, those of the document included.
    pub fn policies(&self) -> Vec<String> {
        self.0.policies().iter().map(|policy| policy.name().to_owned()).collect()
    }

    /// How many keys have a state.
    pub fn keys(&self) -> Option<f64> {
        self.0.admin().keys().map(|keys| number(keys as u64))
    }

    /// The counters: names and counts in turn.
    pub fn stats(&self) -> js_sys::Array {
        self.0.stats().iter().flat_map(|(name, count)| [JsValue::from(name), number(count).into()]).collect()
    }

    pub fn close(&self) {
        self.0.close();
    }

    fn call(&self, call: &Call<'_>) -> Result<JsValue> {
        let raw = self.0.raw();
        // The memory store answers every call that does not wait in line. What may wait for other stores is ready when it is polled.
        let mut answer = raw.try_call(call);
        if answer.is_none() {
            let polled = pin!(raw.call_store(call)).poll(&mut Context::from_waker(Waker::noop()));
            answer = if let Poll::Ready(ready) = polled { Some(ready) } else { None };
        }
        let no_answer =
            || Err(Error::new(ErrorKind::Internal, "the memory store has not answered: this is a defect"));
        answers::answer(answer.unwrap_or_else(no_answer))
    }
}

fn read_each(requests: JsValue) -> Result<Vec<KeyRequest>> {
    read::<Vec<KeyRequest>>(requests)?.into_iter().map(KeyRequest::checked).collect()
}

/// Reads the quotas of a policy. The error names it, because a program has several.
fn parse_policy(name: &str, quotas: &str) -> Result<Policy> {
    let excerpt: String = name.chars().take(40).collect();
    Policy::parse(name, quotas).map_err(|error| invalid(&format!("policy {excerpt:?}: {}", error.message())))
}

/// The names of the options of a limiter in the core.
#[wasm_bindgen(js_name = optionNames)]
pub fn option_names() -> Vec<String> {
    LimiterBuilder::options().into_iter().map(|option| option.name.to_owned()).collect()
}
