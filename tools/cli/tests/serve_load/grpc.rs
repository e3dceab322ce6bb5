//! A client of gRPC that has several calls at a time on one HTTP/2 connection.

use std::sync::atomic::Ordering;

use bytes::{BufMut, Bytes, BytesMut};
use h2::Reason;
use h2::client::SendRequest;
use prost::Message;
use tokio::task::JoinSet;

use crate::load::{Connection, Shared};
use crate::messages::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::program::SOON;

/// The calls at a time.
const CALLS: u64 = 4;
const URI: &str = "http://a/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What has become of a call that has no answer.
enum Unanswered {
    /// The connection takes no more calls: the client has read a GOAWAY.
    NotSent,
    /// The server has said that it did not read it.
    NotRead,
    Broken(h2::Error),
}

/// Asks until there is no listener any more.
pub(crate) fn ask(shared: &Shared, client: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut first = client << 32;
    while !shared.ends()
        && let Some(connection) = shared.connect()
    {
        first += 1 << 20;
        runtime.block_on(ask_over(shared, connection, first));
    }
}

/// Asks over a connection until it ends.
async fn ask_over(shared: &Shared, mut connection: Connection, first: u64) {
    let stream = connection.stream.try_clone().unwrap();
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let (sender, driver) = match h2::client::handshake(stream).await {
        Ok(made) => made,
        Err(error) => return shared.unanswered(&connection, 0, &error),
    };
    // A connection that breaks off ends its calls with the error.
    let driver = tokio::spawn(async move { driver.await.is_ok() });
    let mut number = first;
    let mut is_open = true;
    while is_open && connection.requests < shared.pattern.requests_of_connection && !shared.ends() {
        let mut calls = JoinSet::new();
        for _ in 0..CALLS {
            number += 1;
            shared.tally.asked.fetch_add(1, Ordering::SeqCst);
            calls.spawn(call(sender.clone(), shared.key(number)));
        }
        while let Some(answered) = calls.join_next().await {
            match answered.unwrap() {
                Ok(response) => {
                    assert_eq!(response.overall_code(), Code::Ok, "{response:?}");
                    shared.admitted(1);
                    connection.requests += 1;
                }
                Err(Unanswered::NotSent) => {
                    is_open = false;
                    shared.tally.asked.fetch_sub(1, Ordering::SeqCst);
                }
                Err(Unanswered::NotRead) => {
                    is_open = false;
                    shared.unanswered(&connection, 1, &"the server has ended it");
                }
                Err(Unanswered::Broken(error)) => {
                    is_open = false;
                    assert!(shared.may_break.load(Ordering::SeqCst), "a call broke off: {error}");
                    shared.unanswered(&connection, 1, &error);
                }
            }
        }
        tokio::time::sleep(shared.pattern.pause).await;
    }
    drop(sender);
    if !shared.may_break.load(Ordering::SeqCst) {
        let _ = tokio::time::timeout(SOON, driver).await.expect("the end of the connection");
    }
}

async fn call(sender: SendRequest<Bytes>, key: String) -> Result<RateLimitResponse, Unanswered> {
    let mut sender = sender.ready().await.map_err(|_| Unanswered::NotSent)?;
    let request =
        http::Request::post(URI).header("content-type", "application/grpc").header("te", "trailers");
    let sent = sender.send_request(request.body(()).unwrap(), false);
    let (response, mut body) = sent.map_err(|_| Unanswered::NotSent)?;
    let entries = vec![Entry { key: "caller".to_owned(), value: key }];
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    let message = RateLimitRequest { domain: "load".to_owned(), descriptors, hits_addend: 0 }.encode_to_vec();
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.extend(message);
    let answer = async {
        body.send_data(framed.freeze(), true)?;
        let mut body = response.await?.into_body();
        let mut bytes = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            bytes.extend(data);
        }
        let trailers = body.trailers().await?;
        assert_eq!(trailers.unwrap().get("grpc-status").unwrap(), "0");
        Ok(RateLimitResponse::decode(&bytes[5..]).unwrap())
    };
    answer.await.map_err(|error: h2::Error| {
        // Streams after the last one that GOAWAY names, and refused ones, were not read (RFC 9113, sections 6.8 and 8.7).
        let was_not_read =
            error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR)
                || error.reason() == Some(Reason::REFUSED_STREAM);
        if was_not_read { Unanswered::NotRead } else { Unanswered::Broken(error) }
    })
}
