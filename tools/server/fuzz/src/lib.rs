//! What the fuzz targets do with their bytes; `tests/fuzz_corpus.rs` of the server replays the corpus through the same
//! functions.

pub mod descriptors;
pub mod forward;
pub mod http_body;
pub mod resp;
