//! A child process that never outlives the test.
//!
//! On drop it is killed and reaped. For a test process that is itself killed, the kernel kills the child: setpriv(1)
//! asks for that before it turns into the server. The kernel takes the death of the *thread* that made the child for its
//! parent's, and the test harness has a thread a test; so one thread, which lives as long as the process, makes them all.
//! Only Linux can do that; elsewhere such a child lives on.

use std::fs::{self, File};
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

type Order = (Command, Sender<io::Result<Child>>);

fn maker() -> &'static Sender<Order> {
    static MAKER: OnceLock<Sender<Order>> = OnceLock::new();
    MAKER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        thread::Builder::new()
            .name("server-maker".into())
            .spawn(move || {
                for (mut command, reply) in inbox {
                    drop(reply.send(command.spawn()));
                }
            })
            .expect("a thread");
        orders
    })
}

#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts `program`; what it prints goes to `log`.
    pub(crate) fn start(
        program: &str,
        arguments: &[String],
        environment: &[(&str, String)],
        log: File,
    ) -> Self {
        let mut command = if cfg!(target_os = "linux") {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--", program]);
            command
        } else {
            Command::new(program)
        };
        command.args(arguments);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stderr(log.try_clone().expect("a second handle")).stdout(log);
        let (reply, answer) = channel();
        maker().send((command, reply)).expect("the maker lives as long as the process");
        let child = answer.recv().expect("the maker answers every order");
        Self(child.unwrap_or_else(|error| panic!("setpriv cannot be run ({error}): run tests/setup")))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("the state of our own child")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("our own child takes signals");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Also ends a stopped process; an error says that it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
        // A process with another clock leaves these when it is killed; most have none.
        for file in ["faketime_shm_", "sem.faketime_sem_"] {
            drop(fs::remove_file(format!("/dev/shm/{file}{}", self.0.id())));
        }
    }
}
