//! What a configuration knows without a store: which policies its rules apply to a request, and how candidates have compared.

use std::ffi::{CString, c_char, c_void};

use crate::arguments::{Sized32, handle, out_param, sized_out, text};
use crate::attributes::{polylimit_attributes, request_attributes};
use crate::configuration::c_text;
use crate::error::{Failure, MessageBuffer, guard_or, guard_unit, polylimit_status};
use crate::limiter::polylimit_limiter;

/// The policies that a configuration's rules apply to a request. Freed by polylimit_matches_free.
pub struct polylimit_matches {
    matches: Vec<Match>,
}

struct Match {
    policy: CString,
    key: Vec<u8>,
    cost: u64,
    headroom: u8,
}

/// A policy that a configuration's rules apply to a request.
#[repr(C)]
pub struct polylimit_match {
    /// sizeof(polylimit_match), set by the caller.
    pub size: u32,
    /// The percent of each quota's capacity that is left for others.
    pub headroom: u32,
    /// The units that the request spends.
    pub cost: u64,
    /// The name of the policy; valid until the matches are freed.
    pub policy: *const c_char,
    /// The key under the policy: any bytes; valid until the matches are freed.
    pub key: *const c_void,
    /// The length of the key in bytes.
    pub key_length: usize,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_match {
    const NAME: &'static str = "match";
    const MIN_SIZE: u32 = 40;
}

/// Finds the policies that the configuration's rules apply to a request; nothing is asked of a store, and nothing is spent.
/// POLYLIMIT_INVALID_ARGUMENT for a limiter without a configuration, and when an attribute that gives a cost holds none. The matches
/// are freed by polylimit_matches_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_matching(
    limiter: *const polylimit_limiter,
    attributes: *const polylimit_attributes,
    matches_out: *mut *mut polylimit_matches,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter, attributes and an out-parameter.
        let (limiter, request, matches_out) = unsafe {
            (
                handle(limiter, "limiter")?,
                request_attributes(attributes)?,
                out_param(matches_out, "matches_out")?,
            )
        };
        let found = limiter.limiter.asynchronous().admin().matching(&request)?;
        let matches = found.into_iter().map(|found| Match {
            policy: c_text(&found.policy),
            key: found.key,
            cost: found.cost,
            headroom: found.headroom,
        });
        *matches_out = Box::into_raw(Box::new(polylimit_matches { matches: matches.collect() }));
        Ok(())
    })
}

/// The number of matches; 0 when `matches` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_matches_count(matches: *const polylimit_matches) -> usize {
    // SAFETY: the caller guarantees matches, or NULL.
    guard_or(0, || unsafe { matches.as_ref() }.map_or(0, |matches| matches.matches.len()))
}

/// Writes the match at an index from 0, in the order of the rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_matches_at(
    matches: *const polylimit_matches,
    index: usize,
    match_out: *mut polylimit_match,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees matches and a match.
        let (matches, match_out) = unsafe { (handle(matches, "matches")?, sized_out(match_out)?) };
        let matches = &matches.matches;
        let found = matches.get(index).ok_or_else(|| out_of_range(index, matches.len()))?;
        match_out.headroom = found.headroom.into();
        match_out.cost = found.cost;
        match_out.policy = found.policy.as_ptr();
        match_out.key = found.key.as_ptr().cast();
        match_out.key_length = found.key.len();
        Ok(())
    })
}

/// Frees matches. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_matches_free(matches: *mut polylimit_matches) {
    guard_or((), || {
        if !matches.is_null() {
            // SAFETY: the caller guarantees matches that no thread uses any more.
            drop(unsafe { Box::from_raw(matches) });
        }
    });
}

/// How the candidate of a policy compares with the effective quotas: checks since the quotas of either changed.
#[repr(C)]
pub struct polylimit_candidate_counts {
    /// sizeof(polylimit_candidate_counts), set by the caller.
    pub size: u32,
    /// 1 when the policy has a candidate, otherwise 0, and all counts are 0.
    pub has_candidate: u32,
    /// Both admit.
    pub both_allow: u64,
    /// The effective quotas deny what the candidate admits.
    pub only_live_denies: u64,
    /// The candidate denies what the effective quotas admit.
    pub only_candidate_denies: u64,
    /// Both deny.
    pub both_deny: u64,
}

// SAFETY: the first field is the size.
unsafe impl Sized32 for polylimit_candidate_counts {
    const NAME: &'static str = "counts";
    const MIN_SIZE: u32 = 40;
}

/// Writes how the candidate of a policy has compared with its quotas in this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polylimit_admin_candidate_counts(
    limiter: *const polylimit_limiter,
    policy: *const c_char,
    counts_out: *mut polylimit_candidate_counts,
    error_buffer: *mut c_char,
    error_capacity: usize,
) -> polylimit_status {
    // SAFETY: the caller guarantees the buffer.
    guard_unit(unsafe { MessageBuffer::new(error_buffer, error_capacity) }, || {
        // SAFETY: the caller guarantees a limiter, a text and counts.
        let (limiter, policy, counts_out) =
            unsafe { (handle(limiter, "limiter")?, text(policy, "policy")?, sized_out(counts_out)?) };
        let counts = limiter.limiter.asynchronous().admin().candidate_counts(policy);
        counts_out.has_candidate = counts.is_some().into();
        let counts = counts.unwrap_or_default();
        counts_out.both_allow = counts.both_allow;
        counts_out.only_live_denies = counts.only_live_denies;
        counts_out.only_candidate_denies = counts.only_candidate_denies;
        counts_out.both_deny = counts.both_deny;
        Ok(())
    })
}

pub(crate) fn out_of_range(index: usize, count: usize) -> Failure {
    Failure::invalid(format!("index is {index}: there are {count}, from 0"))
}
