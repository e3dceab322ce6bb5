//! What the commands of one read ask for, in their order: neighbouring checks go to the limiter together.

use std::sync::Arc;
use std::time::Instant;

use polylimit::{Answer, Call, Request};
use smallvec::SmallVec;

use crate::access::Role;
use crate::app::App;
use crate::counters::Rejection;
use crate::endpoint::Protocol;
use crate::resp::reply::Replies;
use crate::resp::session::{Session, Told, wrong_number};
use crate::resp::throttle;

/// The commands of one read.
#[derive(Default)]
pub(crate) struct Plan<'a> {
    steps: Vec<Step<'a>>,
}

enum Step<'a> {
    /// A reply that is there already.
    Reply(Replies),
    /// The following replies are in RESP3.
    Version(bool),
    Ask(Asked<'a>),
}

/// An operation on a key.
struct Asked<'a> {
    operation: Operation,
    policy: Arc<str>,
    key: &'a [u8],
    cost: u64,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Check,
    Peek,
    Take,
    Charge,
    Refund,
    Reset,
}

/// How an answer is written.
#[derive(Clone, Copy)]
enum Form {
    Own,
    /// As redis-cell does, with the limit that it tells.
    Throttle(u64),
}

impl Operation {
    fn named(name: &[u8]) -> Option<Self> {
        Some(match name.strip_prefix(b"POLYLIMIT.")? {
            b"CHECK" => Self::Check,
            b"PEEK" => Self::Peek,
            b"TAKE" => Self::Take,
            b"CHARGE" => Self::Charge,
            b"REFUND" => Self::Refund,
            b"RESET" => Self::Reset,
            _ => return None,
        })
    }

    fn needs(self) -> Role {
        if self == Self::Reset { Role::Admin } else { Role::Check }
    }
}

impl<'a> Asked<'a> {
    fn request(&self) -> Request<'_> {
        Request::new(self.key).policy(&self.policy).cost(self.cost)
    }

    fn call(&self) -> Call<'_> {
        let request = self.request();
        match self.operation {
            Operation::Check => Call::Check(request),
            Operation::Peek => Call::Peek(request),
            Operation::Take => Call::Take(request),
            Operation::Charge => Call::Charge(request),
            Operation::Refund => Call::Refund(request),
            Operation::Reset => Call::Reset(request),
        }
    }

    /// `CL.THROTTLE`
    fn of_throttle(app: &App, session: &Session, rest: &[&'a [u8]]) -> Result<Self, String> {
        let command = throttle::read(rest)?;
        check_length(app, command.key)?;
        let policy = app.one_off.throttle(&app.limiter, command.throttle, session.identity());
        let policy = policy.map_err(|error| format!("Cell error: {error}"))?;
        let operation = match command.quantity {
            ..0 => Operation::Refund,
            0 => Operation::Peek,
            1.. => Operation::Check,
        };
        let (key, cost, form) =
            (command.key, command.quantity.unsigned_abs(), Form::Throttle(command.limit()));
        Ok(Self { operation, policy, key, cost, form })
    }

    /// `POLYLIMIT.<operation> policy key [cost]`
    fn of_own(
        app: &App,
        session: &Session,
        operation: Operation,
        policy: &[u8],
        key: &'a [u8],
        cost: Option<&[u8]>,
    ) -> Result<Self, String> {
        check_length(app, key)?;
        check_length(app, policy)?;
        let policy =
            std::str::from_utf8(policy).map_err(|_| "INVALID_ARGUMENT the policy is not text in UTF-8")?;
        let one_off = app.one_off.resolve(&app.limiter, policy, session.identity());
        let one_off = one_off.map_err(|error| format!("INVALID_ARGUMENT {error}"))?;
        let policy = one_off.unwrap_or_else(|| policy.into());
        let cost = match cost.map(|cost| std::str::from_utf8(cost).ok().and_then(|cost| cost.parse().ok())) {
            None => 1,
            Some(Some(cost)) => cost,
            Some(None) => {
                return Err(format!(
                    "INVALID_ARGUMENT the cost cannot be read: allowed is 0 to {} units",
                    Request::MAX_COST
                ));
            }
        };
        Ok(Self { operation, policy, key, cost, form: Form::Own })
    }
}

fn check_length(app: &App, bytes: &[u8]) -> Result<(), String> {
    let most = app.options.limits.key;
    if bytes.len() <= most {
        return Ok(());
    }
    app.counters.rejected(Protocol::Resp, Rejection::TooLarge);
    Err(format!("INVALID_ARGUMENT a key or a policy has {} bytes: allowed are up to {most}", bytes.len()))
}

impl<'a> Plan<'a> {
    /// Adds a command, and returns whether the connection ends with it.
    pub(crate) fn add(&mut self, app: &App, session: &mut Session, arguments: &[&'a [u8]]) -> bool {
        let [name, rest @ ..] = arguments else { return false };
        let name: SmallVec<[u8; 32]> = name.iter().map(u8::to_ascii_uppercase).collect();
        let was_resp3 = session.is_resp3();
        let mut reply = Replies::default();
        reply.set_resp3(was_resp3);
        match session.answer(app, &name, rest, &mut reply) {
            Told::NotMine => {}
            told => {
                self.steps.push(Step::Reply(reply));
                if session.is_resp3() != was_resp3 {
                    self.steps.push(Step::Version(session.is_resp3()));
                }
                return matches!(told, Told::Ends);
            }
        }
        let asked = match (Operation::named(&name), rest) {
            _ if name[..] == *b"CL.THROTTLE" => {
                session.allows(app, Role::Check).and_then(|()| Asked::of_throttle(app, session, rest))
            }
            (Some(operation), [policy, key, cost @ ..]) if cost.len() <= 1 => session
                .allows(app, operation.needs())
                .and_then(|()| Asked::of_own(app, session, operation, policy, key, cost.first().copied())),
            (Some(_), _) => {
                wrong_number(&name, &mut reply);
                self.steps.push(Step::Reply(reply));
                return false;
            }
            (None, _) => Err(unknown(&name)),
        };
        match asked {
            Ok(asked) => self.steps.push(Step::Ask(asked)),
            Err(refused) => self.fail(&refused),
        }
        false
    }

    /// Adds an error.
    pub(crate) fn fail(&mut self, text: &str) {
        let mut reply = Replies::default();
        reply.error(text);
        self.steps.push(Step::Reply(reply));
    }

    /// Asks the limiter, and writes all replies.
    pub(crate) async fn perform(self, app: &App, replies: &mut Replies) {
        let since = Instant::now();
        let mut steps = &self.steps[..];
        while let [first, later @ ..] = steps {
            match first {
                Step::Reply(reply) => replies.append(reply),
                Step::Version(is_resp3) => replies.set_resp3(*is_resp3),
                Step::Ask(asked) if asked.operation == Operation::Check => {
                    steps = check(app, steps, replies).await;
                    continue;
                }
                Step::Ask(asked) => match app.limiter.call(&asked.call()).await {
                    Ok(answer) => write(asked, &answer, replies),
                    Err(error) => replies.failure(&error),
                },
            }
            steps = later;
        }
        let failed = replies.take_failed();
        let all = self.steps.iter().filter(|step| !matches!(step, Step::Version(_))).count() as u64;
        app.counters.replied(all.saturating_sub(failed), failed, since.elapsed());
    }
}

/// Decides the checks at the beginning of these steps, and returns the steps after them.
async fn check<'s, 'a>(app: &App, steps: &'s [Step<'a>], replies: &mut Replies) -> &'s [Step<'a>] {
    let is_check = |step: &&Step<'_>| matches!(step, Step::Ask(asked) if asked.operation == Operation::Check);
    let checks = steps.iter().take_while(is_check).count();
    let (checks, later) = steps.split_at(checks);
    let asked = || {
        checks.iter().filter_map(|step| match step {
            Step::Ask(asked) => Some(asked),
            _ => None,
        })
    };
    let decisions = app.limiter.check_many(asked().map(Asked::request)).await;
    for (asked, decided) in asked().zip(decisions) {
        match decided {
            Ok(decision) => write(asked, &Answer::Decision(decision), replies),
            Err(error) => replies.failure(&error),
        }
    }
    later
}

fn write(asked: &Asked<'_>, answer: &Answer, replies: &mut Replies) {
    match (answer, asked.form) {
        (Answer::Decision(decision), Form::Own) => replies.decision(decision),
        (Answer::Decision(decision), Form::Throttle(limit)) => throttle::write(limit, decision, replies),
        (Answer::Usage(usage), Form::Own) => replies.usage(usage),
        (Answer::Usage(usage), Form::Throttle(limit)) => throttle::write_usage(limit, usage, replies),
        _ => replies.error("INTERNAL the answer is of another kind"),
    }
}

fn unknown(name: &[u8]) -> String {
    let shown: String = String::from_utf8_lossy(name).chars().take(40).collect();
    format!(
        "ERR unknown command '{shown}': allowed are CL.THROTTLE, POLYLIMIT.CHECK, PEEK, TAKE, CHARGE, REFUND and RESET, PING, AUTH, \
         HELLO, CLIENT, SELECT, COMMAND, INFO and QUIT"
    )
}
