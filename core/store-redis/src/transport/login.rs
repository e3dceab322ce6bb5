//! Changing credentials: read from a file, a program or the user's function for every new connection, and again when the server refuses
//! them.
//!
//! Reading may block, so it has its own thread, and one read runs at a time: attempts to connect wait for the same result, each for no
//! longer than it may take. Refused credentials are not sent again and again, since servers respond to that by locking users out.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::target::{ChangingCredentials, CredentialsSource};
use crate::transport::cause::ConnectError;
use crate::transport::failure::Failure;
use polylimit_rules::decision::Degradation;
use polylimit_runtime::{backoff, monotonic};
use polylimit_store::credentials::{Credentials, Secret};

/// The pause after credentials were refused or could not be read; it doubles with each time in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// How long credentials that were read too late for any waiting attempt are kept for the next one.
const KEPT: Duration = Duration::from_secs(10);
/// How long a program may take, and how often it is polled.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const MAX_BYTES: u64 = 16_384;
/// The maximum number of characters of the user's function's message that are shown.
const MAX_LETTERS: usize = 200;

type Found = Result<Arc<Credentials>, String>;

#[derive(Debug)]
pub(crate) struct Login {
    changing: ChangingCredentials,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The last result; `None` before the first.
    found: watch::Sender<Option<Found>>,
}

#[derive(Debug, Default)]
struct State {
    is_reading: bool,
    /// How many attempts wait for the result.
    waiting: usize,
    /// A result that no attempt has waited for, and when it was read.
    unused: Option<(Instant, Found)>,
    refused: Option<Refused>,
}

/// What went wrong since credentials were last accepted.
#[derive(Debug)]
struct Refused {
    /// `None` if they could not be read.
    credentials: Option<Arc<Credentials>>,
    cause: String,
    times: u32,
    until: Instant,
}

impl Login {
    pub(crate) fn new(changing: ChangingCredentials) -> Self {
        Self { changing, shared: Arc::default() }
    }

    pub(crate) fn after_fork(&self) -> Self {
        Self::new(self.changing.clone())
    }

    /// Reads the credentials for a new connection; an error while they are known to be refused.
    pub(crate) async fn credentials(&self, longest: Duration) -> Result<Arc<Credentials>, ConnectError> {
        // A file costs little, and its new content is used at once.
        let is_cheap = matches!(self.changing.source, CredentialsSource::File(_));
        if !is_cheap && let Some(cause) = self.refused_cause(None) {
            return Err(unusable(cause));
        }
        let Ok(found) = tokio::time::timeout(longest, self.read()).await else {
            let cause = format!("{} has not given the password yet: it is waited for", self.name());
            return Err(unusable(cause));
        };
        let credentials = found.map_err(|error| {
            let cause = format!("{} gives no password: {error}", self.name());
            self.pause(None, cause.clone());
            unusable(cause)
        })?;
        match self.refused_cause(Some(&credentials)) {
            Some(cause) => Err(unusable(cause)),
            None => Ok(credentials),
        }
    }

    /// The server has refused these credentials: reads them again, and returns the new ones if they differ.
    pub(crate) async fn others_than(
        &self,
        refused: &Arc<Credentials>,
        longest: Duration,
    ) -> Result<Arc<Credentials>, ConnectError> {
        let found = tokio::time::timeout(longest, self.read()).await;
        if let Ok(Ok(others)) = found
            && others != *refused
        {
            return Ok(others);
        }
        let cause = format!("it refuses the user or the password that {} gives", self.name());
        self.pause(Some(Arc::clone(refused)), cause.clone());
        Err(unusable(cause))
    }

    pub(crate) fn accepted(&self) {
        self.shared.state.lock().refused = None;
    }

    fn pause(&self, credentials: Option<Arc<Credentials>>, cause: String) {
        let mut state = self.shared.state.lock();
        let times = state.refused.as_ref().map_or(0, |refused| refused.times.saturating_add(1));
        let longest = FIRST_PAUSE.saturating_mul(1 << times.min(10)).min(MAX_PAUSE);
        let until = monotonic::now() + longest / 2 + backoff::part_of(longest / 2);
        state.refused = Some(Refused { credentials, cause, times, until });
    }

    /// Why nothing may be sent to the server now: a pause for these credentials; with `None`, for any.
    fn refused_cause(&self, credentials: Option<&Arc<Credentials>>) -> Option<String> {
        let state = self.shared.state.lock();
        let refused = state.refused.as_ref().filter(|refused| monotonic::now() < refused.until)?;
        let is_meant = credentials.is_none() || credentials == refused.credentials.as_ref();
        is_meant.then(|| refused.cause.clone())
    }

    /// The source as operators know it.
    fn name(&self) -> String {
        let option = self.changing.option;
        match &self.changing.source {
            CredentialsSource::File(path) => format!("{option} {}", path.display()),
            CredentialsSource::Program(_) => format!("the program of {option}"),
            CredentialsSource::Function(_) => format!("the function {option}"),
        }
    }

    async fn read(&self) -> Found {
        let mut found = self.shared.found.subscribe();
        {
            let mut state = self.shared.state.lock();
            if let Some((at, unused)) = state.unused.take()
                && monotonic::now().saturating_duration_since(at) < KEPT
            {
                return unused;
            }
            if !state.is_reading {
                let (shared, changing) = (Arc::clone(&self.shared), self.changing.clone());
                let read = move || shared.take(read(&changing));
                let thread = thread::Builder::new().name("polylimit-login".to_owned());
                thread.spawn(read).map_err(|error| format!("the system gives no thread ({error})"))?;
                state.is_reading = true;
            }
            state.waiting += 1;
        }
        let _waiting = Waiting(&self.shared);
        let nothing = || Err("it has ended".to_owned());
        match found.changed().await {
            Ok(()) => found.borrow().clone().unwrap_or_else(nothing),
            Err(_) => nothing(),
        }
    }
}

/// Counts an attempt that waits for a result.
struct Waiting<'a>(&'a Shared);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

impl Shared {
    fn take(&self, found: Result<Credentials, String>) {
        let found = found.map(Arc::new);
        let mut state = self.state.lock();
        state.is_reading = false;
        if state.waiting == 0 {
            state.unused = Some((monotonic::now(), found.clone()));
        }
        self.found.send_replace(Some(found));
    }
}

fn unusable(cause: String) -> ConnectError {
    ConnectError { failure: Failure::permanent(Degradation::Auth), cause: Some(cause) }
}

/// Reads the source, which may block.
fn read(changing: &ChangingCredentials) -> Result<Credentials, String> {
    let password = match &changing.source {
        CredentialsSource::File(path) => read_file(path)?,
        CredentialsSource::Program(command) => run(command)?,
        CredentialsSource::Function(function) => {
            return function.call().map_err(|message| shown(&message)).and_then(checked);
        }
    };
    let password = password.strip_suffix('\n').unwrap_or(&password);
    let password = password.strip_suffix('\r').unwrap_or(password);
    let password = Secret::from(Box::from(password));
    checked(Credentials { username: changing.username.clone(), password })
}

/// The user's message, shortened, and escaped for a terminal.
fn shown(message: &str) -> String {
    let mut shown = String::new();
    for letter in message.chars().take(MAX_LETTERS) {
        match letter {
            '"' | '\'' => shown.push(letter),
            letter => shown.extend(letter.escape_debug()),
        }
    }
    shown
}

fn checked(credentials: Credentials) -> Result<Credentials, String> {
    match credentials.password.reveal().len() as u64 {
        0 => Err("it is empty".to_owned()),
        1..=MAX_BYTES => Ok(credentials),
        length => Err(format!("it has {length} bytes: allowed are up to {MAX_BYTES}")),
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let opened = std::fs::File::open(path);
    read_text(opened.map_err(|error| format!("the file cannot be read ({error})"))?)
}

/// Reads one byte more than the maximum, so that longer texts are refused and not cut.
fn read_text(from: impl Read) -> Result<String, String> {
    let (mut bytes, mut bounded) = (Vec::new(), from.take(MAX_BYTES + 3));
    bounded.read_to_end(&mut bytes).map_err(|error| format!("it cannot be read ({error})"))?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

/// Runs a program, without a shell, and returns its output.
fn run(command: &str) -> Result<String, String> {
    let mut words = command.split_ascii_whitespace();
    let program = words.next().unwrap_or_default();
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("it cannot be started ({error})"))?;
    let until = monotonic::now() + PROGRAM_TIMEOUT;
    // A password fits into the pipe: the program can end before its output is read.
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if monotonic::now() < until => thread::sleep(LOOK_EVERY),
            ended => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(match ended {
                    Err(error) => format!("it cannot be waited for ({error})"),
                    _ => format!("it has not ended within {} s", PROGRAM_TIMEOUT.as_secs()),
                });
            }
        }
    };
    if !status.success() {
        return Err(format!("it has ended with {status}"));
    }
    child.stdout.take().map_or_else(|| Ok(String::new()), read_text)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;

    use super::*;
    use polylimit_store::credentials::CredentialsFunction;

    const LONG: Duration = Duration::from_secs(30);

    fn changing(source: CredentialsSource) -> ChangingCredentials {
        let username = Some(Secret::from(Box::from("limits")));
        ChangingCredentials { option: "password_file", source, username }
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn password_is_the_content_of_a_file_or_the_output_of_a_program() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let source = CredentialsSource::File(file.path().into());
        assert_eq!(read(&changing(source.clone())), Err("it is empty".to_owned()));
        std::io::Write::write_all(&mut file, b" s3cret\r\n").unwrap();
        let expected = Ok(Credentials::new(Some("limits"), " s3cret"));
        assert_eq!(read(&changing(source)), expected);
        let program = |command: &str| read(&changing(CredentialsSource::Program(command.into())));
        assert_eq!(program("echo a  b"), Ok(Credentials::new(Some("limits"), "a b")));
        for (command, message) in [
            ("false", "it has ended with exit status: 1"),
            ("true", "it is empty"),
            ("/nowhere/program", "it cannot be started (No such file or directory (os error 2))"),
            ("head -c 20000 /dev/zero", "it has 16387 bytes: allowed are up to 16384"),
        ] {
            assert_eq!(program(command), Err(message.to_owned()), "{command}");
        }
        let nowhere = read(&changing(CredentialsSource::File("/nowhere/file".into())));
        assert_eq!(
            nowhere,
            Err("the file cannot be read (No such file or directory (os error 2))".to_owned())
        );
    }

    #[test]
    fn slow_function_is_called_once_and_its_result_is_used_by_a_later_attempt() {
        let (release, released) = channel();
        let (calls, released) = (Arc::new(AtomicU32::new(0)), Mutex::new(released));
        let counted = Arc::clone(&calls);
        let function = CredentialsFunction::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            released.lock().recv().unwrap();
            Ok(Credentials::new(None, "late"))
        });
        let login = Login::new(changing(CredentialsSource::Function(function)));
        runtime().block_on(async {
            for _ in 0..3 {
                let error = login.credentials(Duration::from_millis(1)).await.unwrap_err();
                assert!(error.cause().contains("has not given the password yet"), "{error:?}");
            }
            release.send(()).unwrap();
            assert_eq!(*login.credentials(LONG).await.unwrap(), Credentials::new(None, "late"));
        });
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn refused_password_is_not_sent_again_at_once_and_another_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "old").unwrap();
        let login = Login::new(changing(CredentialsSource::File(file.path().into())));
        runtime().block_on(async {
            let old = login.credentials(LONG).await.unwrap();
            assert!(login.others_than(&old, LONG).await.is_err());
            let error = login.credentials(LONG).await.unwrap_err();
            assert_eq!(error.failure, Failure::permanent(Degradation::Auth));
            assert!(
                error.cause().contains("refuses the user or the password that password_file"),
                "{error:?}"
            );
            std::fs::write(file.path(), "new").unwrap();
            assert_eq!(*login.credentials(LONG).await.unwrap(), Credentials::new(Some("limits"), "new"));
            assert_eq!(
                *login.others_than(&old, LONG).await.unwrap(),
                Credentials::new(Some("limits"), "new")
            );
            login.accepted();
            std::fs::write(file.path(), "old").unwrap();
            assert_eq!(*login.credentials(LONG).await.unwrap(), *old);
        });
    }

    #[test]
    fn message_of_a_function_is_cut_and_safe_for_a_terminal() {
        assert_eq!(shown("it's \"away\"\n\u{1b}[31m"), "it's \"away\"\\n\\u{1b}[31m");
        assert_eq!(shown(&"a".repeat(1_000)).len(), MAX_LETTERS);
    }

    #[test]
    fn function_that_fails_is_not_called_again_at_once() {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let function = CredentialsFunction::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Err("no token".to_owned())
        });
        let login = Login::new(changing(CredentialsSource::Function(function)));
        runtime().block_on(async {
            for _ in 0..2 {
                let error = login.credentials(LONG).await.unwrap_err();
                assert!(error.cause().contains("gives no password: no token"), "{error:?}");
            }
        });
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
