//! The command line tool, which is in this addon so that `npx polylimit` has it.

use std::ffi::OsString;
use std::panic::catch_unwind;
use std::thread;

use napi::Env;
use napi::bindgen_prelude::Object;
use napi_derive::napi;
use polylimit_cli::{Terminal, run};

use crate::error::{Result, catch_panic, internal, node_api_error};

/// The stack of a program's first thread.
const STACK_BYTES: usize = 8 << 20;
/// As a program in Rust ends after a panic.
const PANICKED: u8 = 101;

/// Runs the command line tool; the first argument is the name of the program. The promise has the exit status.
///
/// The command has a thread of its own, so that this one handles signals meanwhile: Ctrl-C ends the process at once, or calls the
/// handler that the process has for it. A thread of Node's pool would be waited for at that end.
#[napi(ts_return_type = "Promise<number>")]
pub fn run_command_line(env: &Env, arguments: Vec<String>) -> Result<Object<'_>> {
    catch_panic(|| {
        let (promised, promise) = env.create_deferred().map_err(node_api_error)?;
        let command = move || {
            let arguments = arguments.into_iter().map(OsString::from);
            let status = catch_unwind(|| run(arguments, &mut Terminal::of_process())).unwrap_or(PANICKED);
            promised.resolve(move |_| Ok(u32::from(status)));
        };
        let thread = thread::Builder::new().name("polylimit-command".into()).stack_size(STACK_BYTES);
        match thread.spawn(command) {
            Ok(_) => Ok(promise),
            Err(error) => Err(internal(format!("the system refuses a thread for the command: {error}"))),
        }
    })
}
