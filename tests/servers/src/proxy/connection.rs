//! One connection through the proxy: from the client's to the server's socket and back, until an end of either or of ours.

use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Shared;
use super::fault::Direction;
use super::plan::Run;
use super::pump::Pump;

/// How a connection is ended for both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Cut,
    Reset,
}

pub(super) async fn relay(shared: &Shared, number: u64, mut client: TcpStream) {
    let upstream = shared.plan.borrow().upstream;
    let connected = timeout(Duration::from_secs(2), TcpStream::connect(upstream)).await;
    let Ok(Ok(mut server)) = connected else {
        reset(&client);
        return;
    };
    for socket in [&client, &server] {
        drop(socket.set_nodelay(true));
    }
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let requests = Pump::new(shared, number, Direction::Requests).run(from_client, to_server);
        let replies = Pump::new(shared, number, Direction::Replies).run(from_server, to_client);
        tokio::select! {
            ended = async { tokio::try_join!(requests, replies) } => ended.err().unwrap_or(End::Cut),
            end = ended_by_plan(shared, number) => end,
        }
    };
    match end {
        End::Cut => {
            // A socket that is dropped with bytes unread resets; the end goes out first.
            drop(client.shutdown().await);
            drop(server.shutdown().await);
        }
        End::Reset => {
            reset(&client);
            reset(&server);
        }
    }
}

/// Makes the drop of a socket reset its connection.
fn reset(socket: &TcpStream) {
    drop(SockRef::from(socket).set_linger(Some(Duration::ZERO)));
}

async fn ended_by_plan(shared: &Shared, number: u64) -> End {
    let mut plans = shared.plan.subscribe();
    loop {
        {
            let plan = plans.borrow_and_update();
            if number <= plan.reset_to {
                return End::Reset;
            }
            if number <= plan.cut_to || plan.run == Run::Ending {
                return End::Cut;
            }
        }
        if plans.changed().await.is_err() {
            return End::Cut;
        }
    }
}
