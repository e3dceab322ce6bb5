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
    #[serde(default)]
    pub(crate) function: Option<Function>,
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

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Function {
    pub(crate) return_type: String,
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

    /// Whether the function's type is known only from its body, which the mutants of one build share.
    pub(crate) fn has_opaque_type(&self) -> bool {
        self.genre == Genre::FnValue
            && self.function.as_ref().is_some_and(|it| it.return_type.contains("impl "))
    }
}

/// The mutants of one place: of one operator, for example. Their numbers begin at 1, in the order of the list.
pub(crate) type Points = BTreeMap<(Genre, Place), Vec<(u32, Mutant)>>;
