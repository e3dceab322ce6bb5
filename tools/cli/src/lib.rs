//! The command line tool `polylimit`: decides, explains and lists keys, manages limits, and measures stores. The program, and
//! other programs that contain it, call [`run`].

mod arguments;
mod audit;
mod bench;
mod block;
mod diagnostics;
mod documents;
mod entries;
mod exit;
mod explanation;
mod fleet;
mod generated;
mod import;
mod listing;
mod operations;
mod output;
mod progress;
mod reset;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "simulate")]
mod simulation;
mod store;
mod terminal;

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};

use crate::arguments::{Arguments, Command, GlobalOptions};
use crate::exit::{Exit, Failure};
pub use crate::terminal::Terminal;

/// Runs a command and returns the exit status. The first argument is the name of the program.
///
/// Nothing here ends the process, and no panic comes out of a closed output.
pub fn run(arguments: impl IntoIterator<Item = OsString>, terminal: &mut Terminal) -> u8 {
    let exit = match read(arguments) {
        Ok(arguments) => {
            terminal.set_quiet(arguments.options.quiet);
            match perform(&arguments, terminal) {
                Ok(exit) => exit,
                Err(failure) => {
                    terminal.complain(&failure.message);
                    failure.exit
                }
            }
        }
        Err(error) => show_usage(&error, terminal),
    };
    terminal.finish(exit) as u8
}

/// Reads the arguments; help, the version and mistakes are an error.
fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let mut command = Arguments::command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    let read = Arguments::from_arg_matches(&matches)?;
    check_secrets(&read.options, &matches)
        .map_err(|message| command.error(clap::error::ErrorKind::ValueValidation, message))?;
    Ok(read)
}

/// Other users of a host can read the arguments of a process, so they may not contain a secret.
fn check_secrets(options: &GlobalOptions, matches: &ArgMatches) -> Result<(), &'static str> {
    let is_argument = matches.value_source("store") == Some(ValueSource::CommandLine);
    if is_argument && options.store.as_deref().is_some_and(store::has_secret) {
        return Err(
            "--store has a secret, which other users of this host could read: set the URL in POLYLIMIT_STORE, or write it to a file \
             and give --store @FILE",
        );
    }
    Ok(())
}

fn show_usage(error: &clap::Error, terminal: &mut Terminal) -> Exit {
    use clap::error::ErrorKind;
    let text = error.render();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let text = if terminal.colours_output() { text.ansi().to_string() } else { text.to_string() };
        return match terminal.write(text.as_bytes()) {
            Ok(()) => Exit::Fine,
            Err(failure) => failure.exit,
        };
    }
    terminal.show_error(&if terminal.colours_errors() { text.ansi().to_string() } else { text.to_string() });
    Exit::Usage
}

fn perform(arguments: &Arguments, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let options = &arguments.options;
    match &arguments.command {
        Command::Check(request) => operations::check(options, request, terminal),
        Command::Peek(request) => operations::peek(options, request, terminal),
        Command::Take(request) => operations::take(options, request, terminal),
        Command::Charge(request) => operations::charge(options, request, terminal),
        Command::Refund(request) => operations::refund(options, request, terminal),
        Command::Reset(reset) => reset::run(options, reset, terminal),
        Command::Explain(request) => explanation::run(options, request, terminal),
        Command::List(arguments) => listing::list(options, arguments, terminal),
        Command::Top(arguments) if arguments.denied => fleet::top_denied(options, arguments.most, terminal),
        Command::Top(arguments) => listing::top(options, arguments, terminal),
        Command::Deny(list) => entries::run(options, polylimit::admin::ListName::Deny, list, terminal),
        Command::Allow(list) => entries::run(options, polylimit::admin::ListName::Allow, list, terminal),
        Command::Block(block) => block::run(options, block, terminal),
        Command::Policies(policies) => documents::run(options, policies, terminal),
        Command::Stats { fleet: true } => fleet::stats(options, terminal),
        Command::Stats { fleet: false } => diagnostics::stats(options, terminal),
        Command::Doctor => diagnostics::doctor(options, terminal),
        Command::Bench(bench) => bench::run(options, bench, terminal),
        #[cfg(feature = "simulate")]
        Command::Simulate(arguments) => simulation::run(options, arguments, terminal),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::run(options, arguments),
        #[cfg(feature = "serve")]
        Command::Probe(arguments) => serve::probe(arguments),
        Command::Completions { shell } => generated::completions(*shell, terminal),
        Command::Man { into: Some(folder), .. } => generated::man_pages(folder),
        Command::Man { command, into: None } => generated::man(command, terminal),
    }
}
