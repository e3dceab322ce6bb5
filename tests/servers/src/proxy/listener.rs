//! The proxy's thread: accepts, and gives every connection a task.

use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use super::plan::Run;
use super::{Shared, connection};

pub(super) fn run(shared: &Arc<Shared>, address: SocketAddr) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, accept(shared, address));
}

async fn accept(shared: &Arc<Shared>, address: SocketAddr) {
    let mut plans = shared.plan.subscribe();
    let mut listener = None;
    loop {
        let (refusing, run) = {
            let plan = plans.borrow_and_update();
            (plan.refusing, plan.run)
        };
        if run == Run::Ending {
            return;
        }
        if refusing {
            listener = None;
            shared.counters.set_listening(false);
        } else if listener.is_none() {
            listener = Some(listen(address));
            shared.counters.set_listening(true);
        }
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = plans.changed() => {}
            accepted = accepted => {
                if let Ok((client, _)) = accepted {
                    let number = shared.counters.opened();
                    let shared = Arc::clone(shared);
                    tokio::task::spawn_local(async move {
                        connection::relay(&shared, number, client).await;
                        shared.counters.closed(number);
                    });
                }
            }
        }
    }
}

fn listen(address: SocketAddr) -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    // The port is ours, whatever of it is still in TIME_WAIT.
    socket.set_reuse_address(true).expect("an option of a socket");
    socket.set_nonblocking(true).expect("an option of a socket");
    socket.bind(&address.into()).expect("the proxy's port");
    socket.listen(1024).expect("the proxy's port");
    TcpListener::from_std(socket.into()).expect("a listener")
}
