//! A document under generated traffic: the simulation of `tools/simulation`, as JSON.

use polylimit_simulation::{Play, SimulationError};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::arguments::{Result, invalid};

/// Decides the traffic of `play`, and returns what became of it; both are JSON.
///
/// # Errors
/// A part of it is not allowed. Mistakes of the document begin with their line and column.
#[wasm_bindgen]
pub fn simulate(play: &str) -> Result<String> {
    let play: Play = serde_json::from_str(play).map_err(|error| invalid(&error.to_string()))?;
    let played = play.run().map_err(|error: SimulationError| invalid(&error.to_string()))?;
    serde_json::to_string(&played).map_err(|error| JsValue::from(error.to_string()))
}
