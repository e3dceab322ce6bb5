//! The guard in direct calls: one call decides about a request and returns all that a middleware needs.
//!
//! A check is an object in this library only while it has to be one: while several guards of a request share their charges,
//! and while the program is asked about an outage. Otherwise the language has what the guard knows, the facts and the
//! decisions, and hands them back for the operations after the decision.
//!
//! | operation | number | target | arguments | answer |
//! |---|---:|---|---|---|
//! | decide | 32 | guard | facts, the outer check | a reply |
//! | continue | 33 | check that was submitted and has its answer | | a reply |
//! | overrule | 34 | check | `u8`: 0 denies, 1 admits, 2 leaves it to the outage policy | a reply |
//! | finish | 35 | check, or 0 | whether the response counts (`u8`); without a check facts and decisions | fields, outcomes |
//! | outcomes | 36 | check, or 0 | without a check facts and decisions | outcomes |
//! | release | 37 | check | | |
//! | applies to | 38 | guard | the method of a request (text), the method that a preflight asks about (text or none) | `u8` |
//! | end | 39 | check that holds | what was spent | |
//! | read head | 50 | check that holds | a list of names and values (texts) of the response | whether its body has to be read (`u8`) |
//! | read body | 51 | check that holds | the next part of the body (bytes) | |
//!
//! - **Facts:** the guard (`u64`), whether there is a cost (`u8`), cost (`i64`), key (bytes or none), the peer (text), `accept`
//!   (text or none), the parts of the key (list of bytes or none), the lines of the header of proxies (list of bytes),
//!   whether the request has its own policies (`u8`), these (list of texts), its route (text or none), the costs of single policies (list of
//!   policies (text) and units (`i64`)), and for a guard that decides by the configuration of its limiter the attributes of the request, as in
//!   `direct/configured.rs`.
//! - **What was spent:** `u8` 0 for what was reserved; 1 and the units under all policies (`i64`); 2 and a list of policies (text), each with whether
//!   its units are known (`u8`) and these (`i64`).
//! - **Outer check:** `u8` 0 for none; 1 and its address (`u64`); 2, its facts and its decisions.
//! - **Decisions:** a list.
//! - **Reply:** `u8` [`REPLY`]; `u8` 0 admitted, 1 denied, 2 outage, 3 admitted by a check that holds reservations; this check (`u64`)
//!   and the outer one (`u64`), 0 where it is no object; the guard's decisions; the fields; for a denial the status (`u32`), the detail (text), the exceeded quotas (list
//!   of texts), the response's own fields and its body (text); for an outage the error (list of none or one: code and message).
//!   What is an address is released by *finish*, *end* or *release*, once. A check that holds is not released by *finish*; *end* ends
//!   its reservations in the background, as *release* does without units. A check that was submitted has both addresses in place
//!   of an answer, and *continue*, *overrule* and *finish* return none.
//! - **Refunds** of a denial, or of a response that does not count, and further calls of a *decide* that reserves, are waited for as
//!   the header says. A call that has submitted one has the check's address in place of an answer, if it had none before, and *continue* goes on. A *decide* that
//!   may only try, and has made some of its calls but not all, does the same.
//! - **Fields:** a list of names and values (texts).
//! - **Outcomes:** a list of names of policies, their quotas (texts) and decisions.

use std::cell::Cell;
use std::sync::Arc;

use polylimit::http::guard::{RequestLimits, Spent};
use polylimit::http::headers::{HeaderField, Problem, ProblemResponse};
use polylimit::raw::{Answer, Call};
use polylimit::{Decision, Error, Limiter, Policy};

use crate::direct::configured;
use crate::direct::layout::{Header, Reader, SUBMIT, TRY, WAIT, Writer, malformed};
use crate::direct::queue::{Queue, Receiver, Then};
use crate::direct::{Outcome, object, shared};
use crate::error::Result;
use crate::guard::{Ask, Conclusion, Facts, Guard, GuardCheck, Settled};
use crate::request::quotas_text;
use crate::reserve_options::spent_of;

const REPLY: u8 = 16;
const OUTCOMES: u8 = 17;

const ADMITTED: u8 = 0;
const DENIED: u8 = 1;
const OUTAGE: u8 = 2;
const HOLDS: u8 = 3;

/// What a guard says.
pub(super) enum Reply {
    Verdict { kept: Kept, holds: bool, decisions: Vec<(Policy, Decision)>, conclusion: Conclusion },
    Outcomes { fields: Vec<HeaderField>, outcomes: Vec<(Policy, Decision)> },
}

/// A check and the one around it, where the language gets their addresses.
#[derive(Default)]
pub(super) struct Kept {
    check: Option<Arc<GuardCheck>>,
    outer: Option<Arc<GuardCheck>>,
}

/// # Safety
/// `target` is one of the operation, and so are the addresses in the arguments.
pub(super) unsafe fn perform(target: u64, header: &Header, reader: &mut Reader<'_>) -> Result<Outcome> {
    // SAFETY: the caller guarantees all of them.
    unsafe {
        match header.operation {
            32 => decide(header, reader),
            33 => {
                let check = shared::<GuardCheck>(target)?;
                let unanswered = Cell::new(Asked::HasToWait);
                let settled = check.outage_or_conclusion(asking(header, &check, &unanswered))?;
                if matches!(settled, Some(Settled::Ended(_))) && !check.holds_reservations() {
                    drop(released(target)?);
                }
                Ok(reply(&check, Kept::default(), settled, unanswered.into_inner()))
            }
            34 => {
                let check = shared::<GuardCheck>(target)?;
                let admit = reader.u8()?;
                let admit = (admit < 2).then_some(admit == 1);
                let unanswered = Cell::new(Asked::HasToWait);
                let settled = check.conclude_with(admit, asking(header, &check, &unanswered))?;
                Ok(reply(&check, Kept::default(), settled, unanswered.into_inner()))
            }
            35 => {
                let counts = reader.u8()? != 0;
                let check = if target == 0 { restore(reader)? } else { shared(target)? };
                let unanswered = Cell::new(Asked::HasToWait);
                let settled = check.respond(counts, asking(header, &check, &unanswered))?;
                if settled.is_some() && target != 0 && !check.holds_reservations() {
                    drop(released(target)?);
                }
                let kept = Kept { check: (target == 0).then(|| Arc::clone(&check)), outer: None };
                Ok(reply(&check, kept, settled, unanswered.into_inner()))
            }
            36 => {
                let check = if target == 0 { restore(reader)? } else { shared(target)? };
                Ok(Outcome::Guard(Reply::Outcomes { fields: Vec::new(), outcomes: check.all_outcomes() }))
            }
            37 => {
                drop(released(target)?);
                Ok(Outcome::Nothing)
            }
            39 => {
                let check = released(target)?;
                match reader.u8()? {
                    0 => check.end_in_background(Spent::Reserved)?,
                    1 => check.end_in_background(spent_of(Some(reader.i64()?))?.into())?,
                    _ => {
                        let each = reader.list(|reader| {
                            let (policy, is_known) = (reader.text()?.unwrap_or_default(), reader.u8()? != 0);
                            let units = reader.i64()?;
                            Ok((policy, is_known.then_some(units)))
                        })?;
                        check.end_in_background(Spent::Each(&check.by_policy().spent(each)?))?;
                    }
                }
                Ok(Outcome::Nothing)
            }
            50 => {
                let fields = reader.list(|reader| {
                    Ok((reader.text()?.unwrap_or_default(), reader.bytes()?.unwrap_or_default()))
                })?;
                Ok(Outcome::Flag(shared::<GuardCheck>(target)?.take_head(fields)))
            }
            51 => {
                shared::<GuardCheck>(target)?.take_body(reader.bytes()?.unwrap_or_default());
                Ok(Outcome::Nothing)
            }
            _ => {
                let method = reader.text()?.ok_or_else(|| malformed("its method is missing"))?;
                let requested_method = reader.text()?;
                Ok(Outcome::Flag(object::<Guard>(target)?.core().applies_to(method, requested_method)))
            }
        }
    }
}

/// The check at an address, which the caller uses no more.
///
/// # Safety
/// It is the address of a check, and is given back once.
unsafe fn released(target: u64) -> Result<Arc<GuardCheck>> {
    // SAFETY: the caller guarantees it.
    Ok(unsafe { Arc::from_raw(std::ptr::from_ref(object::<GuardCheck>(target)?)) })
}

/// # Safety
/// The addresses in the arguments are those of guards and checks.
unsafe fn facts<'a>(reader: &mut Reader<'a>) -> Result<(&'a Guard, Facts<'a>)> {
    // SAFETY: the caller guarantees it.
    let guard = unsafe { object::<Guard>(reader.u64()?) }?;
    let (has_cost, cost) = (reader.u8()? != 0, reader.i64()?);
    let (key, peer, accept) = (reader.bytes()?, reader.text()?.unwrap_or_default(), reader.text()?);
    let parts = reader.list(Reader::bytes)?;
    let forwarded = reader.list(|reader| Ok(reader.bytes()?.unwrap_or_default()))?;
    let has_policies = reader.u8()? != 0;
    let policies = reader.list(|reader| Ok(reader.text()?.unwrap_or_default()))?;
    let route = reader.text()?;
    let costs = reader.list(|reader| Ok((reader.text()?.unwrap_or_default(), reader.i64()?)))?;
    let (cost, policies) = (has_cost.then_some(cost), has_policies.then_some(policies));
    let attributes =
        guard.core().is_by_configuration().then(|| configured::attributes(reader)).transpose()?;
    Ok((guard, Facts { key, parts, peer, forwarded, cost, policies, accept, route, attributes, costs }))
}

/// A check that was decided before, from its facts and its decisions.
///
/// # Safety
/// As for [`facts`].
unsafe fn restore(reader: &mut Reader<'_>) -> Result<Arc<GuardCheck>> {
    // SAFETY: the caller guarantees it.
    let (guard, facts) = unsafe { facts(reader) }?;
    let decisions = reader.list(Reader::decision)?;
    let check = guard.start(&RequestLimits::default(), facts)?;
    check.answer(Ok(decisions));
    check.conclude_again();
    Ok(check)
}

/// # Safety
/// As for [`facts`].
unsafe fn decide(header: &Header, reader: &mut Reader<'_>) -> Result<Outcome> {
    // SAFETY: the caller guarantees it.
    let (guard, facts) = unsafe { facts(reader) }?;
    // SAFETY: the caller guarantees it.
    let (outer, is_restored) = match reader.u8()? {
        0 => (None, false),
        1 => (Some(unsafe { shared::<GuardCheck>(reader.u64()?) }?), false),
        // A check whose limiter was closed in between has nothing to share.
        _ => (unsafe { restore(reader) }.ok(), true),
    };
    let limits = outer.as_ref().map_or_else(RequestLimits::default, |outer| outer.limits());
    let check = guard.start(&limits, facts)?;
    let is_nested = outer.is_some();
    let mut kept =
        Kept { check: is_nested.then(|| Arc::clone(&check)), outer: outer.filter(|_| is_restored) };
    // A denial refunds what the outer guards have spent, which waits for the store.
    let limiter = guard.core().limiter();
    let may_try = header.waits & TRY != 0 && (!is_nested || limiter.raw().never_waits());
    let (unanswered, is_begun) = (Cell::new(Asked::HasToWait), Cell::new(false));
    let settled = check.outage_or_conclusion(|limiter: &Limiter, call: &Call<'_>| {
        match ask(header, limiter, call, &check, may_try) {
            Ok(Asked::Answered(answer)) => {
                is_begun.set(true);
                Some(answer)
            }
            Ok(other) => {
                unanswered.set(other);
                None
            }
            Err(_) => None,
        }
    })?;
    let mut unanswered = unanswered.into_inner();
    if settled.is_none() && matches!(unanswered, Asked::HasToWait) {
        if !is_begun.get() {
            return Ok(Outcome::HasToWait);
        }
        // What it has done is not done again.
        unanswered = Asked::Submitted;
    }
    // Without decisions, facts do not say how it was concluded, nor do those of a configuration.
    if matches!(settled, None | Some(Settled::Concluded(Conclusion::Outage(_))))
        || check.own_outcomes().is_empty()
        || guard.core().is_by_configuration()
        || check.holds_reservations()
    {
        kept.check = Some(Arc::clone(&check));
    }
    Ok(reply(&check, kept, settled, unanswered))
}

/// Asks the limiter in the way that the header allows.
fn ask(
    header: &Header,
    limiter: &Limiter,
    call: &Call<'_>,
    check: &Arc<GuardCheck>,
    may_try: bool,
) -> Result<Asked> {
    if may_try && let Some(answer) = limiter.raw().try_call(call) {
        return Ok(Asked::Answered(answer));
    }
    if header.waits & WAIT != 0 {
        return Ok(Asked::Answered(limiter.blocking().raw().call(call)));
    }
    if header.waits & SUBMIT == 0 {
        return Ok(Asked::HasToWait);
    }
    // SAFETY: the header names a queue that its owner has not closed.
    let queue = unsafe { object::<Queue>(header.queue) }?;
    let receiver: Arc<dyn Receiver> = Arc::<GuardCheck>::clone(check);
    let answer = queue.submit(limiter, call, header.tag, Then::Receive(receiver));
    Ok(answer.map_or(Asked::Submitted, Asked::Answered))
}

/// Makes calls in the way that the header allows, and keeps what became of one without an answer.
fn asking(header: &Header, check: &Arc<GuardCheck>, unanswered: &Cell<Asked>) -> impl Ask {
    move |limiter: &Limiter, call: &Call<'_>| match ask(header, limiter, call, check, header.waits & TRY != 0)
    {
        Ok(Asked::Answered(answer)) => Some(answer),
        Ok(other) => {
            unanswered.set(other);
            None
        }
        Err(_) => None,
    }
}

/// What became of a question to the limiter.
enum Asked {
    Answered(std::result::Result<Answer, Error>),
    Submitted,
    HasToWait,
}

impl Receiver for GuardCheck {
    fn receive(&self, answer: std::result::Result<Answer, Error>) {
        self.answer_call(answer);
    }
}

/// The reply, or why there is none yet.
fn reply(check: &GuardCheck, kept: Kept, settled: Option<Settled>, unanswered: Asked) -> Outcome {
    match settled {
        Some(Settled::Concluded(conclusion)) => Outcome::Guard(Reply::Verdict {
            kept,
            holds: check.holds_reservations(),
            decisions: check.own_outcomes(),
            conclusion,
        }),
        Some(Settled::Ended(fields)) => {
            Outcome::Guard(Reply::Outcomes { fields, outcomes: check.all_outcomes() })
        }
        None if matches!(unanswered, Asked::HasToWait) => Outcome::HasToWait,
        None => Outcome::Pending(kept.addresses()),
    }
}

impl Kept {
    fn addresses(self) -> [u64; 2] {
        [self.check, self.outer].map(|check| {
            check.map_or(0, |check: Arc<GuardCheck>| Arc::into_raw(check).expose_provenance() as u64)
        })
    }
}

impl Reply {
    pub(super) fn write(self, writer: &mut Writer<'_>) {
        let (kept, holds, decisions, conclusion) = match self {
            Self::Verdict { kept, holds, decisions, conclusion } => (kept, holds, decisions, conclusion),
            Self::Outcomes { fields, outcomes } => {
                writer.u8(OUTCOMES);
                write_fields(&fields, writer);
                writer.count(outcomes.len());
                for (policy, decision) in &outcomes {
                    writer.text(policy.name());
                    writer.text(&quotas_text(policy));
                    writer.decision(decision);
                }
                return;
            }
        };
        writer.u8(REPLY);
        writer.u8(match conclusion {
            Conclusion::Admitted(_) if holds => HOLDS,
            Conclusion::Admitted(_) => ADMITTED,
            Conclusion::Denied(..) => DENIED,
            Conclusion::Outage(_) => OUTAGE,
        });
        for address in kept.addresses() {
            writer.u64(address);
        }
        writer.count(decisions.len());
        for (_, decision) in &decisions {
            writer.decision(decision);
        }
        match &conclusion {
            Conclusion::Admitted(fields) => write_fields(fields, writer),
            Conclusion::Denied(fields, problem, response) => {
                write_fields(fields, writer);
                write_problem(problem, response, writer);
            }
            Conclusion::Outage(error) => {
                writer.count(0);
                writer.count(error.iter().len());
                if let Some(error) = error {
                    writer.text(error.kind().code());
                    writer.text(&error.to_string());
                }
            }
        }
    }
}

pub(super) fn write_fields(fields: &[HeaderField], writer: &mut Writer<'_>) {
    writer.count(fields.len());
    for field in fields {
        writer.text(&field.name);
        writer.text(&field.value);
    }
}

/// The same problem is always the same bytes, by which a language may recognise it.
pub(super) fn write_problem(problem: &Problem, response: &ProblemResponse, writer: &mut Writer<'_>) {
    writer.u32(response.status.into());
    writer.text(problem.detail());
    writer.count(problem.violated().len());
    for name in problem.violated() {
        writer.text(name);
    }
    write_fields(&response.fields, writer);
    writer.text(&response.body);
}
