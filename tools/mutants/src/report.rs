//! Compares the mutants that survive with the reasons for which they may.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::list::Mutant;

/// What became of a mutant, from its build to its tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    Caught,
    /// A test that does not end has noticed the mutant.
    Endless,
    Survived,
    /// No test reaches its place.
    Unreached,
    /// It does not compile.
    Unviable,
    /// It cannot share a build with others.
    Apart,
}

impl Fate {
    const ALL: [Self; 6] =
        [Self::Caught, Self::Endless, Self::Unviable, Self::Apart, Self::Unreached, Self::Survived];
}

/// How many mutants of one change may survive, by file and change.
type Reasons = BTreeMap<(String, String), usize>;

/// Prints the numbers of each file, and says whether every survivor has a reason and every reason a survivor.
pub(crate) fn report(mutants: &[Mutant], fates: &[Fate], reasons: &Path) -> Result<()> {
    let mut of_files: BTreeMap<String, BTreeMap<Fate, usize>> = BTreeMap::new();
    let mut survivors: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for (mutant, fate) in mutants.iter().zip(fates) {
        let file = mutant.file.to_string_lossy().into_owned();
        *of_files.entry(file.clone()).or_default().entry(*fate).or_default() += 1;
        if matches!(fate, Fate::Survived | Fate::Unreached) {
            survivors.entry((file, mutant.change().to_owned())).or_default().push(&mutant.name);
        }
    }
    println!("| file | mutants | caught | endless | unviable | apart | unreached | survived |");
    println!("|---|---|---|---|---|---|---|---|");
    for (file, numbers) in &of_files {
        let each = Fate::ALL.map(|fate| numbers.get(&fate).copied().unwrap_or(0).to_string());
        println!("| `{file}` | {} | {} |", numbers.values().sum::<usize>(), each.join(" | "));
    }
    let text = std::fs::read_to_string(reasons).with_context(|| reasons.display().to_string())?;
    let mut reasons = read(&text)?;
    reasons.retain(|(file, _), _| of_files.contains_key(file));
    let mut faults = 0;
    for (key, names) in &survivors {
        let allowed = reasons.remove(key).unwrap_or(0);
        if names.len() != allowed {
            faults += 1;
            println!("{} survive, {allowed} have a reason:", names.len());
            for name in names {
                println!("  {name}");
            }
        }
    }
    for ((file, change), _) in reasons {
        faults += 1;
        println!("{file}: a reason for a mutant that does not survive: {change}");
    }
    if faults > 0 {
        bail!("{faults} changes differ from core/mutants.md");
    }
    Ok(())
}

/// Reads the rows `| change | number | reason |` below headings that name files.
fn read(text: &str) -> Result<Reasons> {
    let mut reasons = Reasons::new();
    let mut file = None;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            file = heading.split('`').nth(1).map(str::to_owned);
        } else if let (Some(file), Some(row)) = (&file, line.strip_prefix("| ")) {
            let cells: Vec<&str> = row.split(" | ").collect();
            let [change, number, _] = &*cells else {
                bail!("a row has a change, a number and a reason: {line}")
            };
            if *change == "change" {
                continue;
            }
            let change = change.trim_matches('`').replace("\\|", "|");
            let number = number.parse().with_context(|| format!("not a number of mutants: {line}"))?;
            if reasons.insert((file.clone(), change), number).is_some() {
                bail!("{file} has two rows of one change: {line}");
            }
        }
    }
    Ok(reasons)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_below_a_file_are_reasons() {
        let text = "# Mutants\n\n| file | number |\n|---|---|\n\n## `a/b.rs`\n\n| change | number | reason |\n|---|---|---|\n\
            | `replace \\|\\| with && in f` | 2 | both are false |\n";
        let reasons = read(text).unwrap();
        assert_eq!(reasons[&("a/b.rs".to_owned(), "replace || with && in f".to_owned())], 2);
        assert_eq!(reasons.len(), 1);
        assert!(read("## `a.rs`\n| `x` | many | y |\n").is_err());
        assert!(read("## `a.rs`\n| `x` | 1 | y |\n| `x` | 1 | y |\n").is_err());
    }
}
