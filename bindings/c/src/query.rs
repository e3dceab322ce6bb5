//! Questions about keys: which there are and what they have used, and why a request would be admitted or denied.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use polylimit::admin::{KeyFilter, ListBudget};
use polylimit::raw::{Answer, Call, report_json};

use crate::arguments::{Sized32, Strided, bytes, handle, optional_text, out_param, sized, sized_out};
use crate::attributes::{polylimit_attributes, request_attributes};
use crate::completions::{Receiver, Tag, polylimit_completions};
use crate::error::{
    Failure, MessageBuffer, POLYLIMIT_OK, POLYLIMIT_PENDING, guard, guard_unit, polylimit_status,
};
use crate::limiter::polylimit_limiter;
use crate::operations::{STOP_POLL_INTERVAL, is_stopped, wrong_answer};
use crate::report::{Told, polylimit_report};
use crate::request::{polylimit_request, polylimit_result};

/// The keys that the store has, a page at a time.
pub const POLYLIMIT_LIST: u32 = 1;
/// The keys of which the most is used.
pub const POLYLIMIT_SCAN_TOP: u32 = 2;
/// Resets the keys of a page.
pub const POLYLIMIT_RESET_LISTED: u32 = 3;
/// Why a request with a key would be admitted or denied.
pub const POLYLIMIT_EXPLAIN: u32 = 4;
/// Why a request, by its attributes, would be admitted or denied by the configuration.
pub const POLYLIMIT_EXPLAIN_REQUEST: u32 = 5;

/// Which keys a list has, and when a page ends. polylimit_list_defaults writes the defaults: all keys.
#[repr(C)]
pub struct polylimit_list_options {
    /// sizeof(polylimit_list_options), set by the caller.
    pub size: u32,
    /// Only keys of which at least this much is used, in percent: 0 to 255. Keys of policies that the limiter does not know are listed with
    /// 0 only.
    pub at_least_used: u32,
    /// Only keys of the policy with this name, or with these quotas; NULL for all.
    pub policy: *const c_char,
    /// Only keys that begin with these bytes; may be NULL when the length is 0.
    pub key_prefix: *const c_void,
    /// The length of the prefix in bytes.
    pub key_prefix_length: usize,
    /// Where the list goes on: the `cursor` of the page before; NULL for the first page. It has no effect on POLYLIMIT_SCAN_TOP.
    pub cursor: *const c_char,
    /// The page ends once it has this many keys, 1 or more. The last step may bring some more: about a thousand at most.
    pub entries: u64,
    /// The page ends once the store has examined this many keys, 1 or more, whether they are in the page or not.
    pub examined: u64,
    /// The share of one server's time that a list in Redis may take, in percent: 1 to 100. Each call is followed by a pause.
    pub pace_percent: u32,
    /// Always 0.
    pub reserved: u32,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_list_options {
    const NAME: &'static str = "options";
    const MIN_SIZE: u32 = 64;
}

/// What a list is asked, as the core takes it.
struct List<'a> {
    filter: KeyFilter<'a>,
    budget: ListBudget,
    cursor: Option<&'a str>,
}

impl List<'_> {
    /// # Safety
    /// `options` is NULL or points at options, whose texts and bytes do not change while the list is used.
    unsafe fn read(options: *const polylimit_list_options) -> Result<Self, Failure> {
        let (filter, budget) = (KeyFilter::default(), ListBudget::default());
        if options.is_null() {
            return Ok(Self { filter, budget, cursor: None });
        }
        // SAFETY: the caller guarantees all of it.
        let (options, policy, prefix, cursor) = unsafe {
            let options = sized(options)?;
            (
                options,
                optional_text(options.policy, "policy")?,
                bytes(options.key_prefix.cast(), options.key_prefix_length, "key_prefix")?,
                optional_text(options.cursor, "cursor")?,
            )
        };
        let mut filter = filter.key_prefix(prefix).at_least_used(percent(
            options.at_least_used,
            "at_least_used",
            "0 to 255",
        )?);
        filter.policy = policy;
        let budget = budget
            .entries(usize::try_from(options.entries).unwrap_or(usize::MAX))
            .examined(options.examined)
            .pace_percent(percent(options.pace_percent, "pace_percent", "1 to 100")?);
        Ok(Self { filter, budget, cursor })
    }
}

fn percent(read: u32, name: &str, allowed: &str) -> Result<u8, Failure> {
    u8::try_from(read)
        .map_err(|_| Failure::invalid(format!("{name} of a list is {read}: allowed is {allowed}")))
}

/// Writes the defaults into every field except `size`, which the caller sets: all keys, in pages of 1,000, each after at most 100,000
/// examined keys, at a tenth of one server's time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_list_defaults(
    options_out: *mut polylimit_list_options,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees an out-parameter of the size that it says.
        let options = unsafe { sized_out(options_out)? };
        let ListBudget { entries, examined, pace_percent, .. } = ListBudget::default();
        options.at_least_used = 0;
        options.policy = ptr::null();
        options.key_prefix = ptr::null();
        options.key_prefix_length = 0;
        options.cursor = ptr::null();
        options.entries = entries as u64;
        options.examined = examined;
        options.pace_percent = pace_percent.into();
        options.reserved = 0;
        Ok(())
    })
}

/// A question about keys. What has no effect may be NULL or 0.
#[repr(C)]
pub struct polylimit_query {
    /// sizeof(polylimit_query), set by the caller.
    pub size: u32,
    /// One of POLYLIMIT_LIST to POLYLIMIT_EXPLAIN_REQUEST.
    pub operation: u32,
    /// For POLYLIMIT_LIST, POLYLIMIT_SCAN_TOP and POLYLIMIT_RESET_LISTED; NULL is the defaults.
    pub options: *const polylimit_list_options,
    /// This many keys at most; for POLYLIMIT_SCAN_TOP.
    pub most: u64,
    /// For POLYLIMIT_EXPLAIN: its policy, key, cost, headroom and plan; the other fields have no effect.
    pub request: *const polylimit_request,
    /// For POLYLIMIT_EXPLAIN_REQUEST.
    pub attributes: *const polylimit_attributes,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_query {
    const NAME: &'static str = "query";
    const MIN_SIZE: u32 = 40;
}

/// Reads a query and does something with its call.
///
/// # Safety
/// `query` is NULL or points at a query, whose structs, texts and bytes do not change during the call.
unsafe fn with_call<T>(
    query: *const polylimit_query,
    work: impl FnOnce(&Call<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // SAFETY: the caller guarantees all of it.
    unsafe {
        let query = sized(query)?;
        let list = || List::read(query.options);
        match query.operation {
            POLYLIMIT_LIST => {
                let List { filter, budget, cursor } = list()?;
                work(&Call::List(filter, budget, cursor))
            }
            POLYLIMIT_SCAN_TOP => {
                let List { filter, budget, .. } = list()?;
                work(&Call::ScanTop(filter, as_many(query.most), budget))
            }
            POLYLIMIT_RESET_LISTED => {
                let List { filter, budget, cursor } = list()?;
                work(&Call::ResetListed(filter, budget, cursor))
            }
            POLYLIMIT_EXPLAIN => work(&Call::Explain(sized(query.request)?.request()?)),
            POLYLIMIT_EXPLAIN_REQUEST => work(&Call::ExplainRequest(&request_attributes(query.attributes)?)),
            other => Err(Failure::invalid(format!(
                "query {other} is not known: allowed are {POLYLIMIT_LIST} to {POLYLIMIT_EXPLAIN_REQUEST}"
            ))),
        }
    }
}

/// A number of keys; there are never more than an address can count.
fn as_many(most: u64) -> usize {
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Asks, and blocks this thread until the report is there, or until another thread sets `*stopped` to a number other than 0; then it
/// returns POLYLIMIT_PENDING, and which keys a POLYLIMIT_RESET_LISTED has reset is unknown. `stopped` may be NULL. The report is freed
/// by polylimit_report_free.
///
/// POLYLIMIT_INVALID_ARGUMENT: a budget is out of bounds, the cursor is that of another list, the policy is unknown to an explanation,
/// or the limiter has no configuration that explains requests. POLYLIMIT_STORE_UNAVAILABLE: the store does not answer; no outage policy
/// answers in its place. POLYLIMIT_STORE_FAILED: among others when the user may not list keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_query(
    limiter: *const polylimit_limiter,
    query: *const polylimit_query,
    stopped: *const u32,
    report_out: *mut *mut polylimit_report,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and an out-parameter.
        let (limiter, report_out) =
            unsafe { (handle(limiter, "limiter")?, out_param(report_out, "report_out")?) };
        let limiter = &limiter.limiter;
        // SAFETY: the caller guarantees a number, or NULL.
        let stop = || unsafe { is_stopped(stopped) };
        // SAFETY: the caller guarantees a query.
        let answer = unsafe {
            with_call(query, |call| {
                let answer =
                    limiter.asynchronous().raw().try_call(call).or_else(|| match stopped.is_null() {
                        true => Some(limiter.raw().call_store(call)),
                        false if stop() => None,
                        false => limiter.raw().call_until(call, STOP_POLL_INTERVAL, stop),
                    });
                Ok(answer)
            })
        }?;
        let Some(answer) = answer else { return Ok(POLYLIMIT_PENDING) };
        let told = Arc::<Told>::default();
        let Answer::Ready = told.receive(answer)? else { return Err(wrong_answer()) };
        *report_out = polylimit_report::given(told);
        Ok(POLYLIMIT_OK)
    })
}

/// Asks without waiting; see polylimit_admin_query. The handle is there at once.
///
/// POLYLIMIT_OK: the report was available at once, and the handle has it. POLYLIMIT_PENDING: polylimit_completions_drain will return a
/// result without an answer, with this tag; from then on the handle has the report. Any other status is an error, and there will be
/// neither a result nor a handle. `result_size` is sizeof(polylimit_result).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_completions_submit_query(
    completions: *const polylimit_completions,
    limiter: *const polylimit_limiter,
    query: *const polylimit_query,
    tag: u64,
    report_out: *mut *mut polylimit_report,
    result_out: *mut polylimit_result,
    result_size: usize,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees completions, a limiter, an out-parameter and a result.
        let (completions, limiter, report_out, result) = unsafe {
            (
                handle(completions, "completions")?,
                handle(limiter, "limiter")?,
                out_param(report_out, "report_out")?,
                Strided::new(result_out, result_size, 1)?,
            )
        };
        let told = Arc::<Told>::default();
        let receiver = Arc::<Told>::clone(&told);
        let submitted = Tag { number: tag, receiver: Some(receiver) };
        let limiter = limiter.limiter.asynchronous();
        // SAFETY: the caller guarantees a query.
        let answer = unsafe { with_call(query, |call| Ok(completions.call(limiter, call, submitted))) }?;
        let status = match answer {
            None => POLYLIMIT_PENDING,
            Some(answer) => {
                let answer = told.receive(answer)?;
                // SAFETY: it is the only element of the array, and any bytes are valid in its fields.
                unsafe { &mut *result.at::<polylimit_result>(0) }.set(tag, Ok(answer));
                POLYLIMIT_OK
            }
        };
        *report_out = polylimit_report::given(told);
        Ok(status)
    })
}

/// Lists the keys that the store has, with what is used of their quotas. A page ends by its budget, and the `cursor` in its report leads
/// to the next one; it is null on the last page. `options` may be NULL. See polylimit_admin_query.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_list(
    limiter: *const polylimit_limiter,
    options: *const polylimit_list_options,
    report_out: *mut *mut polylimit_report,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    let query = polylimit_query { operation: POLYLIMIT_LIST, options, ..NOTHING };
    // SAFETY: the caller guarantees what polylimit_admin_query needs.
    unsafe { ask(limiter, &query, report_out, error_buffer, error_capacity) }
}

/// Lists the `most` keys of which the most is used, first the one of which most is. Where its report has a cursor, the budget of
/// `options`, which may be NULL, has ended before all keys were examined. See polylimit_admin_query.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_scan_top(
    limiter: *const polylimit_limiter,
    most: u64,
    options: *const polylimit_list_options,
    report_out: *mut *mut polylimit_report,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    let query = polylimit_query { operation: POLYLIMIT_SCAN_TOP, options, most, ..NOTHING };
    // SAFETY: the caller guarantees what polylimit_admin_query needs.
    unsafe { ask(limiter, &query, report_out, error_buffer, error_capacity) }
}

/// Lists a page of keys as polylimit_admin_list does, and resets them: the store forgets them, and what they have used. Keys of policies
/// that the limiter does not know stay. See polylimit_admin_query.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_reset_listed(
    limiter: *const polylimit_limiter,
    options: *const polylimit_list_options,
    report_out: *mut *mut polylimit_report,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    let query = polylimit_query { operation: POLYLIMIT_RESET_LISTED, options, ..NOTHING };
    // SAFETY: the caller guarantees what polylimit_admin_query needs.
    unsafe { ask(limiter, &query, report_out, error_buffer, error_capacity) }
}

/// Explains why a check of this request, by its policy, key, cost, headroom and plan, would be admitted or denied now: what each quota says,
/// blocks, reservations, and what the configuration says about the key. It charges nothing. See polylimit_admin_query.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_explain(
    limiter: *const polylimit_limiter,
    request: *const polylimit_request,
    report_out: *mut *mut polylimit_report,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    let query = polylimit_query { operation: POLYLIMIT_EXPLAIN, request, ..NOTHING };
    // SAFETY: the caller guarantees what polylimit_admin_query needs.
    unsafe { ask(limiter, &query, report_out, error_buffer, error_capacity) }
}

/// Explains why a request would be admitted or denied by the policy document: its lists, the rules that match, and what each of their policies
/// says. It charges nothing. See polylimit_admin_query.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_explain_request(
    limiter: *const polylimit_limiter,
    attributes: *const polylimit_attributes,
    report_out: *mut *mut polylimit_report,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    let query = polylimit_query { operation: POLYLIMIT_EXPLAIN_REQUEST, attributes, ..NOTHING };
    // SAFETY: the caller guarantees what polylimit_admin_query needs.
    unsafe { ask(limiter, &query, report_out, error_buffer, error_capacity) }
}

/// Asks a query that nothing stops.
///
/// # Safety
/// As for polylimit_admin_query.
unsafe fn ask(
    limiter: *const polylimit_limiter,
    query: &polylimit_query,
    report_out: *mut *mut polylimit_report,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees it.
    unsafe { polylimit_admin_query(limiter, query, ptr::null(), report_out, error_buffer, error_capacity) }
}

const NOTHING: polylimit_query = polylimit_query {
    size: polylimit_query::MIN_SIZE,
    operation: 0,
    options: ptr::null(),
    most: 0,
    request: ptr::null(),
    attributes: ptr::null(),
};

/// Returns the keys that this limiter has denied and admitted most often in this process lately, at most `most` of each. It needs the option
/// `observe_keys`; without, there are none. No store is asked. The report is freed by polylimit_report_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_top_keys(
    limiter: *const polylimit_limiter,
    most: u64,
    report_out: *mut *mut polylimit_report,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter and an out-parameter.
        let (limiter, report_out) =
            unsafe { (handle(limiter, "limiter")?, out_param(report_out, "report_out")?) };
        let top = limiter.limiter.asynchronous().admin().top_keys(as_many(most));
        *report_out = polylimit_report::with(report_json(&top));
        Ok(())
    })
}
