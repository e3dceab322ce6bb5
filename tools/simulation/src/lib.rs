//! `polylimit simulate`: what a limit would do to traffic.
//!
//! Requests of generated clients, or those of a log, are decided by a real limiter with the memory store on a clock that jumps from
//! one request to the next. So the numbers are those that the limiter would have in service, and an hour takes seconds.
//!
//! ```
//! use clap::Parser;
//! use polylimit_simulation::SimulateArguments;
//!
//! #[derive(Parser)]
//! struct Program {
//!     #[command(flatten)]
//!     arguments: SimulateArguments,
//! }
//!
//! let program = Program::parse_from(["simulate", "--policy", "api=1/s", "--traffic", "1 client 2/s", "--for", "1m"]);
//! let simulation = program.arguments.simulate(None)?;
//! assert_eq!(simulation.live.total.requests, 120);
//! # Ok::<(), polylimit_simulation::SimulationError>(())
//! ```
//!
//! docs/simulation.md is the page for users, docs/internals/simulation.md that for changing this crate.

#![forbid(unsafe_code)]
// The rest is for comparisons of limits, whose results only the command shows.
#![cfg_attr(not(feature = "command"), allow(dead_code, reason = "the command uses it"))]

#[cfg(feature = "command")]
mod answer;
#[cfg(feature = "command")]
mod arguments;
mod attempt;
mod busiest;
mod clients;
#[cfg(feature = "command")]
mod drawing;
mod error;
mod facts;
#[cfg(feature = "command")]
mod html;
mod judge;
mod key;
mod limits;
#[cfg(feature = "command")]
mod log;
mod open_loop;
mod play;
#[cfg(feature = "command")]
mod plot;
#[cfg(feature = "png")]
mod png;
mod progress;
pub mod results;
mod scenario;
mod shares;
mod simulate;
#[cfg(feature = "command")]
mod table;
mod tally;
#[cfg(feature = "command")]
mod text;
mod traffic;

#[cfg(feature = "command")]
pub use answer::AnswerStyle;
#[cfg(feature = "command")]
pub use arguments::SimulateArguments;
#[cfg(feature = "command")]
pub use drawing::{Bar, Picture, Row};
pub use error::SimulationError;
pub use key::Key;
pub use open_loop::{Arrival, OpenLoop};
pub use play::{GroupTimeline, Play, Played, RequestShape};
pub use progress::Progress;
