//! Completions for shells and manual pages, made from the arguments.

use std::fs;
use std::path::Path;

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

/// The page of polylimit itself, or of a command, such as `policies put`.
pub(crate) fn man(command: &[String], terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut program = Arguments::command();
    // Hands the options that all commands share on to each of them.
    program.build();
    let mut page = &program;
    for name in command {
        page = page.find_subcommand(name).ok_or_else(|| {
            let names: Vec<_> = page.get_subcommands().map(clap::Command::get_name).collect();
            let place = page.get_display_name().unwrap_or_else(|| page.get_name()).replace('-', " ");
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Failure::usage(format!("{place} has no command {name:?}: there are {there}"))
        })?;
    }
    let mut text = Vec::new();
    Man::new(page.clone())
        .render(&mut text)
        .map_err(|error| Failure::new(Exit::Undecided, error.to_string()))?;
    terminal.write(&text)?;
    Ok(Exit::Fine)
}

/// The pages of polylimit and of all commands, also of those in commands, as files in a folder.
pub(crate) fn man_pages(folder: &Path) -> Result<Exit, Failure> {
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), folder))
        .map_err(|error| Failure::of_file(folder, &error))?;
    Ok(Exit::Fine)
}
