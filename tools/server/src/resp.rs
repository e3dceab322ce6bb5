//! RESP: the connection. All complete commands of what was read are answered together: neighbouring checks in one `check_many`, and
//! all replies in one write.

mod asked;
mod command;
mod plan;
mod reply;
mod session;
mod throttle;
mod transaction;

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::app::App;
use crate::caller::Caller;
use crate::counters::Rejection;
use crate::endpoint::Protocol;
use crate::life::{FIRST_SILENCE, Follower, SILENCE, Stage};
use crate::resp::command::Framed;
use crate::resp::plan::Plan;
use crate::resp::reply::Replies;
use crate::resp::session::Session;

/// How much is read at once.
const READ: usize = 16 << 10;

/// Serves a connection to its end. It never ends between a command that was read and its reply.
pub(crate) async fn serve<S>(app: Arc<App>, mut stream: S, caller: Caller, mut life: Follower)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let limits = app.options.limits;
    let mut session = Session::new(caller);
    let mut input = BytesMut::new();
    let mut replies = Replies::default();
    let mut silent_since = Instant::now();
    let mut closing_since = None;
    let mut silence = FIRST_SILENCE;
    loop {
        let ends = answer(&app, &mut session, &mut input, &mut replies).await;
        let has_replied = !replies.is_empty();
        if has_replied {
            match timeout(limits.write_time, stream.write_all(replies.bytes())).await {
                Ok(Ok(())) => replies.clear(),
                Ok(Err(_)) | Err(_) => return,
            }
            silence = SILENCE;
        }
        if life.has_reached(Stage::Closing) && closing_since.is_none() {
            closing_since = Some(Instant::now());
        }
        // The client of a command that has begun may send the rest of it; one that never pauses is not awaited longer.
        let is_over = closing_since
            .is_some_and(|since| has_replied && (input.is_empty() || since.elapsed() >= SILENCE));
        if ends || is_over {
            let _ = timeout(limits.write_time, stream.shutdown()).await;
            return;
        }
        if input.len() >= limits.body {
            app.counters.rejected(Protocol::Resp, Rejection::TooLarge);
            let told = format!("-ERR Protocol error: a command has more than {} bytes\r\n", limits.body);
            let tells = async {
                let _ = stream.write_all(told.as_bytes()).await;
                let _ = stream.shutdown().await;
            };
            let _ = timeout(limits.write_time, tells).await;
            return;
        }
        // A command that has begun, and a token, are awaited for a while only; the next command for ever.
        let is_awaited = !input.is_empty() || app.needs_token(session.identity());
        let is_stopping = life.has_reached(Stage::Draining);
        let wait = if is_stopping { silence.min(limits.head_time) } else { limits.head_time };
        input.reserve(READ.min(limits.body - input.len()).max(1));
        tokio::select! {
            // Received data is read before a time is over.
            biased;
            read = stream.read_buf(&mut input) => match read {
                Ok(0) | Err(_) => return,
                Ok(_) if !is_awaited => silent_since = Instant::now(),
                Ok(_) => {}
            },
            () = sleep_until(silent_since + wait), if is_awaited || is_stopping => {
                if is_awaited && !is_stopping {
                    app.counters.rejected(Protocol::Resp, Rejection::SlowHead);
                }
                let _ = timeout(limits.write_time, stream.shutdown()).await;
                return;
            }
            () = life.reach(Stage::Draining), if !is_stopping => silent_since = Instant::now(),
        }
        if input.capacity() > 2 * READ && input.is_empty() {
            input = BytesMut::new();
        }
    }
}

/// Answers all complete commands, and returns whether the connection ends with that.
async fn answer(app: &App, session: &mut Session, input: &mut BytesMut, replies: &mut Replies) -> bool {
    session.recognize(app);
    let mut plan = Plan::default();
    let mut consumed = 0;
    let mut ends = false;
    while !ends {
        match command::next(&input[consumed..], app.options.limits.body) {
            Ok(None) => break,
            Ok(Some(Framed { arguments, length })) => {
                consumed += length;
                if !arguments.is_empty() {
                    ends = plan.add(app, session, &arguments);
                }
            }
            Err(broken) => {
                app.counters.rejected(Protocol::Resp, Rejection::Protocol);
                plan.fail(&format!("ERR Protocol error: {broken}"));
                ends = true;
            }
        }
    }
    plan.perform(app, session.caller(), replies).await;
    if session.take_failed_sign_in() {
        sleep(app.options.limits.sign_in_delay).await;
    }
    input.advance(consumed);
    ends
}
