//! Metadata of a response: texts by names, written in the encoding of a `google.protobuf.Struct`.
//!
//! The type of `prost-types` is a map of owned texts: making, encoding and dropping it took as long as deciding.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// The number of the only field of a `Struct`, and of a `ListValue`.
const ITEMS: u32 = 1;
/// Fields of an entry of the map.
const NAME: u32 = 1;
const VALUE: u32 = 2;
/// Fields of a `google.protobuf.Value`.
const NULL: u32 = 1;
const TEXT: u32 = 3;
const LIST: u32 = 6;

/// A `google.protobuf.Struct`, as it grows.
#[derive(Debug)]
pub(crate) struct Metadata {
    encoded: Vec<u8>,
}

/// The length of a field with this length of contents; every number is below 16, so that its key takes one byte.
fn field_length(contents: usize) -> usize {
    1 + encoded_len_varint(contents as u64) + contents
}

impl Metadata {
    pub(crate) fn new() -> Self {
        Self { encoded: Vec::with_capacity(160) }
    }

    fn begin(&mut self, field: u32, length: usize) {
        encode_key(field, WireType::LengthDelimited, &mut self.encoded);
        encode_varint(length as u64, &mut self.encoded);
    }

    fn bytes(&mut self, field: u32, text: &str) {
        self.begin(field, text.len());
        self.encoded.extend_from_slice(text.as_bytes());
    }

    /// The beginning of an entry, up to its value of this length.
    fn entry(&mut self, name: &str, value: usize) {
        self.begin(ITEMS, field_length(name.len()) + field_length(value));
        self.bytes(NAME, name);
        self.begin(VALUE, value);
    }

    /// Adds a text, or null.
    pub(crate) fn add(&mut self, name: &str, text: Option<&str>) {
        let Some(text) = text else {
            self.entry(name, 2);
            encode_key(NULL, WireType::Varint, &mut self.encoded);
            encode_varint(0, &mut self.encoded);
            return;
        };
        self.entry(name, field_length(text.len()));
        self.bytes(TEXT, text);
    }

    /// Adds a list of texts.
    pub(crate) fn add_list<'a>(&mut self, name: &str, texts: impl Iterator<Item = &'a str> + Clone) {
        let value_of = |text: &str| field_length(text.len());
        let list = texts.clone().map(|text| field_length(value_of(text))).sum();
        self.entry(name, field_length(list));
        self.begin(LIST, list);
        for text in texts {
            self.begin(ITEMS, value_of(text));
            self.bytes(TEXT, text);
        }
    }

    pub(crate) fn encoded(self) -> Vec<u8> {
        self.encoded
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::collections::BTreeMap;

    use prost::Message;
    use prost_types::value::Kind;
    use prost_types::{ListValue, Struct, Value};

    use super::*;

    #[test]
    fn metadata_is_read_as_a_struct() {
        let long = "x".repeat(70_000);
        let texts = ["", "api", &long];
        let mut metadata = Metadata::new();
        metadata.add_list("shadow", texts.into_iter());
        metadata.add_list("none", std::iter::empty());
        metadata.add("policy", Some("api"));
        metadata.add("long", Some(&long));
        metadata.add("cause", None);
        let read = Struct::decode(&*metadata.encoded()).unwrap();
        let value = |kind| Value { kind: Some(kind) };
        let text = |text: &str| value(Kind::StringValue(text.to_owned()));
        let list = |texts: &[&str]| {
            value(Kind::ListValue(ListValue { values: texts.iter().map(|one| text(one)).collect() }))
        };
        let expected = [
            ("shadow", list(&texts)),
            ("none", list(&[])),
            ("policy", text("api")),
            ("long", text(&long)),
            ("cause", value(Kind::NullValue(0))),
        ];
        let fields: BTreeMap<_, _> =
            expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(read, Struct { fields });
    }
}
