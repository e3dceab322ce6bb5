//! A session: a connection for a few commands, one after the other.

use std::io;

use combine::parser::combinator::AnySendSyncPartialState;
use combine::stream::{Decoder, PointerOffset};
use futures_util::future::BoxFuture;
use redis::{Cmd, FromRedisValue, RedisResult, Value, from_redis_value, parse_redis_value_async};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use crate::transport::CONNECT_TIMEOUT;
use crate::transport::stream::Stream;

/// The maximum length of a reply in bytes; the longest one that a server has reason to send is a cluster's table of
/// slots.
const MAX_REPLY: u64 = 64 << 20;

pub(crate) struct Session<S = Stream> {
    stream: BufReader<S>,
    decoder: ReplyDecoder,
}

type ReplyDecoder = Decoder<AnySendSyncPartialState, PointerOffset<[u8]>>;

/// Boxed, so that the parser, 100 KB of machine code, is compiled once, and not for each stream and in each crate.
fn parse<'a>(
    decoder: &'a mut ReplyDecoder,
    mut stream: &'a mut (dyn AsyncRead + Send + Unpin),
) -> BoxFuture<'a, RedisResult<Value>> {
    Box::pin(async move { parse_redis_value_async(decoder, &mut stream).await })
}

impl<S: AsyncRead + Send + Unpin> Session<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream), decoder: Decoder::new() }
    }

    /// The next reply. An error with a [`code`](redis::RedisError::code) comes from the server; after any other error
    /// the session cannot be used.
    pub(crate) async fn reply<T: FromRedisValue>(&mut self) -> RedisResult<T> {
        let mut bounded = (&mut self.stream).take(MAX_REPLY);
        let value = parse(&mut self.decoder, &mut bounded).await?;
        Ok(from_redis_value(value.extract_error()?)?)
    }

    /// The first byte of the next reply, which remains unread; an error at the end of the connection.
    pub(crate) async fn first_byte(&mut self) -> io::Result<u8> {
        self.stream.fill_buf().await?.first().copied().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// The connection; all commands have been answered.
    pub(crate) fn into_stream(self) -> S {
        self.stream.into_inner()
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Session<S> {
    /// Sends packed commands in one write.
    pub(crate) async fn send(&mut self, commands: &[u8]) -> io::Result<()> {
        self.stream.write_all(commands).await?;
        self.stream.flush().await
    }

    /// Sends a command and waits for its reply, at most for the connect timeout.
    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let asking = async {
            self.send(&command.get_packed_command()).await?;
            self.reply().await
        };
        timeout(CONNECT_TIMEOUT, asking)
            .await
            .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::Value;
    use tokio::io::{Join, Sink, join, sink};
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    const REPLY: &[u8] = b"*5\r\n:-7\r\n$3\r\na\r\n\r\n*2\r\n+OK\r\n$-1\r\n$2\r\nno\r\n$0\r\n\r\n";

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// A session with a server that sends these bytes.
    fn session<R: AsyncRead + Send + Unpin>(bytes: R) -> Session<Join<R, Sink>> {
        Session::new(join(bytes, sink()))
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let bytes = [REPLY, b"-NOPERM no\r\n", REPLY].concat();
        let bulk = |bytes: &[u8]| Value::BulkString(bytes.to_vec());
        let inner = Value::Array(vec![Value::Okay, Value::Nil]);
        let expected = Value::Array(vec![Value::Int(-7), bulk(b"a\r\n"), inner, bulk(b"no"), bulk(b"")]);
        runtime().block_on(async {
            let mut session = session(&bytes[..]);
            assert_eq!(session.reply::<Value>().await.unwrap(), expected);
            let error = session.reply::<Value>().await.unwrap_err();
            assert_eq!((error.code(), error.detail()), (Some("NOPERM"), Some("no")));
            assert_eq!(session.reply::<Value>().await.unwrap(), expected);
            assert!(session.reply::<Value>().await.unwrap_err().is_io_error());
        });
    }

    #[test]
    fn reply_in_two_parts_is_read_whole_for_every_cut() {
        for cut in 0..REPLY.len() {
            let (first, second) = REPLY.split_at(cut);
            let read = runtime().block_on(async {
                let whole = session(first.chain(second)).reply::<Value>().await.unwrap();
                assert!(session(first).reply::<Value>().await.unwrap_err().is_io_error(), "{cut}");
                whole
            });
            assert_eq!(redis::parse_redis_value(REPLY).unwrap(), read, "{cut}");
        }
    }

    #[test]
    fn reply_beyond_the_bound_ends_the_session() {
        for start in [&b"$99999999999\r\n"[..], b"*9223372036854775807\r\n"] {
            let endless = start.chain(tokio::io::repeat(b':'));
            assert!(runtime().block_on(session(endless).reply::<Value>()).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(bytes: Vec<u8>) {
            let _ = runtime().block_on(session(&bytes[..]).reply::<Value>());
        }

        #[test]
        fn any_changed_byte_gives_an_answer(at in 0..REPLY.len(), byte: u8) {
            let mut bytes = REPLY.to_vec();
            bytes[at] = byte;
            let _ = runtime().block_on(session(&bytes[..]).reply::<Value>());
        }
    }
}
