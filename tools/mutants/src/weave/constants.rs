//! Mutants of constants: a constant for each of them, next to the changed one, and a `match` of the mutant that is on wherever a function
//! or a test names it. Where the compiler needs its value, in a type or another constant, it stays what it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::ON;
use crate::list::{Genre, Place, Points};

/// A constant with mutants.
pub(crate) struct Constant {
    name: String,
    file: PathBuf,
    /// Those of each operator.
    mutants: Vec<Vec<u32>>,
}

/// The constants of a crate that have mutants, and in which of its files which names of constants are.
#[derive(Default)]
pub(crate) struct Constants {
    changed: Vec<Constant>,
    named: BTreeMap<String, Vec<PathBuf>>,
}

/// Insertions into a file, by the byte.
#[derive(Default)]
pub(super) struct Insertions {
    pub(super) opens: Vec<(usize, String)>,
    pub(super) closes: Vec<(usize, String)>,
    /// The mutants of constants that are named: all others change nothing.
    pub(super) numbers: BTreeSet<u32>,
}

impl Constants {
    /// Reads the constants of a file.
    pub(crate) fn add(
        &mut self,
        file: &Path,
        source: &str,
        points: &Points,
        without: &BTreeSet<u32>,
    ) -> Result<()> {
        let mut found = Definitions { source, points, without, each: Vec::new() };
        found.visit_file(&syn::parse_file(source).with_context(|| file.display().to_string())?);
        for Definition { name, mutants, .. } in found.each {
            if !mutants.is_empty() {
                let mutants = mutants.iter().map(|each| each.iter().map(|(number, _)| *number).collect());
                self.changed.push(Constant {
                    name: name.clone(),
                    file: file.to_owned(),
                    mutants: mutants.collect(),
                });
            }
            self.named.entry(name).or_default().push(file.to_owned());
        }
        Ok(())
    }

    /// The constants that a file may name, by their names: a name that several constants have is that of the own file, or of the one
    /// whose tests this file has.
    fn of(&self, file: &Path) -> BTreeMap<&str, &Constant> {
        let usable = self.changed.iter().filter(|constant| {
            let named = &self.named[&constant.name];
            let is_here = named.contains(&file.to_owned());
            let of_tests = file.ancestors().any(|it| {
                it.with_extension("").file_name() == Some("tests".as_ref()) && {
                    it.parent().is_some_and(|parent| parent.with_extension("rs") == constant.file)
                }
            });
            let own = named.iter().filter(|it| **it == constant.file).count();
            own == 1 && (named.len() == 1 || constant.file == file || of_tests && !is_here)
        });
        usable.map(|constant| (&*constant.name, constant)).collect()
    }

    /// What has to be inserted into a file.
    pub(super) fn insertions(
        &self,
        file: &Path,
        source: &str,
        points: &Points,
        without: &BTreeSet<u32>,
        constant: &BTreeSet<String>,
    ) -> Result<Insertions> {
        let known = self.of(file);
        let mut found = Definitions { source, points, without, each: Vec::new() };
        let syntax = syn::parse_file(source).context("parsing")?;
        found.visit_file(&syntax);
        let mut uses = Uses { source, known: &known, constant, insertions: Insertions::default() };
        if !known.is_empty() {
            uses.visit_file(&syntax);
        }
        let mut insertions = uses.insertions;
        for definition in
            found.each.iter().filter(|it| known.get(&*it.name).is_some_and(|known| known.file == file))
        {
            for (number, text) in definition.mutants.iter().flatten() {
                insertions.closes.push((definition.end, format!("\n{text} /*mutant {number}*/\n")));
            }
        }
        Ok(insertions)
    }
}

impl Constant {
    fn numbers(&self) -> impl Iterator<Item = u32> {
        self.mutants.iter().flatten().copied()
    }
}

fn name_of_mutant(name: &str, number: u32) -> String {
    format!("{name}_MUTANT_{number}")
}

struct Definition {
    name: String,
    /// The constants to be inserted, of each operator.
    mutants: Vec<Vec<(u32, String)>>,
    /// Where they are inserted.
    end: usize,
}

struct Definitions<'a> {
    source: &'a str,
    points: &'a Points,
    without: &'a BTreeSet<u32>,
    each: Vec<Definition>,
}

impl Definitions<'_> {
    fn define(
        &mut self,
        item: &impl Spanned,
        vis: &syn::Visibility,
        name: &syn::Ident,
        ty: &syn::Type,
        value: &syn::Expr,
    ) {
        let mut operators = Operators(Vec::new());
        operators.visit_expr(value);
        let text = |spanned: proc_macro2::Span| &self.source[spanned.byte_range()];
        let whole = value.span().byte_range();
        let each = operators.0.iter().filter_map(|operator| {
            let start = operator.start();
            let place = Place { line: start.line, column: start.column + 1 };
            let mutants = self.points.get(&(Genre::BinaryOperator, place))?;
            let (before, after) =
                (whole.start..operator.byte_range().start, operator.byte_range().end..whole.end);
            let texts = mutants.iter().filter(|(number, _)| !self.without.contains(number)).map(
                |(number, mutant)| {
                    let value =
                        [&self.source[before.clone()], &mutant.replacement, &self.source[after.clone()]]
                            .concat();
                    let (name, vis) = (name_of_mutant(&name.to_string(), *number), text(vis.span()));
                    (
                        *number,
                        format!("{vis} const {name}: {} = {};", text(ty.span()), value.replace('\n', " ")),
                    )
                },
            );
            Some(texts.collect()).filter(|texts: &Vec<_>| !texts.is_empty())
        });
        let mutants = each.collect();
        self.each.push(Definition { name: name.to_string(), mutants, end: item.span().byte_range().end });
    }
}

impl<'ast> Visit<'ast> for Definitions<'_> {
    fn visit_item_const(&mut self, it: &'ast syn::ItemConst) {
        self.define(it, &it.vis, &it.ident, &it.ty, &it.expr);
    }

    fn visit_impl_item_const(&mut self, it: &'ast syn::ImplItemConst) {
        self.define(it, &it.vis, &it.ident, &it.ty, &it.expr);
    }
}

/// The operators of an expression.
struct Operators(Vec<proc_macro2::Span>);

impl<'ast> Visit<'ast> for Operators {
    fn visit_expr_binary(&mut self, it: &'ast syn::ExprBinary) {
        self.0.push(it.op.span());
        visit::visit_expr_binary(self, it);
    }
}

struct Uses<'a> {
    source: &'a str,
    known: &'a BTreeMap<&'a str, &'a Constant>,
    /// Functions that stay constant.
    constant: &'a BTreeSet<String>,
    insertions: Insertions,
}

impl Uses<'_> {
    /// A path of an expression, from one byte to another, whose last name is that of a constant.
    fn name(&mut self, constant: &Constant, start: usize, end: usize) {
        let path = self.source[start..end].to_owned();
        let numbers: Vec<String> = constant.numbers().map(|number| number.to_string()).collect();
        let mark = format!("/*place {}*/", numbers.join(" "));
        // Each operator is a place of its own.
        let places = constant.mutants.iter().map(|each| format!("{ON}({})", each[0]));
        let mut open = format!("(match {{ {} }} {{ {mark}\n", places.collect::<Vec<_>>().join("; "));
        for number in constant.numbers() {
            let _ = writeln!(open, "{number} => {}, {mark}", name_of_mutant(&path, number));
        }
        self.insertions.numbers.extend(constant.numbers());
        self.insertions.opens.push((start, open + "_ => "));
        self.insertions.closes.push((end, " })".into()));
    }

    fn is_constant(&self, signature: &syn::Signature) -> bool {
        signature.constness.is_some() && self.constant.contains(&signature.ident.to_string())
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: usize, sign: char| matches!(tokens.get(at), Some(TokenTree::Punct(it)) if it.as_char() == sign);
        for (at, token) in tokens.iter().enumerate() {
            let name = match token {
                TokenTree::Group(group) => {
                    self.tokens(group.stream());
                    continue;
                }
                TokenTree::Ident(name) => name,
                _ => continue,
            };
            let Some(constant) = self.known.get(&*name.to_string()).copied() else { continue };
            let mut start = at;
            while start >= 3
                && is(start - 1, ':')
                && is(start - 2, ':')
                && matches!(tokens[start - 3], TokenTree::Ident(_))
            {
                start -= 3;
            }
            let is_defined = start > 0 && matches!(&tokens[start - 1], TokenTree::Ident(it) if it == "const");
            if !is_defined && !is(at + 1, ':') {
                self.name(constant, tokens[start].span().byte_range().start, token.span().byte_range().end);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_expr_path(&mut self, it: &'ast syn::ExprPath) {
        let name = it.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if let Some(constant) = self.known.get(&*name).copied() {
            let range = it.span().byte_range();
            self.name(constant, range.start, range.end);
        }
    }

    fn visit_macro(&mut self, it: &'ast syn::Macro) {
        self.tokens(it.tokens.clone());
    }

    fn visit_use_name(&mut self, it: &'ast syn::UseName) {
        let name = it.ident.to_string();
        if let Some(constant) = self.known.get(&*name) {
            let range = it.ident.span().byte_range();
            let names: Vec<String> = constant.numbers().map(|number| name_of_mutant(&name, number)).collect();
            self.insertions.opens.push((range.start, "{".into()));
            self.insertions.closes.push((range.end, format!(", {}}}", names.join(", "))));
        }
    }

    fn visit_pat(&mut self, it: &'ast syn::Pat) {
        if let syn::Pat::Guard(guarded) = it {
            self.visit_expr(&guarded.guard);
        }
    }

    fn visit_expr_repeat(&mut self, it: &'ast syn::ExprRepeat) {
        self.visit_expr(&it.expr);
    }

    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        if !self.is_constant(&it.sig) {
            self.visit_block(&it.block);
        }
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        if !self.is_constant(&it.sig) {
            self.visit_block(&it.block);
        }
    }

    // What the compiler evaluates.

    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_macro(&mut self, it: &'ast syn::ItemMacro) {
        if it.ident.is_none() {
            visit::visit_item_macro(self, it);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}

    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
}
