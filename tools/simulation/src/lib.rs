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

mod answer;
mod arguments;
mod attempt;
mod busiest;
mod clients;
mod drawing;
mod error;
mod html;
mod judge;
mod key;
mod limits;
mod log;
mod open_loop;
mod plot;
#[cfg(feature = "png")]
mod png;
mod progress;
pub mod results;
mod scenario;
mod shares;
mod simulate;
mod table;
mod tally;
mod text;
mod traffic;

pub use answer::AnswerStyle;
pub use arguments::SimulateArguments;
pub use drawing::{Bar, Picture, Row};
pub use error::SimulationError;
pub use key::Key;
pub use open_loop::{Arrival, OpenLoop};
pub use progress::Progress;
