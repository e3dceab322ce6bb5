"use strict";

/** What `assert.rejects` and `assert.throws` compare an error with. */
function invalid(message) {
  return { name: "PolylimitError", code: "invalid_argument", message };
}

module.exports = { invalid };
