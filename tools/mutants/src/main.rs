//! Compiles all mutants of the code into one build, each of them off until a variable names it, and runs the tests with each: a
//! build for each mutant takes a hundred times as long. `core/mutants` starts it.
//!
//! `polylimit-mutants WORK LIST REASONS JOBS [cargo test's arguments]...`, in the root of the repository

mod build;
mod list;
mod report;
mod run;
mod weave;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::list::{Genre, Mutant, Place};
use crate::report::Fate;

fn main() -> Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [work, list, reasons, jobs, selection @ ..] = &*arguments else {
        anyhow::bail!("usage: polylimit-mutants WORK LIST REASONS JOBS [cargo test's arguments]...")
    };
    let work = std::path::absolute(work)?;
    let mutants: Vec<Mutant> = serde_json::from_slice(&std::fs::read(list).context("the list")?)?;
    let jobs = jobs.to_string_lossy().parse().context("the number of jobs")?;
    let built = build::build(Path::new("."), &work.join("tree"), &mutants, selection)?;
    let mut places: BTreeMap<u32, u32> = BTreeMap::new();
    let mut first: BTreeMap<(PathBuf, Genre, Place), u32> = BTreeMap::new();
    for (number, mutant) in (1..).zip(&mutants) {
        if !built.unviable.contains(&number) && !built.apart.contains(&number) {
            let place =
                *first.entry((mutant.file.clone(), mutant.genre, mutant.span.start)).or_insert(number);
            places.insert(number, place);
        }
    }
    let found = run::run(&built.programs, &mutants, &places, jobs, &work)?;
    let fates: Vec<Fate> = (1..)
        .take(mutants.len())
        .map(|number| match found.get(&number) {
            Some(fate) => *fate,
            None if built.unviable.contains(&number) => Fate::Unviable,
            None => Fate::Apart,
        })
        .collect();
    for (mutant, fate) in mutants.iter().zip(&fates).filter(|(_, fate)| **fate == Fate::Apart) {
        println!("{fate:?}\t{}", mutant.name);
    }
    report::report(&mutants, &fates, Path::new(reasons))
}
