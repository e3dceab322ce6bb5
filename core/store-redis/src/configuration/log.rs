//! The log of changes: a stream in which each record names the previous one.

use redis::Value;

use polylimit_document::source::snapshot::EntryChange;

/// One change of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The stream's id: the server's time in milliseconds, and a number.
    pub(crate) id: Box<str>,
    pub(crate) version: u64,
    /// The id of the previous record; empty for the first.
    after: Box<str>,
    pub(crate) by: Box<str>,
    pub(crate) why: Box<str>,
    pub(crate) change: RecordedChange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordedChange {
    /// A document with this digest.
    Document(Box<str>),
    Entries(Vec<EntryChange>),
}

/// The result of reading the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogRead {
    /// All changes since, the oldest first.
    Records(Vec<Record>),
    /// Changes are missing: the log was cut, or written by something else.
    Gap,
}

/// Reads the reply to `XREAD` of one stream from a record on; `None` for a reply of another form.
pub(super) fn read_log(reply: Value, after: &str) -> Option<LogRead> {
    let Value::Array(streams) = reply else {
        return matches!(reply, Value::Nil).then(|| LogRead::Records(Vec::new()));
    };
    let [Value::Array(stream)] = <[Value; 1]>::try_from(streams).ok()? else { return None };
    let [_, Value::Array(records)] = <[Value; 2]>::try_from(stream).ok()? else { return None };
    let mut read: Vec<Record> = Vec::with_capacity(records.len());
    for record in records {
        let before = read.last().map_or(after, |before| &before.id);
        match read_record(record) {
            Some(record) if *record.after == *before => read.push(record),
            _ => return Some(LogRead::Gap),
        }
    }
    Some(LogRead::Records(read))
}

/// Reads the reply to `XREVRANGE`, without the records that something else has written.
pub(super) fn read_range(reply: Vec<Value>) -> impl Iterator<Item = Record> {
    reply.into_iter().filter_map(read_record)
}

fn read_record(record: Value) -> Option<Record> {
    let Value::Array(record) = record else { return None };
    let [id, Value::Array(fields)] = <[Value; 2]>::try_from(record).ok()? else { return None };
    let (mut version, mut after, mut by, mut why) = (None, None, None, None);
    let (mut digest, mut changes) = (None, Vec::new());
    let mut fields = fields.into_iter();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        let (name, value) = (text(name)?, text(value)?);
        match &*name {
            "version" => version = value.parse().ok(),
            "after" => after = Some(value),
            "by" => by = Some(value),
            "why" => why = Some(value),
            "document" => digest = Some(value),
            _ if name.contains(' ') => {
                let value = Some(value).filter(|value| !value.is_empty());
                changes.push(EntryChange { entry: name, value });
            }
            // A field of a later version.
            _ => {}
        }
    }
    let change = match digest {
        Some(digest) => RecordedChange::Document(digest),
        None => RecordedChange::Entries(changes),
    };
    let (by, why) = (by.unwrap_or_default(), why.unwrap_or_default());
    Some(Record { id: text(id)?, version: version?, after: after?, by, why, change })
}

fn text(value: Value) -> Option<Box<str>> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok().map(String::into_boxed_str),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn record(id: &str, fields: &[&str]) -> Value {
        Value::Array(vec![bulk(id), Value::Array(fields.iter().copied().map(bulk).collect())])
    }

    fn reply(records: Vec<Value>) -> Value {
        Value::Array(vec![Value::Array(vec![bulk("log"), Value::Array(records)])])
    }

    #[test]
    fn records_that_follow_each_other_are_read() {
        let first = record("5-0", &["version", "8", "after", "4-1", "by", "a", "why", "b", "document", "d1"]);
        let second = record(
            "5-1",
            &["version", "9", "after", "5-0", "deny user x", "{}", "allow user y", "", "later", "z"],
        );
        let Some(LogRead::Records(read)) = read_log(reply(vec![first.clone(), second.clone()]), "4-1") else {
            panic!()
        };
        assert_eq!((&*read[0].by, &*read[0].why, read[0].version), ("a", "b", 8));
        assert_eq!(read[0].change, RecordedChange::Document("d1".into()));
        let change = |entry: &str, value: Option<&str>| EntryChange {
            entry: entry.into(),
            value: value.map(Into::into),
        };
        let changes = vec![change("deny user x", Some("{}")), change("allow user y", None)];
        assert_eq!((&*read[1].id, &read[1].change), ("5-1", &RecordedChange::Entries(changes)));
        assert_eq!(read_log(reply(vec![first.clone(), second.clone()]), "4-0"), Some(LogRead::Gap));
        assert_eq!(read_log(reply(vec![second, first]), "5-0"), Some(LogRead::Gap));
        assert_eq!(read_log(Value::Nil, ""), Some(LogRead::Records(Vec::new())));
    }

    #[test]
    fn records_of_another_form_are_a_gap() {
        for fields in [&["version", "1"][..], &["after", ""], &["version", "x", "after", ""], &[]] {
            assert_eq!(read_log(reply(vec![record("1-0", fields)]), ""), Some(LogRead::Gap), "{fields:?}");
        }
        let bytes =
            Value::Array(vec![bulk("1-0"), Value::Array(vec![Value::BulkString(vec![0xff]), bulk("")])]);
        assert_eq!(read_log(reply(vec![bytes, Value::Int(1)]), ""), Some(LogRead::Gap));
        for other in [Value::Int(1), Value::Array(vec![]), Value::Array(vec![Value::Nil]), Value::Okay] {
            assert_eq!(read_log(other, ""), None);
        }
    }
}
