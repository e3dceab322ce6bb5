//! The answer of `polylimit simulate`, and the files that its arguments name.

use std::fmt::Write as _;
use std::path::Path;

use crate::arguments::SimulateArguments;
use crate::drawing::picture;
use crate::error::SimulationError;
use crate::html::page;
use crate::plot::plot;
use crate::results::Simulation;
use crate::table::tables;

/// How an answer is written.
#[derive(Clone, Copy, Debug)]
pub struct AnswerStyle {
    /// Whether the answer is one JSON object.
    pub json: bool,
    /// Whether the plot has colours.
    pub color: bool,
    /// The width of the terminal, in characters.
    pub width: u16,
}

impl SimulateArguments {
    /// The answer: tables and a plot, or one JSON object in a line.
    ///
    /// # Errors
    /// [`SimulationError::Internal`] when the simulation cannot be written as JSON.
    pub fn answer(&self, simulation: &Simulation, style: AnswerStyle) -> Result<String, SimulationError> {
        if style.json {
            let text = serde_json::to_string(simulation);
            return text.map(|text| text + "\n").map_err(|error| {
                SimulationError::Internal(format!("the answer cannot be written: {error}"))
            });
        }
        let mut text = tables(simulation);
        if !self.no_plot {
            let _ = write!(text, "\n{}", plot(simulation, style.width, style.color));
        }
        Ok(text)
    }

    /// Writes the files that the arguments name, and reports each that is written.
    ///
    /// # Errors
    /// [`SimulationError::File`] when a file cannot be written; the files after it are not written either.
    pub fn write_files(
        &self,
        simulation: &Simulation,
        mut written: impl FnMut(&Path),
    ) -> Result<(), SimulationError> {
        let mut write = |path: &Path, contents: &[u8]| -> Result<(), SimulationError> {
            std::fs::write(path, contents).map_err(|error| SimulationError::file("written", path, &error))?;
            written(path);
            Ok(())
        };
        if let Some(path) = &self.svg {
            write(path, picture(simulation, true).svg().as_bytes())?;
        }
        #[cfg(feature = "png")]
        if let Some(path) = &self.png {
            write(path, &crate::png::png(&picture(simulation, false).svg())?)?;
        }
        if let Some(path) = &self.html {
            write(path, page(simulation)?.as_bytes())?;
        }
        Ok(())
    }
}
