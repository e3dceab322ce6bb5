//! Concurrent connection attempts, so that one that hangs does not use up the time for all.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use crate::store::redis::transport::failure::Failure;
use crate::store::redis::transport::failure::UNREACHABLE;

/// The delay before the next attempt starts while one is running. RFC 8305, section 5, recommends 250 ms, and at least
/// 100 ms, on the open internet; a store is near, and connecting to it takes a second at most.
const ATTEMPT_DELAY: Duration = Duration::from_millis(50);

/// The result of the first attempt to succeed. Attempts start in order, each as soon as the previous one has failed or
/// takes longer than the delay. If all fail, returns the last failure.
pub(crate) async fn happy_eyeballs<T>(
    attempts: Vec<impl Future<Output = Result<T, Failure>>>,
) -> Result<T, Failure> {
    let mut attempts = attempts.into_iter().peekable();
    let mut begun = FuturesUnordered::new();
    let mut failure = UNREACHABLE;
    loop {
        begun.extend(attempts.next());
        let ended = if attempts.peek().is_some() {
            // A slow attempt continues beside the next one.
            let Ok(ended) = timeout(ATTEMPT_DELAY, begun.next()).await else { continue };
            ended
        } else {
            begun.next().await
        };
        match ended {
            Some(Ok(found)) => return Ok(found),
            Some(Err(failed)) => failure = failed,
            None => return Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::Pin;

    use super::*;
    use crate::rules::decision::Degradation;

    type Attempt = Pin<Box<dyn Future<Output = Result<u32, Failure>>>>;

    const REFUSED: Failure = Failure::permanent(Degradation::Auth);

    fn hangs() -> Attempt {
        Box::pin(pending())
    }

    fn ends(with: Result<u32, Failure>) -> Attempt {
        Box::pin(ready(with))
    }

    fn first(attempts: Vec<Attempt>) -> Result<Result<u32, Failure>, tokio::time::error::Elapsed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { timeout(20 * ATTEMPT_DELAY, happy_eyeballs(attempts)).await })
    }

    #[test]
    fn one_that_hangs_holds_up_nobody() {
        assert_eq!(first(vec![hangs(), hangs(), ends(Err(REFUSED)), ends(Ok(4)), ends(Ok(5))]), Ok(Ok(4)));
        assert_eq!(first(vec![hangs(), ends(Ok(2)), hangs()]), Ok(Ok(2)));
    }

    #[test]
    fn where_all_fail_the_last_one_says_why() {
        assert_eq!(first(vec![ends(Err(UNREACHABLE)), ends(Err(REFUSED))]), Ok(Err(REFUSED)));
        assert_eq!(first(vec![]), Ok(Err(UNREACHABLE)));
    }

    #[test]
    fn while_one_may_still_find_something_it_is_waited_for() {
        let late = Box::pin(async {
            tokio::time::sleep(2 * ATTEMPT_DELAY).await;
            Ok(1)
        });
        assert_eq!(first(vec![late, ends(Err(REFUSED)), ends(Err(UNREACHABLE))]), Ok(Ok(1)));
        assert!(first(vec![hangs(), ends(Err(REFUSED))]).is_err());
    }
}
