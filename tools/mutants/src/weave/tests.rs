//! A woven program does what the mutant that is on would do, and without one what it did before.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::list::{Mutant, Span};

/// Prints what its functions return; each mutant changes one line of it.
const PROGRAM: &str = r#"
#[derive(Clone, Copy)]
struct Pair { a: u64, b: u64 }
const BASE: Pair = Pair { a: 1, b: 1 };
const fn constant() -> u64 { 7 }
const KEPT: u64 = constant() + 1;
const ROOM: [u64; KEPT as usize] = [0; KEPT as usize];
fn sum(a: u64, b: u64) -> u64 { a + b * 2 }
fn all(a: u64, calls: &mut u64) -> bool { a > 1 && { *calls += 1; a < 9 } }
fn not(a: bool) -> bool { !a }
fn arm(a: u64) -> u64 { match a { 1 => 10, x if x > 4 => 20, _ => 30 } }
fn chain(a: Option<u64>) -> u64 { if let Some(b) = a && b > 1 { b } else { 0 } }
fn bound(a: Option<u64>) -> u64 { match a { _ if let Some(b) = a => b, _ => chain(a) } }
fn field(a: u64) -> Pair { Pair { a, ..BASE } }
fn assign(mut a: u64) -> u64 { a += 3; a }
fn whole() -> u64 { constant() }
fn items(a: u64) -> impl Iterator<Item = u64> { 0..a }
fn pair(a: u64) -> (u64, impl Iterator<Item = u64>) { (a, 0..a) }
fn main() {
    let mut calls = 0;
    println!("{} {} {} {calls}", sum(5, 4), all(5, &mut calls), all(1, &mut calls));
    println!("{} {} {} {}", not(true), arm(1), arm(5), arm(2));
    println!("{} {} {} {} {}", field(4).a, field(4).b, assign(8), whole(), KEPT);
    let (first, items_of_pair) = pair(3);
    assert_eq!(bound(Some(2)), chain(Some(2)));
    println!("{} {} {first} {}", kept::twice(), items(4).sum::<u64>(), items_of_pair.count() + ROOM.len());
}
mod kept {
    use super::KEPT;
    pub fn twice() -> u64 { KEPT * 2 }
}
"#;

/// The line and the column of a text in the program, the first time after another one.
fn place(after: &str, text: &str) -> Place {
    let from = PROGRAM.find(after).unwrap();
    let at = from + PROGRAM[from..].find(text).unwrap();
    let before = &PROGRAM[..at];
    let line = before.matches('\n').count() + 1;
    Place { line, column: at - before.rfind('\n').unwrap() }
}

fn mutant(genre: Genre, start: Place, replacement: &str) -> Mutant {
    let (file, name) = ("main.rs".into(), String::new());
    Mutant { file, genre, name, replacement: replacement.into(), span: Span { start } }
}

fn output(program: &Path, on: usize) -> String {
    let run = Command::new(program).env("POLYLIMIT_MUTANT", on.to_string()).output().unwrap();
    String::from_utf8(run.stdout).unwrap()
}

#[test]
fn woven_program_does_what_each_mutant_does() {
    let before = "13 true false 1\nfalse 10 20 30\n4 1 11 7 8\n16 6 3 11\n";
    // What each changes in the output.
    let mutants = [
        (mutant(Genre::BinaryOperator, place("fn sum", "+"), "-"), ("13 true", "OVERFLOW")),
        (mutant(Genre::BinaryOperator, place("fn sum", "+"), "*"), ("13 true", "40 true")),
        (mutant(Genre::BinaryOperator, place("fn sum", "* 2"), "+"), ("13 true", "11 true")),
        (mutant(Genre::BinaryOperator, place("fn all", "&&"), "||"), ("true false 1", "true true 1")),
        (mutant(Genre::BinaryOperator, place("fn all", "> 1"), "<"), ("true false 1", "false false 0")),
        (mutant(Genre::UnaryOperator, place("fn not", "!a"), ""), ("false 10", "true 10")),
        (mutant(Genre::MatchArm, place("fn arm", "1 =>"), ""), ("10 20 30", "30 20 30")),
        (mutant(Genre::MatchArmGuard, place("fn arm", "x > 4"), "true"), ("10 20 30", "10 20 20")),
        (mutant(Genre::MatchArmGuard, place("fn arm", "x > 4"), "false"), ("10 20 30", "10 30 30")),
        (mutant(Genre::StructField, place("fn field", "a, .."), ""), ("4 1 11", "1 1 11")),
        (mutant(Genre::BinaryOperator, place("fn assign", "+="), "-="), ("1 11 7", "1 5 7")),
        (mutant(Genre::FnValue, place("fn whole", "constant"), "0"), ("11 7 8", "11 0 8")),
        (mutant(Genre::BinaryOperator, place("const KEPT", "+"), "-"), ("8\n16", "6\n12")),
        (mutant(Genre::FnValue, place("fn items", "0..a"), "::std::iter::empty()"), ("16 6", "16 0")),
        (mutant(Genre::FnValue, place("fn items", "0..a"), "::std::iter::once(1)"), ("16 6", "16 1")),
        (mutant(Genre::FnValue, place("fn pair", "(a, 0..a)"), "(0, ::std::iter::once(1))"), ("3 11", "0 9")),
    ];
    let unviable = [
        mutant(Genre::BinaryOperator, place("fn chain", "&&"), "||"),
        mutant(Genre::MatchArmGuard, place("fn bound", "let Some(b)"), "true"),
    ];
    let mut points = Points::new();
    for (number, mutant) in (1..).zip(mutants.iter().map(|(mutant, _)| mutant).chain(&unviable)) {
        points.entry((mutant.genre, mutant.span.start)).or_default().push((number, mutant.clone()));
    }
    let constant = BTreeSet::from(["constant".to_owned()]);
    let (path, none) = (Path::new("main.rs"), BTreeSet::new());
    let mut constants = Constants::default();
    constants.add(path, PROGRAM, &points, &none).unwrap();
    let woven = weave(path, PROGRAM, &points, &none, &constant, &constants).unwrap();
    assert_eq!((woven.numbers, woven.unviable), ((1..=16).collect(), BTreeSet::from([17, 18])));

    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("main.rs"), folder.path().join("program"));
    std::fs::write(&source, woven.text + SWITCH).unwrap();
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    compiler.args(["--edition=2024", "--cap-lints=allow", "-o"]).args([&program, &source]);
    assert!(compiler.status().unwrap().success());
    assert_eq!(output(&program, 0), before);
    for (number, (_, (old, new))) in (1..).zip(&mutants) {
        // Whether overflow panics depends on how it is compiled.
        if *new != "OVERFLOW" {
            assert_eq!(output(&program, number), before.replacen(old, new, 1), "{number}");
        }
    }
    let reached = folder.path().join("reached");
    assert!(Command::new(&program).env("POLYLIMIT_REACHED", &reached).output().unwrap().status.success());
    let places: BTreeSet<u32> =
        std::fs::read_to_string(reached).unwrap().lines().map(|it| it.parse().unwrap()).collect();
    assert_eq!(places, BTreeSet::from([1, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 16]));
}

#[test]
fn what_is_left_out_stays_as_it_was() {
    let first = mutant(Genre::BinaryOperator, place("fn sum", "+"), "-");
    let points = Points::from([((first.genre, first.span.start), vec![(1, first)])]);
    let all_constant = BTreeSet::from(["constant".to_owned()]);
    let (path, without) = (Path::new("main.rs"), BTreeSet::from([1]));
    let mut constants = Constants::default();
    constants.add(path, PROGRAM, &points, &without).unwrap();
    let woven = weave(path, PROGRAM, &points, &without, &all_constant, &constants).unwrap();
    assert!(woven.text == PROGRAM && woven.numbers.is_empty());
}
