//! What limits would do to traffic.

use polylimit_simulation::{Outcome, SimulateArguments, SimulationError, Surroundings};

use crate::arguments::GlobalOptions;
use crate::exit::{Exit, Failure};
use crate::terminal::Terminal;

pub(crate) fn run(
    options: &GlobalOptions,
    arguments: &SimulateArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let (mut answer, mut notes) = (Vec::new(), Vec::new());
    let mut surroundings = Surroundings {
        out: &mut answer,
        err: &mut notes,
        policies: options.policies.as_deref(),
        json: options.json,
        quiet: options.quiet,
        color: terminal.colours_output(),
        width: terminal.width(),
    };
    let outcome = polylimit_simulation::run(arguments, &mut surroundings).map_err(|error| {
        let exit = match error {
            SimulationError::Usage(_) | SimulationError::File(_) => Exit::Usage,
            SimulationError::Internal(_) => Exit::Undecided,
        };
        Failure::new(exit, error.to_string())
    })?;
    terminal.write(&answer)?;
    terminal.show_error(&String::from_utf8_lossy(&notes));
    Ok(match outcome {
        Outcome::Same => Exit::Fine,
        Outcome::Different => Exit::Problem,
    })
}
