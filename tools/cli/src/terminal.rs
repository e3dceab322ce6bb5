//! Where a command writes, what it asks, and what may be coloured.

use std::fmt;
use std::io::{self, BufWriter, ErrorKind, IsTerminal as _, Write};

use polylimit::raw::printable;
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::output::Rows;

/// The output and the errors of a command.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Terminal {
    output: Box<dyn Write>,
    errors: Box<dyn Write>,
    /// Whether the output is a terminal that shows colours.
    colours_output: bool,
    colours_errors: bool,
    /// Whether a terminal shows the output.
    shows_output: bool,
    /// Whether progress is shown: on the errors of a terminal only.
    has_progress: bool,
    /// Whether questions can be asked and answered.
    can_ask: bool,
    is_quiet: bool,
    is_closed: bool,
}

impl Terminal {
    /// Standard output and standard error of this process.
    pub fn of_process() -> Self {
        block_streams();
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            output: Box::new(BufWriter::new(io::stdout())),
            errors: Box::new(io::stderr()),
            colours_output: io::stdout().is_terminal() && !is_plain,
            colours_errors: io::stderr().is_terminal() && !is_plain,
            shows_output: io::stdout().is_terminal(),
            has_progress: io::stderr().is_terminal(),
            can_ask: io::stderr().is_terminal() && io::stdin().is_terminal(),
            is_quiet: false,
            is_closed: false,
        }
    }

    /// Whether nothing is written to the output.
    pub(crate) fn set_quiet(&mut self, is_quiet: bool) {
        self.is_quiet = is_quiet;
    }

    pub(crate) fn colours_output(&self) -> bool {
        self.colours_output
    }

    pub(crate) fn colours_errors(&self) -> bool {
        self.colours_errors
    }

    pub(crate) fn shows_progress(&self) -> bool {
        self.has_progress && !self.is_quiet
    }

    /// Whether a terminal shows the output, on which lines and a bar would mix.
    pub(crate) fn shows_output(&self) -> bool {
        self.shows_output
    }

    /// Whether the reader of the output has gone, so that further lines are of no use.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// How many characters a line of the output has; 80 where there is no terminal.
    #[cfg(feature = "simulate")]
    #[expect(clippy::unused_self, reason = "the width is that of this terminal")]
    pub(crate) fn width(&self) -> u16 {
        terminal_size::terminal_size().map_or(80, |(width, _)| width.0)
    }

    /// Writes to the output. A reader that has gone is no failure.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.is_quiet || self.is_closed {
            return Ok(());
        }
        let written = self.output.write_all(bytes);
        self.note(written)
    }

    /// Writes a line to the output, or several. What could control the terminal is escaped.
    pub(crate) fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        self.write(format!("{}\n", lines(&line.to_string())).as_bytes())
    }

    /// Writes a table, unless it has only its titles.
    pub(crate) fn table(&mut self, rows: &Rows) -> Result<(), Failure> {
        rows.text().map_or(Ok(()), |text| self.line(text))
    }

    /// The same in a colour, where the output shows colours.
    pub(crate) fn coloured(&mut self, colour: Option<u8>, line: impl fmt::Display) -> Result<(), Failure> {
        match colour.filter(|_| self.colours_output) {
            Some(colour) => {
                self.write(format!("\u{1b}[{colour}m{}\u{1b}[0m\n", lines(&line.to_string())).as_bytes())
            }
            None => self.line(line),
        }
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value);
        let text = text.map_err(|error| Failure::new(Exit::Undecided, error.to_string()))?;
        // An escape that JSON does not know would make it another text.
        self.write(format!("{text}\n").as_bytes())
    }

    /// Writes out what is held back.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.output.flush();
        self.note(flushed)
    }

    fn note(&mut self, written: io::Result<()>) -> Result<(), Failure> {
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.is_closed = true,
            written => written.map_err(|error| {
                Failure::new(Exit::Undecided, format!("the output cannot be written: {error}"))
            })?,
        }
        Ok(())
    }

    /// Writes a message to the errors.
    pub(crate) fn complain(&mut self, message: &str) {
        let label = if self.colours_errors() { "\u{1b}[31mpolylimit\u{1b}[0m" } else { "polylimit" };
        self.show_error(&format!("{label}: {}\n", lines(message)));
    }

    /// Writes to the errors as it is. There is no place to report that this fails.
    pub(crate) fn show_error(&mut self, text: &str) {
        let _ = self.flush();
        let _ = self.errors.write_all(text.as_bytes());
    }

    pub(crate) fn can_ask(&self) -> bool {
        self.can_ask
    }

    /// Asks a question that `y` or `yes` affirms.
    pub(crate) fn confirm(&mut self, question: &str) -> Result<bool, Failure> {
        self.show_error(&format!("{} [y/N] ", lines(question)));
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        read.map_err(|error| Failure::new(Exit::Undecided, format!("the answer cannot be read: {error}")))?;
        Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    /// Writes what is left and returns how the command ends.
    pub(crate) fn finish(&mut self, exit: Exit) -> Exit {
        match self.flush() {
            Ok(()) => exit,
            Err(failure) => {
                self.complain(&failure.message);
                failure.exit
            }
        }
    }
}

/// A text whose lines are escaped.
fn lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// Has the standard streams wait where they would refuse. A parent in Node, such as npx, makes its pipes refuse, and shares them with
/// this process, whose writes would fail once their reader is behind.
fn block_streams() {
    #[cfg(unix)]
    {
        let _ = rustix::io::ioctl_fionbio(io::stdin(), false);
        let _ = rustix::io::ioctl_fionbio(io::stdout(), false);
        let _ = rustix::io::ioctl_fionbio(io::stderr(), false);
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").field("is_quiet", &self.is_quiet).finish_non_exhaustive()
    }
}
