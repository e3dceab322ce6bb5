"use strict";

/** The expected error, for `assert.rejects` and `assert.throws`. */
function invalid(message) {
  return { name: "PolylimitError", code: "invalid_argument", message };
}

module.exports = { invalid };
