//! What limits would do to traffic.

use polylimit_simulation::{AnswerStyle, SimulateArguments, SimulationError};

use crate::arguments::GlobalOptions;
use crate::exit::{Exit, Failure};
use crate::terminal::Terminal;

pub(crate) fn run(
    options: &GlobalOptions,
    arguments: &SimulateArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let simulation = arguments.simulate(options.policies.as_deref())?;
    let style = AnswerStyle { json: options.json, color: terminal.colours_output(), width: terminal.width() };
    terminal.write(arguments.answer(&simulation, style)?.as_bytes())?;
    terminal.flush()?;
    // What took long to find is not lost where a file cannot be written.
    arguments.write_files(&simulation, |path| {
        if !options.quiet {
            terminal.show_error(&format!("{} is written\n", path.display()));
        }
    })?;
    Ok(if simulation.is_same() { Exit::Fine } else { Exit::Problem })
}

impl From<SimulationError> for Failure {
    fn from(error: SimulationError) -> Self {
        let exit = match error {
            SimulationError::Usage(_) | SimulationError::File(_) => Exit::Usage,
            SimulationError::Internal(_) => Exit::Undecided,
        };
        Self::new(exit, error.to_string())
    }
}
