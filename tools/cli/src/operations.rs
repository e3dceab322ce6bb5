//! The operations on one key: check, peek, take, charge and refund.

use polylimit::admin::KeyName;
use polylimit::blocking::Limiter;
use polylimit::decision::{Degradation, QuotaUsage, QuotaVerdict, Source, Usage};
use polylimit::{Decision, Error, Policy, Request};
use serde::Serialize;

use crate::arguments::{GlobalOptions, RequestArguments};
use crate::exit::{Exit, Failure};
use crate::output::{duration, key_name};
use crate::terminal::Terminal;

/// A decision or a usage as JSON, with the request.
#[derive(Serialize)]
struct AnswerReport<'a, A> {
    policy: &'a str,
    #[serde(flatten)]
    key: KeyName,
    cost: u64,
    #[serde(flatten)]
    answer: &'a A,
}

/// What decisions and usages have in common.
pub(crate) trait State {
    fn source(&self) -> Source;
    fn degraded(&self) -> Option<Degradation>;
    fn quotas(&self) -> &[QuotaUsage];
    /// Each quota's verdict; none for a usage.
    fn verdicts(&self) -> Vec<QuotaVerdict>;
}

macro_rules! state {
    ($($type:ty, $verdicts:expr;)+) => {$(
        impl State for $type {
            fn verdicts(&self) -> Vec<QuotaVerdict> {
                $verdicts(self)
            }

            fn source(&self) -> Source {
                self.source()
            }

            fn degraded(&self) -> Option<Degradation> {
                self.degraded()
            }

            fn quotas(&self) -> &[QuotaUsage] {
                self.quotas()
            }
        }
    )+};
}

state! {
    Decision, |decision: &Decision| decision.verdicts().collect();
    Usage, |_: &Usage| Vec::new();
}

pub(crate) fn check(
    options: &GlobalOptions,
    arguments: &RequestArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    decide(options, arguments, terminal, |limiter, request| limiter.check(request))
}

pub(crate) fn peek(
    options: &GlobalOptions,
    arguments: &RequestArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    decide(options, arguments, terminal, |limiter, request| limiter.peek(request))
}

pub(crate) fn take(
    options: &GlobalOptions,
    arguments: &RequestArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let (usage, exit) = spend(options, arguments, terminal, true, |limiter, request| limiter.take(request))?;
    Ok(if exit == Exit::Fine && usage.taken() < arguments.cost { Exit::Problem } else { exit })
}

pub(crate) fn charge(
    options: &GlobalOptions,
    arguments: &RequestArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    Ok(spend(options, arguments, terminal, false, |limiter, request| limiter.charge(request))?.1)
}

pub(crate) fn refund(
    options: &GlobalOptions,
    arguments: &RequestArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    Ok(spend(options, arguments, terminal, false, |limiter, request| limiter.refund(request))?.1)
}

fn decide(
    options: &GlobalOptions,
    arguments: &RequestArguments,
    terminal: &mut Terminal,
    operation: impl for<'a> FnOnce(&Limiter, Request<'a>) -> Result<Decision, Error>,
) -> Result<Exit, Failure> {
    let (limiter, policy) = options.limiter_for(&arguments.policy)?;
    let decision = operation(&limiter, request(arguments, &policy))?;
    if options.json {
        terminal.json(&report(arguments, &policy, &decision))?;
    } else {
        show_verdict(&decision, terminal)?;
        show_state(&decision, &policy, terminal)?;
    }
    let answered = if decision.allowed() { Exit::Fine } else { Exit::Problem };
    Ok(exit_of(&decision, answered, terminal))
}

fn spend(
    options: &GlobalOptions,
    arguments: &RequestArguments,
    terminal: &mut Terminal,
    tells_taken: bool,
    operation: impl for<'a> FnOnce(&Limiter, Request<'a>) -> Result<Usage, Error>,
) -> Result<(Usage, Exit), Failure> {
    let (limiter, policy) = options.limiter_for(&arguments.policy)?;
    let usage = operation(&limiter, request(arguments, &policy))?;
    if options.json {
        terminal.json(&report(arguments, &policy, &usage))?;
    } else {
        if tells_taken {
            terminal.line(format_args!("took {} of {}", usage.taken(), arguments.cost))?;
        }
        show_state(&usage, &policy, terminal)?;
    }
    let exit = exit_of(&usage, Exit::Fine, terminal);
    Ok((usage, exit))
}

fn request<'a>(arguments: &'a RequestArguments, policy: &'a Policy) -> Request<'a> {
    Request::new(arguments.key.as_encoded_bytes()).policy(policy.name()).cost(arguments.cost)
}

fn report<'a, A: Serialize>(
    arguments: &RequestArguments,
    policy: &'a Policy,
    answer: &'a A,
) -> AnswerReport<'a, A> {
    AnswerReport { policy: policy.name(), key: key_name(&arguments.key), cost: arguments.cost, answer }
}

fn show_verdict(decision: &Decision, terminal: &mut Terminal) -> Result<(), Failure> {
    let (word, colour) = if decision.allowed() { ("allowed", 32) } else { ("denied", 31) };
    let mut line =
        if terminal.colours_output() { format!("\u{1b}[{colour}m{word}\u{1b}[0m") } else { word.to_owned() };
    if let Some(cause) = decision.cause() {
        line = format!("{line} ({})", cause.name());
    }
    for (holds, note) in [(decision.elastic(), ", by the pool"), (decision.shadowed(), ", in shadow")] {
        line += if holds { note } else { "" };
    }
    match decision.retry_after_us() {
        Some(0) => {}
        Some(us) => line = format!("{line}, again in {}", duration(us)),
        None => line += ", no wait helps",
    }
    if decision.delay_us() > 0 {
        line = format!("{line}, its turn comes in {}", duration(decision.delay_us()));
    }
    // Nothing in it comes from elsewhere, and the colour is to be seen.
    terminal.write(format!("{line}\n").as_bytes())
}

/// What is left of each quota.
pub(crate) fn show_state(
    state: &impl State,
    policy: &Policy,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let texts: Vec<String> = policy.quotas().iter().map(ToString::to_string).collect();
    let has_own_numbers = texts.len() != state.quotas().len()
        || policy.quotas().iter().zip(state.quotas()).any(|(quota, usage)| quota.limit() != usage.limit);
    let verdicts = state.verdicts();
    for (at, usage) in state.quotas().iter().enumerate() {
        // A key with a plan or an override has other quotas than its policy.
        let name = texts.get(at).filter(|_| !has_own_numbers).map_or("quota", String::as_str);
        let over = if usage.over > 0 { format!(", {} over the limit", usage.over) } else { String::new() };
        terminal.line(format_args!(
            "  {name}: {} of {} left{over}, all in {}{}",
            usage.remaining,
            usage.limit,
            duration(usage.reset_after_us),
            // With a single quota it is clear which one denies.
            if verdicts.len() > 1 && !verdicts[at].allowed { ": denies" } else { "" }
        ))?;
    }
    if !matches!(state.source(), Source::Store) {
        terminal.line(format_args!("  source: {}", state.source().name()))?;
    }
    Ok(())
}

/// The exit status of an answer, and a message where it is not the store's.
pub(crate) fn exit_of(state: &impl State, answered: Exit, terminal: &mut Terminal) -> Exit {
    let reason = state.degraded().map_or("unknown", Degradation::name);
    if state.source().is_outage() {
        terminal.complain(&format!(
            "the store has not decided ({reason}), the outage policy {} has: `polylimit doctor` examines the store",
            state.source().name()
        ));
        return if state.degraded() == Some(Degradation::Auth) { Exit::NoRight } else { Exit::Undecided };
    }
    if state.degraded().is_some() {
        terminal.complain(&format!("the answer is degraded: {reason}"));
    }
    answered
}
