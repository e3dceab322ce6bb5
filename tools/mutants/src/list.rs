//! The mutants, as `cargo mutants --list --json` names them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// One change of one place in the code.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Mutant {
    pub(crate) file: PathBuf,
    pub(crate) genre: Genre,
    pub(crate) name: String,
    pub(crate) replacement: String,
    pub(crate) span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: Place,
}

/// Lines and columns from 1 on; a column is a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Mutant {
    /// What is changed and in which function, without the place.
    pub(crate) fn change(&self) -> &str {
        let file = self.file.to_string_lossy();
        let rest = self.name.strip_prefix(&*file).unwrap_or(&self.name);
        rest.split_once(": ").map_or(rest, |(_, change)| change)
    }
}

/// The mutants of one place: of one operator, for example. Their numbers begin at 1, in the order of the list.
pub(crate) type Points = BTreeMap<(Genre, Place), Vec<(u32, Mutant)>>;
