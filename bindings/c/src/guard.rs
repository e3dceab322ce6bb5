//! The guard: what a limit does with an HTTP request, for the middleware of any framework.

use std::ffi::c_char;
use std::time::Duration;

use polylimit::http::guard::Guard;
use polylimit::http::guard::GuardBuilder;
use polylimit::http::headers::HeaderSettings;

use crate::arguments::TextBuffer;
use crate::arguments::array;
use crate::arguments::handle;
use crate::arguments::optional_text;
use crate::arguments::out_param;
use crate::arguments::text;
use crate::error::Failure;
use crate::error::MessageBuffer;
use crate::error::guard_or;
use crate::error::guard_unit;
use crate::error::polylimit_status;
use crate::headers::lines;
use crate::limiter::polylimit_limiter;
use crate::options::polylimit_option;

/// The options of a limit on HTTP requests. Any thread may use it at any time. It stays usable when its limiter is freed, and
/// its checks then fail with POLYLIMIT_CLOSED.
pub struct polylimit_guard {
    pub(crate) guard: Guard,
}

/// Creates a guard on a limiter from `option_count` settings with these names:
///
/// - `policy`, any number of times: a policy's name or quotas as text. It may be left out where the limiter has one policy.
///   Several are decided together: all admit the request, or it spends nothing.
/// - `per_request` ("true", "false"): each request gives its policies; one that gives none has those of the guard, if any.
/// - `scope`: the budget of quotas without a name, 1 to 256 bytes.
/// - `per_route` ("true", "false"): without a scope, quotas without a name have a budget for each route.
/// - `key_part`, any number of times: "address", "user", "header:NAME", "cookie:NAME" or "path:NAME".
/// - `missing_key`: how a request without a key is counted: by its "address" (the default), "share" (together with all
///   others), or "refuse" (it is answered by 400).
/// - `cost`: the units that each request spends, 0 to 10^12; 1 by default.
/// - `cost.<policy>`: the same under one of several policies, such as `cost.tokens` for the policy "tokens" of this guard. A cost that its
///   policy can never admit is refused, because no request would ever proceed. A cost that depends on the request is one of its facts.
/// - `method`, any number of times, in any case: only requests of these methods are limited; see polylimit_guard_applies_to.
/// - `separate_head` ("true", "false"): `HEAD` is separate from `GET`: a limit on `GET` does not have it, and a route whose name begins
///   with it has a budget of its own.
/// - `count_preflights` ("true", "false"): preflights count; see polylimit_guard_applies_to.
/// - `cors_origin`, any number of times: an origin whose pages may read denials, such as "https://app.example", or only "*" for all; see
///   polylimit_guard_cors_fields.
/// - `headers`: as in polylimit_headers_render.
/// - `status` (400 to 599; 429 by default) and `message`: the response to a request over its limit.
/// - `dry_run` ("true", "false"): decides, spends and reports without ever denying.
/// - `reserved` ("true", "false"): requests are reserved under every policy until polylimit_guard_check_end says what was spent, and not
///   only under those with a quota that counts reservations.
/// - `reserved.<policy>` ("true", "false"): the same under one of several policies of this guard; see polylimit_guard_check_end_each.
/// - `spent`: what a request has spent, as its response reports it, such as "usage:total", "header:x-tokens", "json:usage.total_tokens" or
///   "3*usage:input + 15*usage:output". Requests are then reserved as with `reserved`, and the response is passed to
///   polylimit_guard_check_read_head and _read_body. A response that reports nothing has spent the cost.
/// - `spent.<policy>`: the same under one of several policies of this guard.
/// - `by_configuration` ("true", "false"): the rules of the limiter's configuration say which policies, keys and costs a request has, by
///   the `attributes` of its facts. Policies, key, cost and scope are not given then.
/// - `ttl_us` and `max_age_us`: as in polylimit_reservation_options, for the reservations of requests.
/// - `wait_us`: how long a request that would be denied may be held, 0 to 60000000; 0 by default, which holds none. It is held until it
///   would be admitted, if that is in time, and is decided again: polylimit_guard_check_run blocks this long, or
///   polylimit_guard_check_submit returns POLYLIMIT_PENDING. A leaky bucket holds a request until its turn.
/// - `max_waiting`: how many requests may be held at the same time, 1 to 1000000; 100 by default. A further one is denied at once.
///
/// Freed by polylimit_guard_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_new(
    limiter: *const polylimit_limiter,
    options: *const polylimit_option,
    option_count: usize,
    guard_out: *mut *mut polylimit_guard,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter, an array and an out-parameter.
        let (limiter, options, guard_out) = unsafe {
            (
                handle(limiter, "limiter")?,
                array(options, option_count, "options")?,
                out_param(guard_out, "guard_out")?,
            )
        };
        let mut builder = Guard::builder(limiter.limiter.asynchronous().clone());
        let mut origins = Vec::new();
        let mut by_policy = PolicyOptions::default();
        for option in options {
            // SAFETY: the caller guarantees texts.
            let (name, value) = unsafe {
                (text(option.name, "the name of an option")?, text(option.value, "the value of an option")?)
            };
            if name == "cors_origin" {
                origins.push(value);
            } else if !by_policy.take(name, value)? {
                builder = set(builder, name, value)?;
            }
        }
        builder = by_policy.set(builder.cors_origins(origins))?;
        *guard_out = Box::into_raw(Box::new(polylimit_guard { guard: builder.build()? }));
        Ok(())
    })
}

/// The policies of a guard, and the options that each of them may have for itself.
#[derive(Default)]
struct PolicyOptions<'a> {
    policies: Vec<&'a str>,
    is_per_request: bool,
    is_reserved: bool,
    costs: Vec<(&'a str, u64)>,
    reserved: Vec<(&'a str, bool)>,
    meters: Vec<(&'a str, &'a str)>,
}

impl<'a> PolicyOptions<'a> {
    /// Takes an option, if it is one of these.
    fn take(&mut self, name: &'a str, value: &'a str) -> Result<bool, Failure> {
        match name.split_once('.') {
            Some(("cost", policy)) => self.costs.push((policy, parsed(name, value, "a number of units")?)),
            Some(("spent", policy)) => self.meters.push((policy, value)),
            Some(("reserved", policy)) => {
                self.reserved.push((policy, parsed(name, value, "true or false")?));
            }
            _ => match name {
                "policy" => self.policies.push(value),
                "per_request" => self.is_per_request = parsed(name, value, "true or false")?,
                "reserved" => self.is_reserved = parsed(name, value, "true or false")?,
                _ => return Ok(false),
            },
        }
        Ok(true)
    }

    fn set(self, mut builder: GuardBuilder) -> Result<GuardBuilder, Failure> {
        let costs = self.by_position("cost", &self.costs)?;
        let reserved = self.by_position("reserved", &self.reserved)?;
        let meters = self.by_position("spent", &self.meters)?;
        if !meters.is_empty() {
            builder = builder.spent_by_each(meters.into_iter().map(|meter| meter.map(str::to_owned)));
        }
        if !costs.is_empty() {
            builder = builder.costs(costs);
        }
        if !reserved.is_empty() {
            builder = builder.reserved_each(reserved.into_iter().map(|own| own.unwrap_or(self.is_reserved)));
        }
        let builder = builder.per_request(self.is_per_request).reserved(self.is_reserved);
        Ok(self.policies.into_iter().fold(builder, GuardBuilder::policy))
    }

    /// What each policy has for itself, in their order; empty where none has anything.
    fn by_position<T: Copy>(&self, option: &str, given: &[(&str, T)]) -> Result<Vec<Option<T>>, Failure> {
        let mut found = Vec::new();
        for (name, value) in given {
            if self.is_per_request {
                // The core refuses it, wherever it stands.
                found.push(Some(*value));
                continue;
            }
            let at = self.policies.iter().position(|policy| policy == name);
            let at = at.ok_or_else(|| self.not_one(option, name))?;
            found.resize(self.policies.len(), None);
            found[at] = Some(*value);
        }
        Ok(found)
    }

    fn not_one(&self, option: &str, name: &str) -> Failure {
        let name = name.escape_debug();
        Failure::invalid(if self.policies.is_empty() {
            format!(
                "option {option}.{name} is about no policy of the guard: give the guard each of its policies as an option policy"
            )
        } else {
            let allowed = self.policies.iter().map(|policy| format!("{option}.{}", policy.escape_debug()));
            let allowed = allowed.collect::<Vec<_>>().join(", ");
            format!("option {option}.{name} is about no policy of the guard: allowed are {allowed}")
        })
    }
}

fn set(builder: GuardBuilder, name: &str, value: &str) -> Result<GuardBuilder, Failure> {
    Ok(match name {
        "scope" => builder.scope(value),
        "per_route" => builder.per_route(parsed(name, value, "true or false")?),
        "key_part" => builder.key_part(value.parse()?),
        "missing_key" => builder.missing_key(value.parse()?),
        "spent" => builder.spent_by(value),
        "cost" => builder.cost(parsed(name, value, "a number of units")?),
        "method" => builder.method(value),
        "separate_head" => builder.separate_head(parsed(name, value, "true or false")?),
        "count_preflights" => builder.count_preflights(parsed(name, value, "true or false")?),
        "headers" => builder.headers(value.parse::<HeaderSettings>()?),
        "status" => builder.status(parsed(name, value, "400 to 599")?),
        "message" => builder.message(value),
        "dry_run" => builder.dry_run(parsed(name, value, "true or false")?),
        "by_configuration" if parsed(name, value, "true or false")? => builder.by_configuration(),
        "by_configuration" => builder,
        "ttl_us" => builder.ttl(microseconds(name, value)?),
        "max_age_us" => builder.max_age(microseconds(name, value)?),
        "wait_us" => builder.wait(microseconds(name, value)?),
        "max_waiting" => builder.max_waiting(parsed(name, value, "1 to 1000000")?),
        _ => {
            return Err(Failure::invalid(format!(
                "option {} is not known: allowed are policy, per_request, scope, per_route, key_part, missing_key, cost, \
                 cost.<policy>, method, separate_head, count_preflights, cors_origin, headers, status, \
                 message, dry_run, reserved, reserved.<policy>, spent, spent.<policy>, by_configuration, ttl_us, max_age_us, \
                 wait_us, max_waiting",
                name.escape_debug()
            )));
        }
    })
}

fn microseconds(name: &str, value: &str) -> Result<Duration, Failure> {
    parsed(name, value, "a number of microseconds").map(Duration::from_micros)
}

fn parsed<T: std::str::FromStr>(name: &str, value: &str, allowed: &str) -> Result<T, Failure> {
    value
        .parse()
        .map_err(|_| Failure::invalid(format!("{name} is {}: allowed is {allowed}", value.escape_debug())))
}

/// Whether a request with this method is limited: 1 or 0. A limit on `GET` has `HEAD` too, unless `separate_head` says otherwise.
///
/// `requested_method` is the field `access-control-request-method` of a request that has an `origin` too, otherwise NULL. With the
/// method `OPTIONS` it is a preflight, by which a browser asks whether a page may send a request: it is not limited, unless
/// `count_preflights` says otherwise or `OPTIONS` is one of the methods. A limit that is attached to a handler passes NULL, because an
/// `OPTIONS` request that gets there runs the handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_applies_to(
    guard: *const polylimit_guard,
    method: *const c_char,
    requested_method: *const c_char,
) -> u32 {
    guard_or(1, || {
        // SAFETY: the caller guarantees a guard and texts, or NULL.
        let (guard, method, requested) = unsafe {
            (
                guard.as_ref(),
                optional_text(method, "method"),
                optional_text(requested_method, "requested_method"),
            )
        };
        let (method, requested) = (method.ok().flatten().unwrap_or_default(), requested.ok().flatten());
        guard.is_none_or(|guard| guard.guard.applies_to(method, requested)).into()
    })
}

/// Writes the fields by which a page of this origin may read a denial, each as "name: value\r\n" with the name in lower case: an empty
/// text for an origin that is not one of the guard's. `origin` is the field `origin` of the request, or NULL. A middleware adds them to a
/// denial that does not have the field `access-control-allow-origin`. The length without the NUL is written to `length_out`, which may be
/// NULL, even if the buffer is too small.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_cors_fields(
    guard: *const polylimit_guard,
    origin: *const c_char,
    buffer: *mut c_char,
    capacity: usize,
    length_out: *mut usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a guard and a text, or NULL.
        let (guard, origin) = unsafe { (handle(guard, "guard")?, optional_text(origin, "origin")?) };
        let fields = guard.guard.cors_fields(origin);
        // SAFETY: the caller guarantees the buffer.
        unsafe { TextBuffer { start: buffer, capacity, length_out }.write(&lines(&fields, "")) }
    })
}

/// Frees a guard; its checks stay usable. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_guard_free(guard: *mut polylimit_guard) {
    guard_or((), || {
        if !guard.is_null() {
            // SAFETY: the caller guarantees a guard that no thread uses any more.
            drop(unsafe { Box::from_raw(guard) });
        }
    });
}
