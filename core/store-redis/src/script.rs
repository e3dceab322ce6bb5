//! The scripts: the transition in Lua, run by Redis.
//!
//! A script is assembled for the algorithms that a policy needs, so that a call does not pay for the others. A
//! policy's quotas are passed as arguments, so a server has only a few scripts, however many policies there are.
//!
//! Every script contains the general transition, which does all that [`polylimit_rules::transition`] does. A call creates
//! its functions only when an entry needs it. Most entries are decided before that, by the fast path.

mod arguments;
pub(crate) mod call;
mod fast_path;
pub(crate) mod reply;
#[cfg(feature = "testing")]
pub mod testing;
