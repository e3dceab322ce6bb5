//! What the commands of one read ask for, in their order: neighbouring checks go to the limiter together.

use std::time::Instant;

use polylimit::raw::Answer;
use smallvec::SmallVec;

use crate::access::Role;
use crate::app::App;
use crate::caller::Caller;
use crate::resp::asked::{Asked, Form, Operation};
use crate::resp::reply::Replies;
use crate::resp::session::{Session, Told, wrong_number, wrong_number_text};
use crate::resp::throttle;
use crate::resp::transaction::{Queued, Transaction};

/// The commands of one read.
#[derive(Default)]
pub(crate) struct Plan<'a> {
    steps: Vec<Step<'a>>,
}

enum Step<'a> {
    /// A reply that is there already.
    Reply(Replies),
    /// The next n replies are the elements of one array.
    Together(usize),
    /// The following replies are in RESP3.
    Version(bool),
    Ask(Asked<'a>),
}

impl<'a> Plan<'a> {
    /// Adds a command, and returns whether the connection ends with it.
    pub(crate) fn add(&mut self, app: &App, session: &mut Session, arguments: &[&'a [u8]]) -> bool {
        let [name, rest @ ..] = arguments else { return false };
        let name: SmallVec<[u8; 32]> = name.iter().map(u8::to_ascii_uppercase).collect();
        match (&name[..], rest) {
            (b"MULTI" | b"EXEC" | b"DISCARD", [_, ..]) => {
                self.reply(session, |reply| wrong_number(&name, reply));
            }
            (b"MULTI", []) if session.transaction.is_some() => self.fail("ERR MULTI calls can not be nested"),
            (b"MULTI", []) => {
                session.transaction = Some(Transaction::default());
                self.reply(session, |reply| reply.simple("OK"));
            }
            (b"EXEC" | b"DISCARD", []) => match (session.transaction.take(), &name[..]) {
                (None, b"EXEC") => self.fail("ERR EXEC without MULTI"),
                (None, _) => self.fail("ERR DISCARD without MULTI"),
                (Some(transaction), b"EXEC") => self.execute(app, session, transaction),
                (Some(_), _) => self.reply(session, |reply| reply.simple("OK")),
            },
            (b"QUIT" | b"RESET", _) => return self.perform_now(app, session, &name, rest),
            _ if session.transaction.is_some() => self.queue(app, session, &name, rest),
            _ => return self.perform_now(app, session, &name, rest),
        }
        false
    }

    fn perform_now(&mut self, app: &App, session: &mut Session, name: &[u8], rest: &[&'a [u8]]) -> bool {
        let was_resp3 = session.is_resp3();
        let mut reply = Replies::default();
        reply.set_resp3(was_resp3);
        match session.answer(app, name, rest, &mut reply) {
            Told::NotMine => {}
            told => {
                self.steps.push(Step::Reply(reply));
                if session.is_resp3() != was_resp3 {
                    self.steps.push(Step::Version(session.is_resp3()));
                }
                return matches!(told, Told::Ends);
            }
        }
        match read(app, session, name, rest) {
            Ok(asked) => self.steps.push(Step::Ask(asked)),
            Err(refused) => self.fail(&refused),
        }
        false
    }

    /// Keeps a command until `EXEC`. One that cannot be carried out has the whole transaction refused, as in Redis.
    fn queue(&mut self, app: &App, session: &mut Session, name: &[u8], rest: &[&'a [u8]]) {
        let queued = match name {
            b"PING" | b"ECHO" | b"TIME" | b"SELECT" | b"CLIENT" | b"COMMAND" | b"INFO" => {
                Ok(Queued::Session(name.to_vec(), rest.iter().map(|part| part.to_vec()).collect()))
            }
            b"AUTH" | b"HELLO" => Err("ERR Command not allowed inside a transaction".to_owned()),
            _ => read(app, session, name, rest).map(|asked| Queued::Ask(asked.into_owned())),
        };
        let Some(transaction) = &mut session.transaction else { return };
        let bytes = name.len() + rest.iter().map(|part| part.len()).sum::<usize>();
        match queued.and_then(|queued| transaction.add(app, queued, bytes)) {
            Ok(()) => self.reply(session, |reply| reply.simple("QUEUED")),
            Err(refused) => {
                transaction.is_refused = true;
                self.fail(&refused);
            }
        }
    }

    fn execute(&mut self, app: &App, session: &mut Session, transaction: Transaction) {
        if transaction.is_refused {
            return self.fail("EXECABORT Transaction discarded because of previous errors.");
        }
        let queued = transaction.into_queued();
        self.steps.push(Step::Together(queued.len()));
        for command in queued {
            match command {
                Queued::Ask(asked) => self.steps.push(Step::Ask(asked)),
                Queued::Session(name, rest) => {
                    let rest: Vec<&[u8]> = rest.iter().map(Vec::as_slice).collect();
                    let mut reply = Replies::default();
                    reply.set_resp3(session.is_resp3());
                    let _ = session.answer(app, &name, &rest, &mut reply);
                    self.steps.push(Step::Reply(reply));
                }
            }
        }
    }

    fn reply(&mut self, session: &Session, write: impl FnOnce(&mut Replies)) {
        let mut reply = Replies::default();
        reply.set_resp3(session.is_resp3());
        write(&mut reply);
        self.steps.push(Step::Reply(reply));
    }

    /// Adds an error.
    pub(crate) fn fail(&mut self, text: &str) {
        let mut reply = Replies::default();
        reply.error(text);
        self.steps.push(Step::Reply(reply));
    }

    /// Asks the limiter, and writes all replies.
    pub(crate) async fn perform(self, app: &App, caller: &Caller, replies: &mut Replies) {
        let since = Instant::now();
        let mut steps = &self.steps[..];
        while let [first, later @ ..] = steps {
            match first {
                Step::Reply(reply) => replies.append(reply),
                Step::Together(count) => replies.array(*count),
                Step::Version(is_resp3) => replies.set_resp3(*is_resp3),
                Step::Ask(asked) if asked.operation == Operation::Check => {
                    steps = check(app, steps, replies).await;
                    continue;
                }
                Step::Ask(asked) => match app.limiter.raw().call(&asked.call()).await {
                    Ok(answer) => {
                        asked.note(app, caller);
                        write(asked, &answer, replies);
                    }
                    Err(error) => replies.failure(&error),
                },
            }
            steps = later;
        }
        let failed = replies.take_failed();
        let all =
            self.steps.iter().filter(|step| matches!(step, Step::Reply(_) | Step::Ask(_))).count() as u64;
        app.counters.replied(all.saturating_sub(failed), failed, since.elapsed());
    }
}

/// What a command about a key asks for.
fn read<'a>(app: &App, session: &Session, name: &[u8], rest: &[&'a [u8]]) -> Result<Asked<'a>, String> {
    match (Operation::named(name), rest) {
        _ if *name == *b"CL.THROTTLE" => {
            session.allows(app, Role::Check)?;
            Asked::of_throttle(app, session.identity(), rest)
        }
        (Some(operation), [policy, key, cost @ ..]) if cost.len() <= 1 => {
            session.allows(app, operation.needs())?;
            Asked::of_own(app, session.identity(), operation, policy, key, cost.first().copied())
        }
        (Some(_), _) => Err(wrong_number_text(name)),
        (None, _) => Err(unknown(name)),
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
        "ERR unknown command '{shown}': allowed are CL.THROTTLE, POLYLIMIT.CHECK, PEEK, TAKE, CHARGE, REFUND and RESET, PING, \
         ECHO, AUTH, HELLO, CLIENT, SELECT, TIME, COMMAND, INFO, MULTI, EXEC, DISCARD, RESET and QUIT"
    )
}
