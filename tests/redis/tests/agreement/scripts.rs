//! The scripts on a real server, called without a limiter, compared with the memory store: entries of one call that no limiter
//! would send at the same time, and states that no script writes.

mod differential;
mod faults;
mod session;
