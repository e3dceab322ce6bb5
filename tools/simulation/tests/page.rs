//! The commands of docs/simulation.md run; those with generated traffic for a minute of it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::{Path, PathBuf};

use clap::Parser;
use polylimit_simulation::{AnswerStyle, SimulateArguments, SimulationError};

/// As in the program `polylimit`.
#[derive(Parser)]
struct Program {
    #[arg(long)]
    policies: Option<PathBuf>,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    arguments: SimulateArguments,
}

fn answer(program: &Program) -> Result<String, SimulationError> {
    let simulation = program.arguments.simulate(program.policies.as_deref())?;
    program.arguments.write_files(&simulation, |_| ())?;
    program.arguments.answer(&simulation, AnswerStyle { json: program.json, color: false, width: 100 })
}

#[test]
fn commands_of_the_page_run() {
    let page = include_str!("../../../docs/simulation.md");
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let commands: Vec<String> = blocks
        .flat_map(|block| block.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert!(commands.len() > 5);
    let folder = tempfile::tempdir().unwrap();
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/access.log");
    std::fs::copy(log, folder.path().join("access.log")).unwrap();
    let document = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    std::fs::write(folder.path().join("polylimit.toml"), document).unwrap();
    for command in commands {
        let words = words(&command);
        assert_eq!(words[0], "polylimit", "{command}");
        // Files of the page are in the folder.
        let here = |word: &String| {
            let is_file = ["access.log", "polylimit.toml", "simulation.html", "simulation.svg"]
                .contains(&word.as_str());
            if is_file { folder.path().join(word).to_str().unwrap().to_owned() } else { word.clone() }
        };
        let words = words.iter().filter(|word| *word != "simulate").map(here);
        let mut program = Program::try_parse_from(words).unwrap_or_else(|error| panic!("{command}: {error}"));
        if program.arguments.traffic.is_some() {
            program.arguments.duration = Some("1m".to_owned());
        }
        let out = answer(&program).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(!out.is_empty());
    }
    assert!(folder.path().join("simulation.html").is_file());
}

/// The words of a command, with single and double quotes.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
