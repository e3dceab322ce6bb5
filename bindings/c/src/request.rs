//! What is asked, as a struct: for batches and for the non-blocking face.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use polylimit::{Call, Request};

use crate::failure::Failure;
use crate::pointer::{Sized32, bytes};
use crate::text::optional_text;

/// Decides, and spends the cost from every quota of the policy when all admit it.
pub const POLYLIMIT_CHECK: u32 = 1;
/// The decision that a check would give now; leaves no trace.
pub const POLYLIMIT_PEEK: u32 = 2;
/// Spends as much of the cost as every quota admits.
pub const POLYLIMIT_TAKE: u32 = 3;
/// Spends the cost whether it fits or not, up to 8 times the capacity.
pub const POLYLIMIT_CHARGE: u32 = 4;
/// Gives back up to what is used.
pub const POLYLIMIT_REFUND: u32 = 5;
/// Forgets the key; the cost does not matter.
pub const POLYLIMIT_RESET: u32 = 6;
/// Waits until admitted, for at most `timeout_us`.
pub const POLYLIMIT_ACQUIRE: u32 = 7;
/// Waits until the store answers, for at most `timeout_us`; policy, key and cost do not matter.
pub const POLYLIMIT_READY: u32 = 8;

/// One operation on one key.
#[repr(C)]
pub struct polylimit_request {
    /// sizeof(polylimit_request), set by the caller.
    pub size: u32,
    /// One of POLYLIMIT_CHECK to POLYLIMIT_READY.
    pub operation: u32,
    /// The name of a policy of the limiter, or quotas as text such as "100/minute; 1000/hour"; NULL where the limiter has
    /// one policy. Ends with a NUL.
    pub policy: *const c_char,
    /// Whom or what the policy is applied to: any bytes. May be NULL when there are none.
    pub key: *const c_void,
    /// How many bytes the key has: 0 to 1 MiB.
    pub key_length: usize,
    /// The units that the request spends: 0 to 10^12. A cost of 0 is always allowed and leaves no trace.
    pub cost: u64,
    /// How long to wait at most, in microseconds; only of POLYLIMIT_ACQUIRE and POLYLIMIT_READY.
    pub timeout_us: u64,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_request {
    const NAME: &'static str = "request";
    const FIRST: u32 = 48;
}

/// A key, its policy and its cost, as the core takes them.
///
/// # Safety
/// `policy` is NULL or a text that ends with a NUL; `key` is NULL or points at `key_length` bytes. Both stay as they are
/// while the request is used.
#[inline]
pub(crate) unsafe fn request<'a>(
    policy: *const c_char,
    key: *const c_void,
    key_length: usize,
    cost: u64,
) -> Result<Request<'a>, Failure> {
    // SAFETY: as promised by the caller.
    let (key, policy) = unsafe { (bytes(key.cast(), key_length, "key")?, optional_text(policy, "policy")?) };
    let request = Request::new(key).cost(cost);
    Ok(match policy {
        Some(policy) => request.policy(policy),
        None => request,
    })
}

impl polylimit_request {
    /// # Safety
    /// As [`request`], for the fields of this.
    pub(crate) unsafe fn request<'a>(&self) -> Result<Request<'a>, Failure> {
        // SAFETY: as promised by the caller.
        unsafe { request(self.policy, self.key, self.key_length, self.cost) }
    }

    /// The operation, as the core takes it.
    ///
    /// # Safety
    /// As [`request`], for the fields of this.
    pub(crate) unsafe fn call<'a>(&self) -> Result<Call<'a>, Failure> {
        let timeout = Duration::from_micros(self.timeout_us);
        if self.operation == POLYLIMIT_READY {
            return Ok(Call::Ready(timeout));
        }
        // SAFETY: as promised by the caller.
        let request = unsafe { self.request() }?;
        Ok(match self.operation {
            POLYLIMIT_CHECK => Call::Check(request),
            POLYLIMIT_PEEK => Call::Peek(request),
            POLYLIMIT_TAKE => Call::Take(request),
            POLYLIMIT_CHARGE => Call::Charge(request),
            POLYLIMIT_REFUND => Call::Refund(request),
            POLYLIMIT_RESET => Call::Reset(request),
            POLYLIMIT_ACQUIRE => Call::Acquire(request, timeout),
            other => {
                return Err(Failure::invalid(format!(
                    "operation {other} is not known: allowed are {POLYLIMIT_CHECK} to {POLYLIMIT_READY}"
                )));
            }
        })
    }
}
