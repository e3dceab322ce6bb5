//! Pictures as PNG, drawn from the SVG with the fonts of the system.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::error::SimulationError;

/// This many pixels stand for one of the SVG, for screens with a high resolution.
const SCALE: f32 = 2.0;

/// The picture as the bytes of a PNG file.
pub(crate) fn png(svg: &str) -> Result<Vec<u8>, SimulationError> {
    let mut fonts = fontdb::Database::new();
    fonts.load_system_fonts();
    if fonts.is_empty() {
        return Err(SimulationError::File(
            "the system has no fonts: install some, such as fonts-dejavu-core, or write --svg".to_owned(),
        ));
    }
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let failed = |error: String| SimulationError::Internal(format!("the picture cannot be drawn: {error}"));
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let size =
        tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed("it has no size".to_owned()))?;
    let mut pixels =
        Pixmap::new(size.width(), size.height()).ok_or_else(|| failed("it has no size".to_owned()))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(error.to_string()))
}
