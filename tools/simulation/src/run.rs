//! Runs `polylimit simulate` and writes its answer.

use std::io::Write;
use std::path::Path;

use crate::arguments::SimulateArguments;
use crate::drawing::picture;
use crate::error::SimulationError;
use crate::html::page;
use crate::plot::plot;
use crate::results::Simulation;
use crate::table::tables;

/// What the program around a simulation decides.
pub struct Surroundings<'a> {
    /// Where the answer is written.
    pub out: &'a mut dyn Write,
    /// Where it is told which files were written.
    pub err: &'a mut dyn Write,
    /// The document of policies, if one is given.
    pub policies: Option<&'a Path>,
    /// Whether the answer is one JSON object.
    pub json: bool,
    /// Whether nothing is written but the answer.
    pub quiet: bool,
    /// Whether the plot has colours.
    pub color: bool,
    /// The width of the terminal, in characters.
    pub width: u16,
}

/// How a simulation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no candidate, or all candidates decide every request as the limits in force.
    Same,
    /// A candidate decides otherwise.
    Different,
}

impl Outcome {
    /// The exit code of a program that ends so: 0, or 1 for a difference.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Same => 0,
            Self::Different => 1,
        }
    }
}

/// Simulates and writes the answer: tables and a plot, or JSON, and the files that the arguments name.
///
/// # Errors
/// As for [`SimulateArguments::simulate`], and [`SimulationError::File`] when something cannot be written.
pub fn run(
    arguments: &SimulateArguments,
    surroundings: &mut Surroundings<'_>,
) -> Result<Outcome, SimulationError> {
    let simulation = arguments.simulate(surroundings.policies)?;
    if surroundings.json {
        serde_json::to_writer(&mut *surroundings.out, &simulation).map_err(std::io::Error::from)?;
        writeln!(surroundings.out)?;
    } else {
        write!(surroundings.out, "{}", tables(&simulation))?;
        if !arguments.no_plot {
            let plot = plot(&simulation, surroundings.width, surroundings.color);
            write!(surroundings.out, "\n{plot}")?;
        }
    }
    write_files(arguments, &simulation, surroundings)?;
    let is_same = simulation.candidates.iter().all(|candidate| candidate.agreement.is_full());
    Ok(if is_same { Outcome::Same } else { Outcome::Different })
}

fn write_files(
    arguments: &SimulateArguments,
    simulation: &Simulation,
    surroundings: &mut Surroundings<'_>,
) -> Result<(), SimulationError> {
    if let Some(path) = &arguments.svg {
        write_file(path, picture(simulation, true).svg().as_bytes(), surroundings)?;
    }
    #[cfg(feature = "png")]
    if let Some(path) = &arguments.png {
        write_file(path, &crate::png::png(&picture(simulation, false).svg())?, surroundings)?;
    }
    if let Some(path) = &arguments.html {
        write_file(path, page(simulation)?.as_bytes(), surroundings)?;
    }
    Ok(())
}

fn write_file(
    path: &Path,
    contents: &[u8],
    surroundings: &mut Surroundings<'_>,
) -> Result<(), SimulationError> {
    std::fs::write(path, contents).map_err(|error| SimulationError::file("written", path, &error))?;
    if !surroundings.quiet {
        writeln!(surroundings.err, "{} is written", path.display())?;
    }
    Ok(())
}
