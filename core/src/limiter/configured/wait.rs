//! How callers wait for decisions by a configuration.

use std::future::{Future, Ready};
use std::pin::Pin;

use futures_util::future::Either;

use crate::error::Error;
use crate::store::request::Answer;

/// How the caller waits for Redis. The other stores answer at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The caller is an asynchronous task.
    Await,
    /// The caller is a thread that blocks: then no future of this module is ever pending.
    Block,
}

/// An answer that the caller waits for.
pub(crate) type PendingAnswer<'a> = Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send + 'a>>;

/// An answer that is known already, or that the caller waits for.
pub(crate) type DecidedAnswer<'a> = Either<Ready<Result<Answer, Error>>, PendingAnswer<'a>>;
