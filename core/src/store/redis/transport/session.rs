//! A connection for a few commands, one after the other.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::store::redis::transport::CONNECT_TIMEOUT;
use crate::store::redis::transport::resp::{self, Value};
use crate::store::redis::transport::stream::Stream;

#[derive(Debug)]
pub(crate) struct Session {
    stream: Stream,
    read: BytesMut,
    /// How much of `read` the last reply took.
    taken: usize,
}

impl Session {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, read: BytesMut::new(), taken: 0 }
    }

    /// Sends commands in one write.
    pub(crate) async fn send(&mut self, commands: &[&[&[u8]]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for words in commands {
            resp::write(&mut bytes, words);
        }
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await
    }

    /// The next reply.
    pub(crate) async fn reply(&mut self) -> io::Result<Value<'_>> {
        self.read.advance(self.taken);
        self.taken = 0;
        loop {
            let read = resp::read(&self.read).map_err(|_| io::ErrorKind::InvalidData)?;
            if let Some((_, taken)) = read {
                self.taken = taken;
                break;
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        // Read once more, since a borrow cannot leave the loop above.
        let read = resp::read(&self.read).map_err(|_| io::ErrorKind::InvalidData)?;
        read.map(|(value, _)| value).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Sends a command and waits for its reply; for no longer than to connect.
    pub(crate) async fn ask(&mut self, words: &[&[u8]]) -> io::Result<Value<'_>> {
        let asking = async {
            self.send(&[words]).await?;
            self.reply().await
        };
        timeout(CONNECT_TIMEOUT, asking).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The connection; everything that was asked of it has been answered.
    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }
}
