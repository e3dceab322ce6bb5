//! Maps the entries of a descriptor of Envoy's rate limit service to attributes of a request.

/// The names that have another meaning in rules.
const TAKEN: [&str; 8] = ["client", "descriptor", "domain", "during", "header", "key", "method", "path"];

/// The attribute name of each entry of a descriptor of Envoy's rate limit service, from the keys of the entries: the key in
/// lower case, with `_` for each character that names cannot contain. A name that has another meaning in rules, or does not
/// begin with a letter, gets the prefix `entry_`, and the second entry with the same name the suffix `_2`.
///
/// ```
/// let names = polylimit::raw::descriptor_attributes(&["generic_key", "X-Api-Key", "path", "generic_key"]);
/// assert_eq!(names, ["generic_key", "x_api_key", "entry_path", "generic_key_2"]);
/// ```
pub fn descriptor_attributes(keys: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(keys.len());
    for key in keys {
        let allowed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let clean: String = key.chars().map(allowed).collect();
        let is_free = clean.starts_with(|c: char| c.is_ascii_lowercase()) && !TAKEN.contains(&&*clean);
        let base = if is_free { clean } else { format!("entry_{clean}") };
        let mut name = base.clone();
        let mut number = 2;
        while names.contains(&name) {
            name = format!("{base}_{number}");
            number += 1;
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_attributes_and_differ() {
        for (keys, names) in [
            (&["message_type", "to_number"][..], &["message_type", "to_number"][..]),
            (
                &["PATH", "X-Api-Key", "key", "2fa", "_a"],
                &["entry_path", "x_api_key", "entry_key", "entry_2fa", "entry__a"],
            ),
            (
                &["generic_key", "generic_key", "generic_key_2"],
                &["generic_key", "generic_key_2", "generic_key_2_2"],
            ),
            (&["é"], &["entry__"]),
        ] {
            assert_eq!(descriptor_attributes(keys), names);
        }
    }
}
