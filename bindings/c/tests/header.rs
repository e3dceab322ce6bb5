//! Compares the header in the repository with the one that cbindgen generates. `POLYLIMIT_WRITE_HEADER=1` writes it.

use std::path::Path;

#[test]
fn header_is_generated_from_these_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(root, config).unwrap().write(&mut made);
    // The comments that cbindgen itself writes are not those of C89.
    let made = String::from_utf8(made).unwrap().replace("// __cplusplus", "/* __cplusplus */");
    let path = root.join("include/polylimit.h");
    if std::env::var_os("POLYLIMIT_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(
        kept == made,
        "include/polylimit.h is out of date: POLYLIMIT_WRITE_HEADER=1 cargo test -p polylimit-c --test header"
    );
}
