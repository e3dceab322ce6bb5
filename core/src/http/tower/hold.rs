//! The reservations of layers for a request, until its response is done.

use std::fmt;
use std::sync::Arc;

use http::response;
use parking_lot::Mutex;

use crate::http::guard::GuardCheck;

/// A function of a response that returns the units that its request has spent.
pub(super) type Spent = Arc<dyn Fn(&response::Parts) -> Option<u64> + Send + Sync>;

/// Keeps the reservations of layers for a request, which has it as an extension if a layer reserves. The reservations end when
/// the body of the response is sent or dropped and no clone is left, so a handler of a web socket, whose work begins with the
/// response, moves a clone into that work:
///
/// ```
/// use axum::Extension;
/// use axum::response::Response;
/// use polylimit::http::tower::RequestHold;
///
/// async fn talk(Extension(hold): Extension<RequestHold>) -> Response {
///     tokio::spawn(async move {
///         // the conversation
///         drop(hold);
///     });
///     Response::default()
/// }
/// # let _: axum::routing::MethodRouter = axum::routing::get(talk);
/// ```
#[derive(Clone)]
pub struct RequestHold {
    held: Arc<Held>,
}

struct Held {
    ending: Mutex<Option<Ending>>,
    /// The reservations of the layers around this one.
    _outer: Option<RequestHold>,
}

/// The data that the end of the request needs.
struct Ending {
    check: GuardCheck,
    spent: Option<Spent>,
    /// None before there is one, and for a service that failed.
    response: Option<response::Parts>,
}

impl RequestHold {
    pub(super) fn new(check: GuardCheck, spent: Option<Spent>, outer: Option<Self>) -> Self {
        let ending = Mutex::new(Some(Ending { check, spent, response: None }));
        Self { held: Arc::new(Held { ending, _outer: outer }) }
    }

    /// Finishes the check with the head of the response. If the future is dropped before that, the check ends.
    pub(super) async fn finish(&self, counts: bool, response: Option<response::Parts>) {
        let Some(mut ending) = self.held.ending.lock().take() else { return };
        if let Some(response) = response.as_ref().filter(|_| ending.check.reads_response()) {
            ending
                .check
                .read_head(response.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
        }
        ending.check.finish(counts);
        ending.check.run().await;
        *self.held.ending.lock() = Some(Ending { response, ..ending });
    }

    /// Whether the body has to be passed to [`read_body`](Self::read_body).
    pub(super) fn reads_body(&self) -> bool {
        self.held.ending.lock().as_ref().is_some_and(|ending| ending.check.reads_body())
    }

    pub(super) fn read_body(&self, bytes: &[u8]) {
        if let Some(ending) = self.held.ending.lock().as_mut() {
            ending.check.read_body(bytes);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(Ending { mut check, spent, response }) = self.ending.get_mut().take() else { return };
        let spent = spent.zip(response).and_then(|(spent, response)| spent(&response));
        // If the units are not allowed, the check ends with those that were reserved.
        let _ = check.end_in_background(spent);
    }
}

impl fmt::Debug for RequestHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHold").finish_non_exhaustive()
    }
}
