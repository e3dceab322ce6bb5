//! Every code block of the documentation is compiled or run by a test, and every command in it exists.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "blocks/commands.rs"]
mod commands;
#[path = "blocks/pages.rs"]
mod pages;
#[path = "blocks/paths.rs"]
mod paths;

use std::fs;

use pages::{Page, pages, root};
use polylimit::Limiter;

/// Page, language of its code blocks, and the test that compiles or runs them.
const COVERED: &[(&str, &str, &str)] = &[
    // The pages with examples in Rust are documentation of the crate, so `cargo test` runs them.
    ("docs/start.md", "rust", "core/src/lib.rs"),
    ("docs/rust.md", "rust", "core/src/lib.rs"),
    ("docs/rust.md", "rust,ignore", "tests/spellings/apps/poem/tests/cases/page.rs"),
    ("docs/quotas.md", "rust", "core/src/lib.rs"),
    ("docs/stores.md", "rust", "core/src/lib.rs"),
    ("docs/recipes/api-plans.md", "rust", "core/src/lib.rs"),
    ("docs/recipes/webhooks.md", "rust", "core/src/lib.rs"),
    ("docs/recipes/background-jobs.md", "rust", "core/src/lib.rs"),
    ("docs/http.md", "rust", "core/src/lib.rs"),
    ("docs/grpc.md", "rust", "core/src/lib.rs"),
    ("docs/grpc.md", "go", "bindings/go/polylimitgrpc/example_test.go"),
    ("docs/adaptive.md", "rust", "core/src/lib.rs"),
    ("docs/command-line.md", "console", "tools/cli/tests/commands/documentation.rs"),
    ("docs/command-line.md", "json", "tools/cli/tests/commands/documentation.rs"),
    ("docs/command-line.md", "yaml", "tools/cli/tests/commands/documentation.rs"),
    ("docs/listing.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/listing.md", "rust", "core/src/lib.rs"),
    ("docs/listing.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/listing.md", "go", "bindings/go/listing_page_test.go"),
    ("docs/listing.md", "c", "bindings/c/check"),
    ("docs/listing.md", "kotlin", "bindings/uniffi/kotlin/src/test/kotlin/readme/OperatingPagesTest.kt"),
    ("docs/listing.md", "ruby", "bindings/uniffi/ruby/test/documentation_test.rb"),
    ("docs/local.md", "rust", "core/src/lib.rs"),
    ("docs/metrics.md", "rust", "core/src/lib.rs"),
    ("docs/policies.md", "rust", "core/src/lib.rs"),
    ("docs/policies.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/policies.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/policies.md", "go", "bindings/go/nethttp/configuration_test.go"),
    ("docs/policies.md", "kotlin", "bindings/uniffi/kotlin/src/test/kotlin/readme/PoliciesPageTest.kt"),
    ("docs/policies.md", "ruby", "bindings/uniffi/ruby/test/documentation_test.rb"),
    ("docs/policies.md", "c", "bindings/c/check"),
    ("docs/redis.md", "rust", "core/src/lib.rs"),
    ("docs/reservations.md", "rust", "core/src/lib.rs"),
    ("docs/reservations.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/reservations.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/reservations.md", "go", "bindings/go/reservations_page_test.go"),
    ("docs/reservations.md", "c", "bindings/c/check"),
    ("docs/reservations.md", "kotlin", "bindings/uniffi/kotlin/src/test/kotlin/readme/OperatingPagesTest.kt"),
    ("docs/reservations.md", "ruby", "bindings/uniffi/ruby/test/documentation_test.rb"),
    ("docs/server.md", "console", "tools/cli/tests/commands/serve.rs"),
    // With real frameworks and a real Redis.
    ("docs/recipes/login.md", "python", "tests/recipes/test_recipes.py"),
    ("docs/recipes/api-plans.md", "python", "tests/recipes/test_recipes.py"),
    ("docs/litellm.md", "python", "bindings/python/tests/test_litellm.py"),
    ("docs/litellm.md", "yaml", "bindings/python/tests/test_litellm.py"),
    ("docs/recipes/language-models.md", "python", "tests/recipes/test_recipes.py"),
    ("docs/recipes/model-gateway.md", "python", "tests/recipes/test_recipes.py"),
    ("docs/recipes/model-gateway.md", "console", "tests/recipes/test_recipes.py"),
    ("docs/recipes/webhooks.md", "python", "tests/recipes/test_recipes.py"),
    ("docs/recipes/outgoing-calls.md", "python", "tests/recipes/test_recipes.py"),
    ("docs/recipes/background-jobs.md", "python", "tests/recipes/test_recipes.py"),
    ("docs/recipes/task-queues.md", "python", "tests/recipes/test_recipes.py"),
    ("docs/recipes/login.md", "js", "tests/recipes/recipes.test.cjs"),
    ("docs/recipes/api-plans.md", "js", "tests/recipes/recipes.test.cjs"),
    ("docs/recipes/language-models.md", "js", "tests/recipes/recipes.test.cjs"),
    ("docs/recipes/model-gateway.md", "js", "tests/recipes/recipes.test.cjs"),
    ("docs/recipes/webhooks.md", "js", "tests/recipes/recipes.test.cjs"),
    ("docs/recipes/background-jobs.md", "js", "tests/recipes/recipes.test.cjs"),
    ("docs/recipes/bullmq.md", "js", "tests/recipes/recipes.test.cjs"),
    ("docs/recipes/outgoing-calls.md", "js", "tests/recipes/recipes.test.cjs"),
    ("docs/recipes/login.md", "go", "tests/recipes/run_go"),
    ("docs/recipes/api-plans.md", "go", "tests/recipes/run_go"),
    ("docs/recipes/language-models.md", "go", "tests/recipes/run_go"),
    ("docs/recipes/outgoing-calls.md", "go", "tests/recipes/run_go"),
    ("docs/recipes/webhooks.md", "go", "tests/recipes/run_go"),
    ("docs/recipes/background-jobs.md", "go", "tests/recipes/run_go"),
    ("docs/recipes/webhooks.md", "c", "tests/recipes/run_c"),
    ("docs/recipes/outgoing-calls.md", "c", "tests/recipes/run_c"),
    ("docs/recipes/background-jobs.md", "c", "tests/recipes/run_c"),
    ("docs/recipes/login.md", "kotlin", "tests/recipes/run_kotlin"),
    ("docs/recipes/login.md", "java", "tests/recipes/run_kotlin"),
    ("docs/recipes/api-plans.md", "kotlin", "tests/recipes/run_kotlin"),
    ("docs/recipes/api-plans.md", "java", "tests/recipes/run_kotlin"),
    ("docs/recipes/language-models.md", "kotlin", "tests/recipes/run_kotlin"),
    ("docs/recipes/language-models.md", "java", "tests/recipes/run_kotlin"),
    ("docs/recipes/webhooks.md", "kotlin", "tests/recipes/run_kotlin"),
    ("docs/recipes/webhooks.md", "java", "tests/recipes/run_kotlin"),
    ("docs/recipes/outgoing-calls.md", "kotlin", "tests/recipes/run_kotlin"),
    ("docs/recipes/outgoing-calls.md", "java", "tests/recipes/run_kotlin"),
    ("docs/recipes/background-jobs.md", "kotlin", "tests/recipes/run_kotlin"),
    ("docs/recipes/background-jobs.md", "java", "tests/recipes/run_kotlin"),
    ("docs/recipes/login.md", "ruby", "tests/recipes/recipes_test.rb"),
    ("docs/recipes/api-plans.md", "ruby", "tests/recipes/recipes_test.rb"),
    ("docs/recipes/language-models.md", "ruby", "tests/recipes/recipes_test.rb"),
    ("docs/recipes/webhooks.md", "ruby", "tests/recipes/recipes_test.rb"),
    ("docs/recipes/outgoing-calls.md", "ruby", "tests/recipes/recipes_test.rb"),
    ("docs/recipes/background-jobs.md", "ruby", "tests/recipes/recipes_test.rb"),
    ("docs/recipes/task-queues.md", "ruby", "tests/recipes/recipes_test.rb"),
    // The same blocks as in the pages of the languages.
    ("README.md", "python", "core/tests/docs.rs"),
    ("docs/start.md", "python", "core/tests/docs.rs"),
    ("docs/start.md", "js", "core/tests/docs.rs"),
    ("docs/start.md", "go", "core/tests/docs.rs"),
    ("docs/start.md", "c", "core/tests/docs.rs"),
    ("docs/start.md", "cpp", "core/tests/docs.rs"),
    ("docs/start.md", "kotlin", "core/tests/docs.rs"),
    ("docs/start.md", "java", "core/tests/docs.rs"),
    ("docs/start.md", "ruby", "core/tests/docs.rs"),
    ("docs/start.md", "swift", "core/tests/docs.rs"),
    ("docs/start.md", "console", "core/tests/docs.rs"),
    ("bindings/python/README.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/migrate/from-flask-limiter.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/migrate/from-slowapi.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/migrate/from-aiolimiter.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/migrate/from-django-ratelimit.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/migrate/from-pyrate-limiter.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/clients.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/metrics.md", "python", "bindings/python/tests/test_documentation.py"),
    ("docs/metrics.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/metrics.md", "go", "bindings/go/polylimitprometheus/example_test.go"),
    ("docs/metrics.md", "c", "bindings/c/check"),
    ("docs/metrics.md", "kotlin", "bindings/uniffi/kotlin/src/test/kotlin/readme/OperatingPagesTest.kt"),
    ("docs/metrics.md", "ruby", "bindings/uniffi/ruby/test/documentation_test.rb"),
    ("docs/bundlers.md", "js", "tests/bundlers/bundlers.test.cjs"),
    ("docs/clients.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/clients.md", "kotlin", "bindings/uniffi/kotlin/src/test/kotlin/readme/ClientsPageTest.kt"),
    ("docs/clients.md", "ruby", "bindings/uniffi/ruby/test/documentation_test.rb"),
    ("docs/clients.md", "go", "bindings/go/clients_page_test.go"),
    ("bindings/node/README.md", "js", "bindings/node/tests/package.test.cjs"),
    ("bindings/node/README.md", "ts", "bindings/node/tests/package.test.cjs"),
    ("bindings/wasm/README.md", "js", "bindings/wasm/tests/hosts.test.js"),
    ("docs/migrate/from-express-rate-limit.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/migrate/from-fastify-rate-limit.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/migrate/from-rate-limiter-flexible.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/migrate/from-nestjs-throttler.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/migrate/from-bottleneck.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/migrate/from-p-limit.md", "js", "bindings/node/tests/package.test.cjs"),
    ("docs/migrate/from-upstash-ratelimit.md", "js", "bindings/node/tests/package.test.cjs"),
    ("bindings/c/README.md", "c", "bindings/c/tests/readme"),
    ("bindings/c/README.md", "cpp", "bindings/c/tests/readme"),
    ("bindings/go/README.md", "go", "bindings/go/readme"),
    ("bindings/go/polylimitfasthttp/README.md", "go", "bindings/go/polylimitfasthttp/limit_test.go"),
    (
        "bindings/uniffi/kotlin/README.md",
        "kotlin",
        "bindings/uniffi/kotlin/src/test/kotlin/readme/ReadmeTest.kt",
    ),
    (
        "bindings/uniffi/kotlin/README.md",
        "java",
        "bindings/uniffi/kotlin/src/test/kotlin/readme/ReadmeTest.kt",
    ),
    (
        "bindings/uniffi/kotlin/README.md",
        "properties",
        "bindings/uniffi/kotlin/frameworks/starter/StarterChecks.java",
    ),
    ("bindings/uniffi/ruby/README.md", "ruby", "bindings/uniffi/ruby/test/documentation_test.rb"),
    (
        "docs/migrate/from-bucket4j.md",
        "kotlin",
        "bindings/uniffi/kotlin/src/test/kotlin/readme/MigrationTest.kt",
    ),
    (
        "docs/migrate/from-bucket4j.md",
        "java",
        "bindings/uniffi/kotlin/src/test/kotlin/readme/MigrationTest.kt",
    ),
    ("docs/migrate/from-rack-attack.md", "ruby", "bindings/uniffi/ruby/test/documentation_test.rb"),
    ("docs/migrate/from-redis_rate.md", "go", "bindings/go/migrate_test.go"),
];

#[test]
fn every_code_block_is_covered_by_a_test() {
    let mut used = vec![false; COVERED.len()];
    for Page { path, fenced, .. } in pages() {
        for (line, language) in fenced {
            // The tests below check commands and documents; text is not code.
            if ["sh", "toml", "text"].contains(&language.as_str()) {
                continue;
            }
            let at = COVERED.iter().position(|(page, of, _)| *page == path && *of == language);
            let at =
                at.unwrap_or_else(|| panic!("{path}:{line}: no test covers code blocks of {language:?}"));
            used[at] = true;
        }
    }
    for ((page, language, by), used) in COVERED.iter().zip(used) {
        assert!(used, "{page} has no code block of {language}");
        let name = page.rsplit_once('/').map_or(*page, |(_, name)| name);
        let text = fs::read_to_string(root().join(by)).unwrap();
        assert!(text.contains(name), "{by} does not read {page}");
    }
}

#[test]
fn every_documented_command_exists() {
    let pages = pages();
    let commands: usize = pages.iter().map(|page| page.commands.len()).sum();
    assert!(commands > 50, "only {commands} commands were found");
    for Page { path, commands, .. } in pages {
        let folder = root().join(&path);
        let folder = folder.parent().unwrap();
        for (line, command) in commands {
            if let Err(reason) = commands::check(folder, &command) {
                panic!("{path}:{line}: {command}: {reason}");
            }
        }
    }
}

/// Blocks of TOML are whole documents, which a limiter takes.
#[test]
fn every_document_is_accepted() {
    let pages = pages();
    let documents: usize = pages.iter().map(|page| page.documents.len()).sum();
    assert!(documents > 5, "only {documents} documents were found");
    for Page { path, documents, .. } in pages {
        for (line, document) in documents {
            assert!(document.starts_with("polylimit = 1\n"), "{path}:{line}: this is no document");
            if let Err(error) = Limiter::builder().document(&document).build() {
                panic!("{path}:{line}: {error}");
            }
        }
    }
}

/// A page that names a file, a folder or a link names one that exists.
#[test]
fn every_path_exists() {
    let known = paths::known();
    let mut missing = Vec::new();
    for Page { path, .. } in pages() {
        let here = paths::missing(&path, &known).into_iter();
        missing.extend(here.map(|(line, named)| format!("{path}:{line}: {named}")));
    }
    assert!(missing.is_empty(), "no such file, folder or link target:\n{}", missing.join("\n"));
}
