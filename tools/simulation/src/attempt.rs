//! Requests on their way, and where they come from.

/// A request, or a repetition of one that was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// In microseconds since the start, as all times of a simulation.
    pub(crate) time_us: u64,
    /// The number of the client that sends it.
    pub(crate) client: u32,
    pub(crate) cost: u64,
    /// When the request was made first.
    pub(crate) first_us: u64,
    /// Whether it was made before.
    pub(crate) is_repeated: bool,
    /// Where the attributes of the request are: those of a line of the log, or of the client.
    pub(crate) line: u32,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    /// Admitted only because its policy is in shadow.
    pub(crate) shadowed: bool,
    /// `None`: never.
    pub(crate) retry_after_us: Option<u64>,
    pub(crate) delay_us: u64,
}

impl Verdict {
    /// That of no limit.
    pub(crate) const ADMITTED: Self =
        Self { allowed: true, shadowed: false, retry_after_us: Some(0), delay_us: 0 };
}

impl From<&polylimit::Decision> for Verdict {
    fn from(decision: &polylimit::Decision) -> Self {
        Self {
            allowed: decision.allowed(),
            shadowed: decision.shadowed(),
            retry_after_us: decision.retry_after_us(),
            delay_us: decision.delay_us(),
        }
    }
}

/// Requests in the order of their times.
pub(crate) trait Source {
    /// The next attempt.
    fn next(&mut self) -> Option<Attempt>;

    /// Takes what became of it, before the next one is requested.
    fn answer(&mut self, attempt: &Attempt, verdict: Verdict);

    /// How the requests ended that were never admitted.
    fn ends(&self) -> Ends {
        Ends::default()
    }
}

/// Requests that clients have stopped to repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Clients that left after a denial.
    pub(crate) left: u64,
    /// Requests that no wait would help, so that their clients gave up.
    pub(crate) given_up: u64,
    /// Requests that were to be repeated after the end.
    pub(crate) unfinished: u64,
}
