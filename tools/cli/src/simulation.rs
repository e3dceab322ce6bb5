//! What limits would do to traffic.

use std::sync::Arc;

use polylimit_simulation::{AnswerStyle, Progress as SimulationProgress, SimulateArguments, SimulationError};

use crate::arguments::GlobalOptions;
use crate::exit::{Exit, Failure};
use crate::progress::Progress;
use crate::terminal::Terminal;

pub(crate) fn run(
    options: &GlobalOptions,
    arguments: &SimulateArguments,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let done = Arc::new(SimulationProgress::default());
    let followed = Arc::clone(&done);
    let progress = Progress::new(terminal, "simulating {bar:40} {pos} %", Some(100))
        .following(move || followed.percent());
    let simulation = arguments.simulate_telling(options.policies.as_deref(), &done)?;
    drop(progress);
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
