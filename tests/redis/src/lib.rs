//! What the tests of the Redis store share: callers that keep asking while something happens to the server, and what
//! came of it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "this crate is part of tests: what it cannot do fails the test that asked for it"
)]

mod flood;
mod limiters;
mod load;
mod noise;
mod story;

pub use flood::{Flood, Flooded};
pub use limiters::{COUNTING, LONG, ask, asked_each_time, held, limiter, options, used};
pub use load::Load;
pub use noise::Noise;
pub use story::{Asked, Story};
