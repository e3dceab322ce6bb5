//! The guard of the middleware. One call decides a request: its numbers and the next step stand in the shared arrays, and it
//! returns the header fields that differ from those of the guard's previous response.

use std::cell::RefCell;
use std::ffi::CStr;
use std::ptr;
use std::rc::Rc;

use napi::bindgen_prelude::Unknown;
use napi::{Env, sys};
use napi_derive::napi;
use polylimit::http::guard::{Guard, MissingKey, RequestFacts, RequestLimits, Verdict};
use polylimit::http::headers::{HeaderField, Problem};
use polylimit::raw::Answer;

use crate::active_check::{ActiveCheck, Holding, PreparedFacts, SharedCheck};
use crate::error::{Result, catch_panic, closed, internal, to_js_error};
use crate::exchange::Exchange;
use crate::field_text::changes;
use crate::function::{self, ARGUMENT_COUNT, NativeFunction};
use crate::guard_check::NativeCheck;
use crate::guard_settings::{GuardSettings, build};
use crate::limiter::NativeLimiter;
use crate::number::{cost, number};
use crate::request_attributes::{AttributeRow, ReadAttributes};
use crate::request_layout::{Field, GuardStep, NO_KEY, PolicyRef, RequestField};
use crate::text::{self, TextBuffer};

pub(crate) struct GuardHandle {
    /// `None` after the limiter was closed, which must not keep connections or memory then.
    guard: RefCell<Option<Guard>>,
    exchange: Rc<Exchange>,
    hears_outages: bool,
    /// Whether the limiter's store never waits.
    is_immediate: bool,
    /// The fields of the previous response.
    previous: RefCell<Vec<HeaderField>>,
}

/// A guard as JavaScript holds it.
#[napi]
pub struct NativeGuard {
    handle: Rc<GuardHandle>,
}

#[napi]
impl NativeGuard {
    #[napi(constructor)]
    pub fn new(limiter: &NativeLimiter, settings: GuardSettings) -> Result<Self> {
        catch_panic(|| {
            let open = limiter.handle.limiter().clone();
            let is_immediate = open.raw().never_waits();
            let hears_outages = settings.hears_outages;
            let handle = Rc::new(GuardHandle {
                guard: RefCell::new(Some(build(open, settings)?)),
                exchange: Rc::clone(&limiter.handle.exchange),
                hears_outages,
                is_immediate,
                previous: RefCell::default(),
            });
            let weak = Rc::downgrade(&handle);
            limiter.handle.on_close(move || {
                if let Some(handle) = weak.upgrade() {
                    handle.guard.take();
                }
            });
            Ok(Self { handle })
        })
    }

    /// Creates the function that decides a request. Its key and its cost stand in the arrays, as for an operation.
    #[napi(ts_return_type = "(key?: string | Uint8Array, route?: string) => string | undefined")]
    pub fn decide_function(&self, env: Env) -> Result<Unknown<'_>> {
        catch_panic(|| function::create(env, DecideFunction(Rc::clone(&self.handle))))
    }

    /// Whether a request with this method is limited. `requested_method` is that of a preflight, where the guard belongs to no
    /// handler.
    #[napi]
    pub fn applies_to(&self, method: String, requested_method: Option<String>) -> Result<bool> {
        catch_panic(|| Ok(self.handle.guard()?.applies_to(&method, requested_method.as_deref())))
    }

    /// The names and values of the fields by which a page of this origin may read a denial.
    #[napi]
    pub fn cors_fields(&self, origin: Option<String>) -> Result<Vec<Vec<String>>> {
        catch_panic(|| {
            let fields = self.handle.guard()?.cors_fields(origin.as_deref());
            Ok(fields.into_iter().map(|field| vec![field.name.into_owned(), field.value]).collect())
        })
    }

    /// The kind and the name of each part of the key.
    #[napi]
    pub fn key_parts(&self) -> Result<Vec<Vec<String>>> {
        catch_panic(|| {
            let guard = self.handle.guard()?;
            let parts = guard.key_parts().iter();
            Ok(parts.map(|part| vec![part.kind().to_owned(), part.name().to_owned()]).collect())
        })
    }

    /// The key of parts with these values; `None` when one is missing.
    #[napi]
    pub fn join_key(&self, values: Vec<Option<String>>) -> Result<Option<String>> {
        catch_panic(|| {
            let key = self.handle.guard()?.join_key(&values);
            Ok(key.map(|key| String::from_utf8_lossy(&key).into_owned()))
        })
    }

    /// Whether a request without a key is counted by its client's address.
    #[napi]
    pub fn falls_back_to_address(&self) -> Result<bool> {
        catch_panic(|| Ok(self.handle.guard()?.missing_key() == MissingKey::Address))
    }

    /// Whether the guard needs the route of a request.
    #[napi]
    pub fn is_per_route(&self) -> Result<bool> {
        catch_panic(|| Ok(self.handle.guard()?.is_per_route()))
    }

    /// The names of the policies of a request that is on no route.
    #[napi]
    pub fn policies(&self) -> Result<Vec<String>> {
        catch_panic(|| Ok(self.handle.guard()?.policies().map(ToOwned::to_owned).collect()))
    }

    /// Gives the next decision the limits of its request: those of an earlier check, or of the newest one. And its policies and the
    /// costs of single policies, where they are functions of the request.
    #[napi]
    pub fn prepare(
        &self,
        earlier: Option<&NativeCheck>,
        is_newest: bool,
        policies: Option<Vec<String>>,
        costs: Option<Vec<Option<f64>>>,
    ) -> Result<()> {
        catch_panic(|| {
            let costs = costs.unwrap_or_default().into_iter().map(|units| units.map(cost).transpose());
            let costs = costs.collect::<Result<Vec<_>>>()?;
            let earlier = match earlier {
                None if is_newest => Some(self.handle.exchange.current()?),
                None => None,
                Some(earlier) => Some(Rc::clone(&earlier.shared)),
            };
            *self.handle.exchange.prepared.borrow_mut() =
                PreparedFacts { earlier, policies, costs, attributes: None };
            Ok(())
        })
    }

    /// Whether the configuration of the limiter decides.
    #[napi]
    pub fn is_by_configuration(&self) -> Result<bool> {
        catch_panic(|| Ok(self.handle.guard()?.is_by_configuration()))
    }

    /// Gives the next decision the attributes of its request, after `prepare`: the lines of `requestText`, and what the program
    /// knows.
    #[napi]
    pub fn prepare_attributes(
        &self,
        env: Env,
        request: String,
        attributes: Vec<AttributeRow<'_>>,
    ) -> Result<()> {
        catch_panic(|| {
            let read = ReadAttributes::of_lines(env, &request, attributes)?;
            self.handle.exchange.prepared.borrow_mut().attributes = Some(read);
            Ok(())
        })
    }

    /// Continues after the store has answered: the check is the newest of the exchange. `Field::Ticket` is 0 unless there is more
    /// to ask.
    #[napi]
    pub fn answered(&self) -> Result<Option<String>> {
        catch_panic(|| {
            let shared = self.handle.exchange.current()?;
            self.handle.ask(shared)
        })
    }

    /// Continues with what `onOutage` has returned; `None` leaves the decision to the outage policy.
    #[napi]
    pub fn conclude(&self, check: &NativeCheck, admit: Option<bool>) -> Result<Option<String>> {
        catch_panic(|| {
            if let Some(admit) = admit {
                check.shared.borrow_mut().check.overrule(admit);
            }
            self.handle.conclude(Rc::clone(&check.shared))
        })
    }

    /// Writes the result of a concluded check, after its refunds.
    #[napi]
    pub fn report(&self, check: &NativeCheck) -> Result<Option<String>> {
        catch_panic(|| Ok(self.handle.report(Rc::clone(&check.shared))))
    }

    /// The check of an admitted request whose only decision stands in the arrays, as it was when the request was decided. So
    /// the most frequent requests need no object of the addon. `earlier` is the check of the guard before.
    #[napi]
    pub fn restore(
        &self,
        env: Env,
        earlier: Option<&NativeCheck>,
        key: Unknown<'_>,
        units: Option<f64>,
        route: Option<String>,
    ) -> Result<NativeCheck> {
        catch_panic(|| {
            let mut text = TextBuffer::new();
            // SAFETY: the value is an argument of this call.
            let key = unsafe { text.key(env.raw(), napi::JsValue::raw(&key))? };
            let mut facts = RequestFacts::new().key(key);
            if let Some(units) = units {
                facts = facts.cost(cost(units)?);
            }
            if let Some(route) = &route {
                facts = facts.route(route);
            }
            let earlier = earlier.map(|earlier| Rc::clone(&earlier.shared));
            let mut check =
                self.handle.guard()?.start(&limits_of(earlier.as_ref()), &facts).map_err(to_js_error)?;
            check.answer(Ok(vec![self.handle.exchange.arrays.decision()?]));
            // The verdict is known: the request was admitted.
            drop(check.conclude());
            Ok(NativeCheck::new(&self.handle.exchange, ActiveCheck::new(check, earlier)))
        })
    }
}

/// `(key, route) => string | undefined`: decides the request in the shared arrays. `Field::Ticket` is 0 unless the store's
/// answer is still to come, and `Field::Step` says what is next.
struct DecideFunction(Rc<GuardHandle>);

impl NativeFunction for DecideFunction {
    const NAME: &'static CStr = c"decide";

    unsafe fn call(
        &self,
        env: sys::napi_env,
        [key, route, _]: [sys::napi_value; ARGUMENT_COUNT],
    ) -> Result<sys::napi_value> {
        let handle = &self.0;
        let arrays = &handle.exchange.arrays;
        let header = arrays.request_header();
        let (mut key_text, mut route_text) = (TextBuffer::new(), TextBuffer::new());
        let mut facts = RequestFacts::new();
        match header.short_key {
            Some(length) => facts = facts.key(arrays.short_key(length)),
            None if arrays.request_field(RequestField::KeyLength) == NO_KEY => {}
            // SAFETY: the caller guarantees it.
            None => facts = facts.key(unsafe { key_text.key(env, key)? }),
        }
        if let Some(units) = header.cost {
            facts = facts.cost(cost(units)?);
        }
        if let PolicyRef::Argument = header.policy {
            // SAFETY: the caller guarantees it.
            let route = unsafe { route_text.text(env, route) };
            facts = facts.route(route.ok_or_else(|| internal("the route is not a string"))?);
        }
        match handle.decide(facts)? {
            // SAFETY: the caller guarantees it for the environment; header fields are printable ASCII.
            Some(fields) => unsafe { text::string(env, &fields) },
            None => Ok(ptr::null_mut()),
        }
    }
}

impl GuardHandle {
    fn guard(&self) -> Result<std::cell::Ref<'_, Guard>> {
        std::cell::Ref::filter_map(self.guard.borrow(), Option::as_ref).map_err(|_| closed())
    }

    fn decide(&self, facts: RequestFacts<'_>) -> Result<Option<String>> {
        let PreparedFacts { earlier, policies, costs, attributes } = self.exchange.prepared.take();
        let guard = self.guard()?;
        let texts: Option<Vec<&str>> =
            policies.as_ref().map(|policies| policies.iter().map(|one| &**one).collect());
        let facts = match &texts {
            Some(texts) => facts.policies(texts),
            None => facts,
        };
        let facts = facts.costs(&costs);
        let attributes = attributes.as_ref().map(ReadAttributes::attributes);
        let facts = match &attributes {
            Some(attributes) => facts.attributes(attributes),
            None => facts,
        };
        let mut check = guard.start(&limits_of(earlier.as_ref()), &facts).map_err(to_js_error)?;
        // A request that is held waits like one for a store that takes its time.
        if self.is_immediate && check.try_run() {
            self.exchange.arrays.set_ticket(0);
            return self.advance(ActiveCheck::new(check, earlier));
        }
        self.ask(ActiveCheck::new(check, earlier))
    }

    /// Makes the calls that ask the limiter, until one of them has to wait.
    fn ask(&self, shared: SharedCheck) -> Result<Option<String>> {
        // The check has an error of the limiter itself.
        let _ = self.exchange.call_next(&shared, |exchange, shared, _| {
            exchange.set_current(shared);
            Ok(Answer::Ready)
        });
        if self.exchange.is_waiting() {
            return Ok(None);
        }
        self.advance(shared)
    }

    /// After the store's answer.
    fn advance(&self, shared: SharedCheck) -> Result<Option<String>> {
        if self.hears_outages && shared.borrow().check.outage().is_some() {
            self.stop(GuardStep::Outage, 0, shared);
            return Ok(None);
        }
        self.conclude(shared)
    }

    fn conclude(&self, shared: SharedCheck) -> Result<Option<String>> {
        let mut active = shared.borrow_mut();
        active.problem = match active.check.conclude() {
            Verdict::Admit => None,
            Verdict::Deny(problem) => Some(problem),
            Verdict::Fail(error) => return Err(to_js_error(error)),
        };
        let has_to_settle = active.check.next_call(|_, _| ()).is_some();
        drop(active);
        if has_to_settle {
            self.stop(GuardStep::Settle, 0, shared);
            return Ok(None);
        }
        Ok(self.report(shared))
    }

    fn report(&self, shared: SharedCheck) -> Option<String> {
        let arrays = &self.exchange.arrays;
        let active = shared.borrow();
        let outcomes = active.check.outcomes();
        if let [(_, decision)] = &outcomes[..] {
            arrays.write_decision(decision);
        }
        let status = active.problem.as_ref().map_or(0, Problem::status);
        arrays.set(Field::Status as usize, status.into());
        arrays.set(
            Field::Holds as usize,
            match active.holding() {
                Holding::None => 0.0,
                Holding::Earlier => 1.0,
                Holding::This => 2.0,
            },
        );
        let fields = active.check.fields();
        let (changed, text) = changes(&self.previous.borrow(), &fields);
        self.previous.replace(fields);
        arrays.set(Field::Changed as usize, changed);
        drop(active);
        self.stop(GuardStep::Done, outcomes.len(), shared);
        (!text.is_empty()).then_some(text)
    }

    fn stop(&self, step: GuardStep, items: usize, shared: SharedCheck) {
        let arrays = &self.exchange.arrays;
        arrays.set(Field::Step as usize, f64::from(step as u32));
        arrays.set(Field::Items as usize, number(items as u64));
        self.exchange.set_current(shared);
    }
}

/// The limits of a request whose guard before has made this check.
fn limits_of(earlier: Option<&SharedCheck>) -> RequestLimits {
    earlier.map_or_else(RequestLimits::default, |earlier| earlier.borrow().check.limits().clone())
}
