//! The body of a response: the service's own, or the text of a denial.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::http::tower::hold::RequestHold;

/// The maximum number of parts of a frame that are read. Most frames have one.
const MAX_PARTS: usize = 64;

pin_project! {
    /// The service's own body, passed through frame by frame, or the text of a denial.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        content: Content<B>,
        // Keeps the reservations until the last frame.
        hold: Option<RequestHold>,
        reads_body: bool,
    }
}

pin_project! {
    #[project = Projected]
    #[derive(Debug)]
    enum Content<B> {
        Own { #[pin] body: B },
        Denial { text: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn own(body: B) -> Self {
        Self { content: Content::Own { body }, hold: None, reads_body: false }
    }

    pub(crate) fn denial(text: String) -> Self {
        Self { content: Content::Denial { text: Some(text.into()) }, hold: None, reads_body: false }
    }

    pub(crate) fn empty() -> Self {
        Self { content: Content::Denial { text: None }, hold: None, reads_body: false }
    }

    /// The service's own body, or the text of a denial.
    #[cfg(feature = "actix")]
    pub(crate) fn into_content(self) -> Result<B, Bytes> {
        match self.content {
            Content::Own { body } => Ok(body),
            Content::Denial { text } => Err(text.unwrap_or_default()),
        }
    }

    /// The same body, which ends the request when it ends.
    pub(crate) fn holding(self, hold: RequestHold) -> Self {
        Self { reads_body: hold.reads_body(), hold: Some(hold), ..self }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = match this.content.project() {
            Projected::Own { body } => body.poll_frame(context),
            Projected::Denial { text } => Poll::Ready(text.take().map(|text| Ok(Frame::data(text.into())))),
        };
        if let (true, Some(hold), Poll::Ready(Some(Ok(frame)))) = (*this.reads_body, &*this.hold, &frame)
            && let Some(data) = frame.data_ref()
        {
            let mut parts = [IoSlice::new(&[]); MAX_PARTS];
            let count = data.chunks_vectored(&mut parts);
            parts[..count].iter().for_each(|part| hold.read_body(part));
        }
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            *this.hold = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Own { body } => body.is_end_stream(),
            Content::Denial { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own { body } => body.size_hint(),
            Content::Denial { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}
