//! What a connection has said about itself, and the commands that are about the connection: `AUTH`, `HELLO`, `CLIENT`, `SELECT`, `PING`,
//! `COMMAND`, `INFO` and `QUIT`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::access::{Identity, Role, TokenDigest};
use crate::app::{App, Refusal};
use crate::caller::Caller;
use crate::counters::Rejection;
use crate::endpoint::Protocol;
use crate::resp::reply::Replies;
use crate::resp::transaction::Transaction;

/// The commands of the server, for `COMMAND COUNT`.
const COMMANDS: i64 = 21;

pub(crate) struct Session {
    id: u64,
    caller: Caller,
    /// What `AUTH` has given, which says more than a certificate.
    token: Option<TokenDigest>,
    is_resp3: bool,
    name: Vec<u8>,
    /// The commands since `MULTI`.
    pub(super) transaction: Option<Transaction>,
    has_failed: bool,
}

/// What follows from a command about the connection.
pub(crate) enum Told {
    /// The command is another one.
    NotMine,
    Answered,
    Ends,
}

impl Session {
    pub(crate) fn new(caller: Caller) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Self {
            id,
            caller,
            token: None,
            is_resp3: false,
            name: Vec::new(),
            transaction: None,
            has_failed: false,
        }
    }

    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.caller.identity.as_ref()
    }

    /// Finds out again who the client is, when the table of callers was read again meanwhile: its token may have been revoked.
    pub(crate) fn recognize(&mut self, app: &App) {
        let generation = app.generation();
        if self.caller.generation == generation {
            return;
        }
        match &self.token {
            Some(token) => {
                self.caller.identity = app.by_token(token);
                self.caller.generation = generation;
            }
            None => app.recognize(&mut self.caller),
        }
    }

    /// The identity and the address of the client.
    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Whether a sign-in has failed since the last call.
    pub(super) fn take_failed_sign_in(&mut self) -> bool {
        std::mem::take(&mut self.has_failed)
    }

    /// Whether replies are written in RESP3.
    pub(crate) fn is_resp3(&self) -> bool {
        self.is_resp3
    }

    /// Refuses a command that the caller may not give.
    pub(crate) fn allows(&self, app: &App, needs: Role) -> Result<(), String> {
        app.allows(self.identity(), needs).map_err(|refusal| match refusal {
            Refusal::Unauthenticated => {
                app.counters.rejected(Protocol::Resp, Rejection::Unauthenticated);
                "NOAUTH Authentication required.".to_owned()
            }
            Refusal::Forbidden { has, needs } => {
                app.counters.rejected(Protocol::Resp, Rejection::Forbidden);
                format!("NOPERM the caller has the role {}, and this needs {}", has.name(), needs.name())
            }
        })
    }

    /// Answers a command that is about the connection.
    pub(crate) fn answer(&mut self, app: &App, name: &[u8], rest: &[&[u8]], replies: &mut Replies) -> Told {
        match name {
            b"PING" => match rest {
                [] => replies.simple("PONG"),
                [text] => replies.bulk(text),
                _ => wrong_number(name, replies),
            },
            b"ECHO" => match rest {
                [text] => replies.bulk(text),
                _ => wrong_number(name, replies),
            },
            b"TIME" if rest.is_empty() => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                replies.array(2);
                replies.bulk(now.as_secs().to_string().as_bytes());
                replies.bulk(now.subsec_micros().to_string().as_bytes());
            }
            b"RESET" if rest.is_empty() => {
                let (certificate, generation) = (self.caller.certificate.clone(), 0);
                (self.token, self.is_resp3, self.transaction) = (None, false, None);
                self.name.clear();
                self.caller = Caller { certificate, generation, identity: None, ..self.caller.clone() };
                app.recognize(&mut self.caller);
                replies.set_resp3(false);
                replies.simple("RESET");
            }
            b"QUIT" => {
                replies.simple("OK");
                return Told::Ends;
            }
            b"AUTH" => match rest {
                [token] | [_, token] => match self.authenticate(app, token) {
                    Ok(()) => replies.simple("OK"),
                    Err(refused) => replies.error(refused),
                },
                _ => wrong_number(name, replies),
            },
            b"HELLO" => self.hello(app, rest, replies),
            b"SELECT" => match rest {
                [b"0"] => replies.simple("OK"),
                [_] => replies.error("ERR DB index is out of range: there is only 0"),
                _ => wrong_number(name, replies),
            },
            b"CLIENT" => self.client(rest, replies),
            b"COMMAND" => match rest.first().map(|word| word.to_ascii_uppercase()).as_deref() {
                Some(b"COUNT") => replies.integer(COMMANDS),
                Some(b"DOCS") => replies.map(0),
                _ => replies.array(0),
            },
            b"INFO" => {
                if let Err(refused) = self.allows(app, Role::Check) {
                    replies.error(&refused);
                } else {
                    replies.bulk(info(app).as_bytes());
                }
            }
            _ => return Told::NotMine,
        }
        Told::Answered
    }

    fn authenticate(&mut self, app: &App, token: &[u8]) -> Result<(), &'static str> {
        if !app.authenticates() {
            return Err("ERR AUTH was sent, and this server asks for no token: leave it out");
        }
        let generation = app.generation();
        let token = TokenDigest::of(token);
        let identity = app.by_token(&token).ok_or_else(|| {
            app.counters.rejected(Protocol::Resp, Rejection::Unauthenticated);
            app.note_failed_sign_in("resp", &self.caller);
            self.has_failed = true;
            "WRONGPASS invalid username-password pair or user is disabled."
        })?;
        (self.caller.identity, self.caller.generation) = (Some(identity), generation);
        self.token = Some(token);
        Ok(())
    }

    /// `HELLO [2|3 [AUTH name token] [SETNAME name]]`
    fn hello(&mut self, app: &App, rest: &[&[u8]], replies: &mut Replies) {
        let (mut is_resp3, mut rest) = (self.is_resp3, rest);
        if let [version, options @ ..] = rest {
            is_resp3 = match *version {
                b"2" => false,
                b"3" => true,
                _ => return replies.error("NOPROTO unsupported protocol version"),
            };
            rest = options;
        }
        while let [option, more @ ..] = rest {
            rest = match (option.to_ascii_uppercase().as_slice(), more) {
                (b"AUTH", [_, token, more @ ..]) => {
                    if let Err(refused) = self.authenticate(app, token) {
                        return replies.error(refused);
                    }
                    more
                }
                (b"SETNAME", [name, more @ ..]) => {
                    self.set_name(name);
                    more
                }
                _ => {
                    return replies
                        .error("ERR Syntax error in HELLO: allowed are AUTH NAME TOKEN and SETNAME NAME");
                }
            };
        }
        if app.needs_token(self.identity()) {
            return replies
                .error("NOAUTH HELLO must be called with the client already authenticated, or with AUTH");
        }
        self.is_resp3 = is_resp3;
        replies.set_resp3(is_resp3);
        replies.map(7);
        for (name, value) in [
            ("server", "polylimit"),
            ("version", env!("CARGO_PKG_VERSION")),
            ("mode", "standalone"),
            ("role", "master"),
        ] {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
        replies.bulk(b"proto");
        replies.integer(if is_resp3 { 3 } else { 2 });
        replies.bulk(b"id");
        replies.units(self.id);
        replies.bulk(b"modules");
        replies.array(0);
    }

    fn client(&mut self, rest: &[&[u8]], replies: &mut Replies) {
        let word = rest.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
        match (word.as_slice(), rest.get(1..).unwrap_or_default()) {
            (b"SETNAME", [name]) => {
                self.set_name(name);
                replies.simple("OK");
            }
            (b"GETNAME", []) => replies.bulk(&self.name),
            (b"ID", []) => replies.units(self.id),
            (b"SETINFO", [_, _]) => replies.simple("OK"),
            _ => replies.error("ERR CLIENT has only SETNAME, GETNAME, ID and SETINFO here"),
        }
    }

    /// A name has at most 64 bytes here.
    fn set_name(&mut self, name: &[u8]) {
        self.name = name[..name.len().min(64)].to_vec();
    }
}

pub(crate) fn wrong_number(name: &[u8], replies: &mut Replies) {
    replies.error(&wrong_number_text(name));
}

pub(crate) fn wrong_number_text(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    format!("ERR wrong number of arguments for '{name}' command")
}

fn info(app: &App) -> String {
    let keys = app.limiter.admin().keys().map_or_else(String::new, |keys| format!("keys:{keys}\r\n"));
    let version = app.limiter.admin().configuration().map_or(0, |status| status.version);
    format!(
        "# Server\r\nserver_name:polylimit\r\npolylimit_version:{}\r\n# Limits\r\npolicies:{}\r\nconfiguration_version:{version}\r\n{keys}",
        env!("CARGO_PKG_VERSION"),
        app.limiter.policies().len(),
    )
}
