//! Completions for shells and manual pages, made from the arguments.

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::arguments::Arguments;
use crate::exit::{Exit, Failure};
use crate::terminal::Terminal;

pub(crate) fn completions(shell: Shell, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    generate(shell, &mut Arguments::command(), "polylimit", &mut text);
    terminal.write(&text)?;
    Ok(Exit::Fine)
}

pub(crate) fn man(command: Option<&str>, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut program = Arguments::command();
    // Hands the options that all commands share on to each of them.
    program.build();
    let page = match command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).cloned();
            found.ok_or_else(|| {
                let names: Vec<_> = program.get_subcommands().map(clap::Command::get_name).collect();
                Failure::usage(format!("there is no command {name:?}: there are {}", names.join(", ")))
            })?
        }
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text).map_err(|error| Failure::new(Exit::Undecided, error.to_string()))?;
    terminal.write(&text)?;
    Ok(Exit::Fine)
}
