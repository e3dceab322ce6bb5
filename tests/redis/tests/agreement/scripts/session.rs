//! Calls of a policy's script over a connection of the test's own.

use polylimit::testing::script::{Item, Operation, Outcome, Read, Script};
use polylimit::{Policy, Request, blocking};
use polylimit_test_servers::Server;
use polylimit_test_servers::redis::{Client, Connection, ConnectionLike, Value};

pub(super) fn connect(server: &Server) -> Connection {
    Client::open(server.url()).unwrap().get_connection().unwrap()
}

pub(super) struct Session<'a> {
    connection: &'a mut Connection,
    pub(super) script: Script,
    nonce: u64,
    /// The number of entries with a malformed state.
    pub(super) healed: usize,
}

impl<'a> Session<'a> {
    pub(super) fn new(connection: &'a mut Connection, policy: &Policy) -> Self {
        Self { connection, script: Script::new(policy), nonce: 0, healed: 0 }
    }

    /// Calls the script, by its source if the server does not know it, and returns the bytes of the reply.
    pub(super) fn call(
        &mut self,
        nonce: [u8; 6],
        deadline_us: u64,
        manual_now_us: Option<u64>,
        items: &[Item<'_>],
    ) -> Vec<u8> {
        let [by_hash, by_source] = self.script.commands(nonce, deadline_us, manual_now_us, items);
        let value = match self.connection.req_packed_command(&by_hash).unwrap() {
            Value::ServerError(error) if error.code() == "NOSCRIPT" => {
                self.connection.req_packed_command(&by_source).unwrap()
            }
            value => value,
        };
        match value {
            Value::BulkString(bytes) => bytes,
            other => panic!("not a reply: {other:?}"),
        }
    }

    /// The outcome of each check and other operation, and the time by which the script decided.
    pub(super) fn run(&mut self, manual_now_us: Option<u64>, items: &[Item<'_>]) -> (u64, Vec<Outcome>) {
        self.nonce += 1;
        let nonce = self.nonce.to_be_bytes().last_chunk().copied().unwrap();
        let reply = self.call(nonce, 0, manual_now_us, items);
        let Read::Decided { now_us, outcomes, healed } = self.script.read(&reply, nonce, items) else {
            panic!("not a reply: {reply:?}")
        };
        assert!(manual_now_us.is_none_or(|manual| manual == now_us));
        self.healed += healed;
        (now_us, outcomes)
    }
}

/// The answer of the memory store.
pub(super) fn ask(memory: &blocking::Limiter, request: Request<'_>, operation: Operation) -> Outcome {
    match operation {
        Operation::Check => Outcome::Decision(memory.check(request).unwrap()),
        Operation::Peek => Outcome::Decision(memory.peek(request).unwrap()),
        Operation::Take => Outcome::Usage(memory.take(request).unwrap()),
        Operation::Charge => Outcome::Usage(memory.charge(request).unwrap()),
        Operation::Refund => Outcome::Usage(memory.refund(request).unwrap()),
        Operation::Reset => Outcome::Usage(memory.reset(request).unwrap()),
    }
}
