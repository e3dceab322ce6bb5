use super::*;
use crate::tree;

#[test]
fn every_table_of_fields_is_told_apart_by_kinds() {
    // `Either` looks at kinds alone, so its two shapes must not share one.
    fn kinds(shape: &Shape) -> Vec<&'static str> {
        match shape {
            Shape::Text(_) | Shape::Word(_) => vec!["text"],
            Shape::Integer { .. } => vec!["integer"],
            Shape::Boolean => vec!["boolean"],
            Shape::List(_) => vec!["list"],
            Shape::Table(_) | Shape::Map(_) => vec!["table"],
            Shape::Several(shape) => [kinds(shape), vec!["list"]].concat(),
            Shape::Either(first, second) => [kinds(first), kinds(second)].concat(),
        }
    }
    fn check(shape: &Shape) {
        match shape {
            Shape::Several(shape) | Shape::List(shape) | Shape::Map(shape) => check(shape),
            Shape::Table(table) => check_table(table),
            Shape::Either(first, second) => {
                assert!(kinds(first).iter().all(|kind| !kinds(second).contains(kind)), "{shape:?}");
                check(first);
                check(second);
            }
            _ => {}
        }
    }
    fn check_table(table: &Table) {
        table.fields.iter().for_each(|field| check(&field.shape));
        if let Some((_, shape)) = table.others {
            check(shape);
        }
    }
    [&DOCUMENT, &LIST_ENTRY, &OVERRIDE_ENTRY].into_iter().for_each(check_table);
}

#[test]
fn message_says_what_is_allowed() {
    let check = |text: &str| DOCUMENT.check(&tree::parse(text).unwrap()).unwrap_err().message;
    assert_eq!(check("enabled = 1"), "enabled is 1: allowed is true or false");
    assert_eq!(check("policies.p.mode = 'x'"), "mode is \"x\": allowed is \"on\" or \"off\" or \"shadow\"");
    assert_eq!(
        check("policies.p.elastic = { headroom = 100 }"),
        "headroom is 100: allowed is a whole number from 0 to 99"
    );
    assert_eq!(
        check("list = []"),
        "\"list\" is no field of the document: allowed are polylimit, enabled, utc_offset, zone, client, paths, policies, rules, lists"
    );
}
