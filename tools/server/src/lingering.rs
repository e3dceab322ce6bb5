//! A stream whose end does not destroy what was sent on it.
//!
//! A socket that is closed while bytes of the other end are unread, or still come, resets the connection, and the reset may destroy
//! answers that the other end has not read yet (RFC 9112, section 9.6). So an end is in two steps: first nothing more is sent, then
//! everything that comes is thrown away until the other end has closed, or a second is over.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long the other end has to close.
const LINGER: Duration = Duration::from_secs(1);

/// A stream whose shutdown waits until the other end has closed.
pub(crate) struct Lingering<S> {
    stream: S,
    end: End,
}

enum End {
    Open,
    /// Nothing more is sent.
    Sent(Pin<Box<Sleep>>),
    Closed,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, end: End::Open }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, end } = self.get_mut();
        loop {
            match end {
                End::Open => {
                    ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
                    *end = End::Sent(Box::pin(sleep(LINGER)));
                }
                End::Sent(until) => {
                    let mut bytes = [0; 1 << 10];
                    let mut thrown_away = ReadBuf::new(&mut bytes);
                    if until.as_mut().poll(context).is_pending() {
                        let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut thrown_away));
                        if read.is_ok() && !thrown_away.filled().is_empty() {
                            continue;
                        }
                    }
                    *end = End::Closed;
                }
                End::Closed => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn end_waits_for_the_other_end_and_for_a_second_at_most() {
        let since = Instant::now();
        let (mut client, server) = duplex(64);
        let mut server = Lingering::new(server);
        let ends = async {
            server.write_all(b"answer").await.unwrap();
            server.shutdown().await.unwrap();
        };
        let asks = async {
            // More than the server takes before it throws it away.
            client.write_all(&[b'a'; 1_000]).await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            drop(client);
            answer
        };
        assert_eq!(tokio::join!(ends, asks).1, b"answer");
        assert_eq!(since.elapsed(), Duration::ZERO);

        let (silent, server) = duplex(64);
        Lingering::new(server).shutdown().await.unwrap();
        assert_eq!(since.elapsed(), LINGER);
        drop(silent);
    }
}
