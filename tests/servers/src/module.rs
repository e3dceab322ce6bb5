//! The module that a server loads.

use std::env;
use std::path::PathBuf;

const NAME: &str = "libpolylimit_redis.so";

/// The path of polylimit's module. A test that needs it has the crate `polylimit-redis-module` among its dependencies, so that Cargo
/// builds it into the folder of the test's program.
pub fn module() -> PathBuf {
    let program = env::current_exe().expect("the path of this program");
    let folder = program.parent().expect("the folder of this program");
    let found = [folder.join(NAME), folder.join("deps").join(NAME)].into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| {
        panic!("{NAME} is not in {}: cargo build -p polylimit-redis-module", folder.display())
    })
}
