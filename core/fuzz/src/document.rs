//! Any bytes are a document, or are refused at a place within them; a document that is read has canonical JSON, which is the same
//! document. Any two texts are an entry, or are refused.

use polylimit::ErrorKind;
use polylimit::testing::document::{read_document, read_entry};

/// A document that entries are checked against.
const DOCUMENT: &[u8] = b"polylimit = 1
policies.p = { quotas = '5/minute', plans.gold = '9/minute', lease = 'auto' }
policies.q = { quotas = '5/minute', elastic = { policy = 'f', key = 'all' } }
policies.f.quotas = '9/s'
";

/// The bytes are the document; also the text of an entry, and after the first line break its value.
pub fn run(bytes: &[u8]) {
    match read_document(bytes) {
        Ok(canonical) => assert_eq!(read_document(canonical.as_bytes()).as_ref(), Ok(&canonical)),
        Err((line, column, message)) => {
            let mut lines = bytes.split(|byte| *byte == b'\n');
            let at = lines.nth(line - 1).expect("the line is one of the text");
            assert!(column >= 1 && column <= at.len() + 1, "{line}:{column}: {message}");
            assert!(!message.is_empty() && message.len() < 2_000 && !message.ends_with('.'), "{message}");
        }
    }
    let Ok(text) = str::from_utf8(bytes) else { return };
    let (text, value) = text.split_once('\n').unwrap_or((text, "{}"));
    if let Err(refused) = read_entry(text, value, DOCUMENT) {
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.message().len() < 2_000 && !refused.message().ends_with('.'), "{refused}");
    }
}
