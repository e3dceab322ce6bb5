//! What an addon asks of the linker.

fn main() {
    napi_build::setup();
}
