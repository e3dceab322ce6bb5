//! Compiles every mutant of a file into it: `a + b` becomes a `match` of the mutant that is on, with `a - b` as one of its arms.
//!
//! Operands are evaluated as before and written once, so that nested operators do not multiply the code. Each arm has a line of its
//! own that ends with the number of its mutant: so the error of a mutant that does not compile names it.

mod constants;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::LineColumn;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::list::{Genre, Place, Points};
pub(crate) use constants::Constants;

/// What the changed code asks: the number of the mutant that is on, 0 for none. A test run with the other variable writes the
/// numbers of the places that it reaches.
pub(crate) const SWITCH: &str = r#"
#[doc(hidden)]
pub(crate) mod woven_mutants {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, OnceLock};

    static ON: OnceLock<u32> = OnceLock::new();
    static REACHED: OnceLock<Option<Mutex<std::fs::File>>> = OnceLock::new();
    static SEEN: [AtomicBool; 1 << 14] = [const { AtomicBool::new(false) }; 1 << 14];

    pub(crate) fn on(place: u32) -> u32 {
        let on = *ON.get_or_init(|| std::env::var("POLYLIMIT_MUTANT").map_or(0, |it| it.parse().unwrap()));
        if on == 0 && !SEEN[place as usize].swap(true, Ordering::Relaxed) {
            let file = REACHED.get_or_init(|| {
                let path = std::env::var_os("POLYLIMIT_REACHED")?;
                Some(Mutex::new(std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap()))
            });
            if let Some(file) = file {
                file.lock().unwrap().write_all(format!("{place}\n").as_bytes()).unwrap();
            }
        }
        on
    }

    /// What a function returns whose type only its body says: what a mutant does, or what the function does.
    pub(crate) enum Either<L, R> {
        Left(L),
        Right(R),
    }

    impl<L: Iterator, R: Iterator<Item = L::Item>> Iterator for Either<L, R> {
        type Item = L::Item;

        fn next(&mut self) -> Option<L::Item> {
            match self {
                Self::Left(it) => it.next(),
                Self::Right(it) => it.next(),
            }
        }
    }

    pub(crate) fn of<T, I: Iterator<Item = T>>(items: I) -> I {
        items
    }
}
"#;

const ON: &str = "crate::woven_mutants::on";
const EITHER: &str = "crate::woven_mutants::Either";

/// The changed text, and the numbers of the mutants in it; those that are neither there nor unviable are of forms that cannot share a
/// build.
pub(crate) struct Woven {
    pub(crate) text: String,
    pub(crate) numbers: BTreeSet<u32>,
    /// Those that are seen not to compile.
    pub(crate) unviable: BTreeSet<u32>,
}

/// Changes a file at the places of its mutants, but for those in `without`; `const` stays with the functions in `constant`. Wherever it
/// names a constant that has mutants, it takes the value of the one that is on.
pub(crate) fn weave(
    path: &Path,
    source: &str,
    points: &Points,
    without: &BTreeSet<u32>,
    constant: &BTreeSet<String>,
    constants: &Constants,
) -> Result<Woven> {
    let file = syn::parse_file(source).context("parsing")?;
    let mut weaver = Weaver {
        source,
        points,
        without,
        constant,
        opens: Vec::new(),
        closes: Vec::new(),
        cuts: Vec::new(),
        numbers: BTreeSet::new(),
        unviable: BTreeSet::new(),
    };
    weaver.visit_file(&file);
    let of_constants = constants.insertions(path, source, points, without, constant)?;
    let is_kept = |at: usize| !weaver.cuts.iter().any(|cut| cut.contains(&at));
    weaver.opens.extend(of_constants.opens.into_iter().filter(|(at, _)| is_kept(*at)));
    // Those that end where an operand does are within it.
    let closes = of_constants.closes.into_iter().filter(|(at, _)| is_kept(at.saturating_sub(1)));
    weaver.closes = closes.chain(weaver.closes).collect();
    weaver.numbers.extend(of_constants.numbers);
    let (numbers, unviable) = (std::mem::take(&mut weaver.numbers), std::mem::take(&mut weaver.unviable));
    Ok(Woven { numbers, unviable, text: weaver.text() })
}

struct Weaver<'a> {
    source: &'a str,
    points: &'a Points,
    without: &'a BTreeSet<u32>,
    constant: &'a BTreeSet<String>,
    /// Insertions at a place, outer ones first.
    opens: Vec<(usize, String)>,
    /// Insertions before those of `opens` at the same place, inner ones first.
    closes: Vec<(usize, String)>,
    cuts: Vec<Range<usize>>,
    numbers: BTreeSet<u32>,
    unviable: BTreeSet<u32>,
}

impl Weaver<'_> {
    /// The mutants at a place, with their replacements.
    fn at(&self, genre: Genre, start: LineColumn) -> Vec<(u32, String)> {
        let place = Place { line: start.line, column: start.column + 1 };
        let mutants = self.points.get(&(genre, place)).map(Vec::as_slice).unwrap_or_default();
        let usable = mutants.iter().filter(|(number, _)| !self.without.contains(number));
        usable.map(|(number, it)| (*number, it.replacement.clone())).collect()
    }

    fn wove(&mut self, mutants: &[(u32, String)]) {
        self.numbers.extend(mutants.iter().map(|(number, _)| *number));
    }

    fn source_of(&self, spanned: &impl Spanned) -> String {
        self.source[spanned.span().byte_range()].to_owned()
    }

    /// The arms of a `match` of the mutant that is on.
    fn arms(mutants: &[(u32, String)], otherwise: &str, arm: impl Fn(&str) -> String) -> String {
        let mut text = format!("match {ON}({}) {{\n", mutants[0].0);
        for (number, replacement) in mutants {
            let _ = writeln!(text, "{number} => {}, /*mutant {number}*/", arm(replacement));
        }
        let numbers: Vec<String> = mutants.iter().map(|(number, _)| number.to_string()).collect();
        let _ = writeln!(text, "_ => {otherwise}, /*place {}*/", numbers.join(" "));
        text + "}"
    }

    fn binary(&mut self, it: &syn::ExprBinary) {
        let mutants = self.at(Genre::BinaryOperator, it.op.span().start());
        let (left, right, op) =
            (it.left.span().byte_range(), it.right.span().byte_range(), it.op.span().byte_range());
        let sign = self.source_of(&it.op);
        let kind = Operator::of(&it.op);
        if mutants.is_empty() || (kind == Operator::Lazy && (has_let(&it.left) || has_let(&it.right))) {
            // A `let` stands between `&&` only.
            self.unviable.extend(mutants.iter().map(|(number, _)| *number));
            return visit::visit_expr_binary(self, it);
        }
        self.wove(&mutants);
        self.cuts.push(op.clone());
        match kind {
            Operator::Value => {
                self.opens.push((left.start, "(match (".into()));
                visit::visit_expr(self, &it.left);
                self.closes.push((left.end, ", ".into()));
                visit::visit_expr(self, &it.right);
                let arms = Self::arms(&mutants, &format!("__l {sign} __r"), |sign| format!("__l {sign} __r"));
                self.closes.push((right.end, format!(") {{ (__l, __r) => {arms} }})")));
            }
            Operator::Comparison => {
                self.opens.push((left.start, "(match (&(".into()));
                visit::visit_expr(self, &it.left);
                self.closes.push((left.end, "), &(".into()));
                visit::visit_expr(self, &it.right);
                let arms =
                    Self::arms(&mutants, &format!("*__l {sign} *__r"), |sign| format!("*__l {sign} *__r"));
                self.closes.push((right.end, format!(")) {{ (__l, __r) => {arms} }})")));
            }
            // `a && b` is `if a { b } else { a }`; that of `||` has its branches exchanged.
            Operator::Lazy => {
                let (number, test) = (mutants[0].0, if sign == "&&" { "!=" } else { "==" });
                self.opens.push((left.start, "({ let __l: bool = ".into()));
                visit::visit_expr(self, &it.left);
                let open = format!("; if __l {test} ({ON}({number}) == {number}) /*mutant {number}*/ {{ ");
                self.closes.push((left.end, open));
                visit::visit_expr(self, &it.right);
                self.closes.push((right.end, " } else { __l } })".into()));
            }
            Operator::Assignment => {
                let target = self.source_of(&*it.left);
                self.cuts.push(left.clone());
                self.opens.push((left.start, "(match (".into()));
                visit::visit_expr(self, &it.right);
                let arms = Self::arms(&mutants, &format!("{{ {target} {sign} __r; }}"), |sign| {
                    format!("{{ {target} {sign} __r; }}")
                });
                self.closes.push((right.end, format!(") {{ __r => {arms} }})")));
            }
        }
    }

    /// Returns the values of a function's mutants before it does anything; false for a function that has to stay constant.
    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) -> bool {
        let start = block
            .stmts
            .first()
            .map_or_else(|| block.brace_token.span.close().start(), |it| it.span().start());
        let mutants = self.at(Genre::FnValue, start);
        let at = block.stmts.first().map_or_else(
            || block.brace_token.span.close().byte_range().start,
            |statement| statement.span().byte_range().start,
        );
        if let Some(constness) = &signature.constness {
            if self.constant.contains(&signature.ident.to_string()) {
                return false;
            }
            self.cuts.push(constness.span.byte_range());
        }
        if self.opaque(signature, block, at, &mutants) {
            return true;
        }
        for (number, value) in &mutants {
            let place = mutants[0].0;
            self.opens.push((
                at,
                format!("\nif {ON}({place}) == {number} {{ return {value}; }} /*mutant {number}*/\n"),
            ));
        }
        self.wove(&mutants);
        true
    }

    /// Makes a function of an iterator whose type only its body says choose between that and the values of its mutants; false for all other
    /// functions.
    fn opaque(
        &mut self,
        signature: &syn::Signature,
        block: &syn::Block,
        at: usize,
        mutants: &[(u32, String)],
    ) -> bool {
        let syn::ReturnType::Type(_, returned) = &signature.output else { return false };
        let parts: Vec<&syn::Type> = match &**returned {
            syn::Type::Tuple(tuple) => tuple.elems.iter().collect(),
            only => vec![only],
        };
        let opaque = parts.iter().position(|part| matches!(part, syn::Type::ImplTrait(_)));
        let (Some(opaque), Some((place, _))) = (opaque, mutants.first()) else { return opaque.is_some() };
        let Some(item) = item_of(parts[opaque]).map(|item| self.source_of(item)) else { return true };
        let names: Vec<String> = (0..parts.len()).map(|part| format!("__{part}")).collect();
        // Every mutant is the left one of what the others have left.
        let either = |depth: usize, side: &str| {
            let before = format!("{EITHER}::Right(").repeat(depth);
            let (open, close) = match side {
                "Left" => (format!("{before}{EITHER}::Left("), ")".repeat(depth + 1)),
                _ => (before, ")".repeat(depth)),
            };
            let mut names = names.clone();
            names[opaque] = format!("{open}{}{close}", names[opaque]);
            names.join(", ")
        };
        let pattern = names.join(", ");
        let mut open = format!("match {ON}({place}) {{\n");
        for (depth, (number, value)) in mutants.iter().enumerate() {
            let _ = writeln!(
                open,
                "{number} => {{ let ({pattern}) = {value}; let {name} = crate::woven_mutants::of::<{item}, _>({name}); ({}) }} /*mutant {number}*/",
                either(depth, "Left"),
                name = names[opaque],
            );
        }
        let numbers: Vec<String> = mutants.iter().map(|(number, _)| number.to_string()).collect();
        let _ = writeln!(open, "_ => {{ /*place {}*/\nlet ({pattern}) = {{", numbers.join(" "));
        self.opens.push((at, open));
        let end = block.brace_token.span.close().byte_range().start;
        self.closes.push((end, format!("}}; ({}) }} }}", either(mutants.len(), "Right"))));
        self.wove(mutants);
        true
    }

    fn text(mut self) -> String {
        let mut edits: Vec<(usize, u8, usize, String)> = Vec::new();
        for (order, (at, text)) in self.closes.drain(..).enumerate() {
            edits.push((at, 0, order, text));
        }
        for (order, (at, text)) in self.opens.drain(..).enumerate() {
            edits.push((at, 1, order, text));
        }
        edits.sort_by_key(|(at, kind, order, _)| (*at, *kind, *order));
        let mut text = String::new();
        let mut from = 0;
        let is_cut = |at: usize| self.cuts.iter().any(|cut| cut.contains(&at));
        let copy = |text: &mut String, range: Range<usize>| {
            text.extend(
                self.source[range.clone()]
                    .char_indices()
                    .filter(|(at, _)| !is_cut(range.start + at))
                    .map(|it| it.1),
            );
        };
        for (at, _, _, inserted) in edits {
            copy(&mut text, from..at);
            text.push_str(&inserted);
            from = at;
        }
        copy(&mut text, from..self.source.len());
        text
    }
}

impl<'ast> Visit<'ast> for Weaver<'_> {
    fn visit_expr_binary(&mut self, it: &'ast syn::ExprBinary) {
        self.binary(it);
    }

    fn visit_expr_unary(&mut self, it: &'ast syn::ExprUnary) {
        let mutants = self.at(Genre::UnaryOperator, it.op.span().start());
        if mutants.is_empty() {
            return visit::visit_expr_unary(self, it);
        }
        self.wove(&mutants);
        let sign = self.source_of(&it.op);
        self.cuts.push(it.op.span().byte_range());
        self.opens.push((it.span().byte_range().start, "(match (".into()));
        visit::visit_expr_unary(self, it);
        let arms = Self::arms(&mutants, &format!("{sign}__x"), |_| "__x".into());
        self.closes.push((it.span().byte_range().end, format!(") {{ __x => {arms} }})")));
    }

    fn visit_expr_match(&mut self, it: &'ast syn::ExprMatch) {
        let deleted: Vec<String> = it
            .arms
            .iter()
            .flat_map(|arm| self.at(Genre::MatchArm, arm.span().start()))
            .map(|(number, _)| number.to_string())
            .collect();
        if !deleted.is_empty() {
            // Where the compiler misses a pattern, it names the scrutinee, which this line has.
            let scrutinee = it.expr.span().byte_range().start;
            self.opens.push((scrutinee, format!("\n/*arms {}*/", deleted.join(" "))));
        }
        visit::visit_expr_match(self, it);
    }

    fn visit_arm(&mut self, it: &'ast syn::Arm) {
        let deletions = self.at(Genre::MatchArm, it.span().start());
        let condition = deletions.first().map(|(number, _)| format!("{ON}({number}) != {number}"));
        self.wove(&deletions);
        for attribute in &it.attrs {
            self.visit_attribute(attribute);
        }
        match &it.pat {
            syn::Pat::Guard(guarded) => {
                let range = guarded.guard.span().byte_range();
                let mutants = self.at(Genre::MatchArmGuard, guarded.guard.span().start());
                self.visit_pat(&guarded.pat);
                if mutants.is_empty() && condition.is_none() {
                    self.visit_expr(&guarded.guard);
                } else if has_let(&guarded.guard) {
                    if binds_what_is_used(&guarded.guard, &it.body) {
                        self.unviable.extend(mutants.iter().map(|(number, _)| *number));
                    }
                    if let Some(condition) = condition {
                        self.opens.push((range.start, format!("{condition} && ")));
                    }
                    self.visit_expr(&guarded.guard);
                } else {
                    let condition = condition.map(|it| format!("{it} && ")).unwrap_or_default();
                    let mut tests = String::new();
                    for (number, value) in &mutants {
                        let _ = write!(tests, "\n{number} => {value}, /*mutant {number}*/");
                    }
                    let open = match mutants.first() {
                        Some((place, _)) => format!("{condition}(match {ON}({place}) {{ {tests}\n _ => ("),
                        None => format!("{condition}("),
                    };
                    self.opens.push((range.start, open));
                    self.visit_expr(&guarded.guard);
                    self.closes
                        .push((range.end, if mutants.is_empty() { ")".into() } else { ") })".into() }));
                    self.wove(&mutants);
                }
            }
            pattern => {
                self.visit_pat(pattern);
                if let Some(condition) = condition {
                    self.closes.push((pattern.span().byte_range().end, format!(" if {condition}")));
                }
            }
        }
        self.visit_expr(&it.body);
    }

    fn visit_expr_struct(&mut self, it: &'ast syn::ExprStruct) {
        let Some(rest) = &it.rest else { return visit::visit_expr_struct(self, it) };
        let path = self.source_of(&it.path);
        let base = match self.source_of(&**rest) {
            default if default == "Default::default()" => format!("<{path} as Default>::default()"),
            base => base,
        };
        for field in &it.fields {
            let mutants = self.at(Genre::StructField, field.span().start());
            let (Some((number, _)), syn::Member::Named(name)) = (mutants.first(), &field.member) else {
                self.visit_expr(&field.expr);
                continue;
            };
            let range = field.expr.span().byte_range();
            let colon = if field.colon_token.is_some() { String::new() } else { format!("{name}: ") };
            self.opens.push((
                range.start,
                format!("{colon}\nif {ON}({number}) == {number} {{ ({base}).{name} }} /*mutant {number}*/ else {{ "),
            ));
            self.visit_expr(&field.expr);
            self.closes.push((range.end, " }".into()));
            self.wove(&mutants);
        }
        self.visit_expr(rest);
    }

    // What the compiler evaluates cannot depend on a variable.

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}

    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_type_array(&mut self, _: &'ast syn::TypeArray) {}

    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        if !is_test(&it.attrs) && self.body(&it.sig, &it.block) {
            visit::visit_item_fn(self, it);
        }
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        if self.body(&it.sig, &it.block) {
            visit::visit_impl_item_fn(self, it);
        }
    }

    fn visit_trait_item_fn(&mut self, it: &'ast syn::TraitItemFn) {
        if it.default.as_ref().is_some_and(|block| self.body(&it.sig, block)) {
            visit::visit_trait_item_fn(self, it);
        }
    }

    fn visit_item_mod(&mut self, it: &'ast syn::ItemMod) {
        if !is_test(&it.attrs) {
            visit::visit_item_mod(self, it);
        }
    }
}

/// Of tests nothing is changed, nor made less constant.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|it| match &it.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        meta => meta.path().is_ident("test"),
    })
}

/// What an iterator yields whose type is not named.
fn item_of(opaque: &syn::Type) -> Option<&syn::Type> {
    let syn::Type::ImplTrait(it) = opaque else { return None };
    it.bounds.iter().find_map(|bound| {
        let syn::TypeParamBound::Trait(bound) = bound else { return None };
        let last = bound.path.segments.last().filter(|last| last.ident == "Iterator")?;
        let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
        arguments.args.iter().find_map(|argument| match argument {
            syn::GenericArgument::AssocType(it) if it.ident == "Item" => Some(&it.ty),
            _ => None,
        })
    })
}

/// Whether a condition is a chain with a `let`.
fn has_let(condition: &syn::Expr) -> bool {
    match condition {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(it) if matches!(it.op, syn::BinOp::And(_)) => {
            has_let(&it.left) || has_let(&it.right)
        }
        _ => false,
    }
}

/// Whether the body of an arm has a name that its guard binds.
fn binds_what_is_used(guard: &syn::Expr, body: &syn::Expr) -> bool {
    #[derive(Default)]
    struct Names {
        bound: BTreeSet<String>,
        used: BTreeSet<String>,
    }

    impl<'ast> Visit<'ast> for Names {
        fn visit_pat_ident(&mut self, it: &'ast syn::PatIdent) {
            self.bound.insert(it.ident.to_string());
        }

        fn visit_expr_path(&mut self, it: &'ast syn::ExprPath) {
            self.used.extend(it.path.get_ident().map(ToString::to_string));
        }

        fn visit_macro(&mut self, it: &'ast syn::Macro) {
            let tokens = it.tokens.to_string();
            let is_name = |sign: char| !sign.is_alphanumeric() && sign != '_';
            self.used.extend(tokens.split(is_name).map(str::to_owned));
        }
    }

    let (mut of_guard, mut of_body) = (Names::default(), Names::default());
    of_guard.visit_expr(guard);
    of_body.visit_expr(body);
    !of_guard.bound.is_disjoint(&of_body.used)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Value,
    Comparison,
    Lazy,
    Assignment,
}

impl Operator {
    fn of(operator: &syn::BinOp) -> Self {
        use syn::BinOp::{
            AddAssign, And, BitAndAssign, BitOrAssign, BitXorAssign, DivAssign, Eq, Ge, Gt, Le, Lt,
            MulAssign, Ne, Or, RemAssign, ShlAssign, ShrAssign, SubAssign,
        };
        match operator {
            And(_) | Or(_) => Self::Lazy,
            Eq(_) | Lt(_) | Le(_) | Ne(_) | Ge(_) | Gt(_) => Self::Comparison,
            AddAssign(_) | SubAssign(_) | MulAssign(_) | DivAssign(_) | RemAssign(_) | BitXorAssign(_)
            | BitAndAssign(_) | BitOrAssign(_) | ShlAssign(_) | ShrAssign(_) => Self::Assignment,
            _ => Self::Value,
        }
    }
}

#[cfg(test)]
mod tests;
