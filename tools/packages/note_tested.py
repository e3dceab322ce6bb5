"""Writes what the tests have run into the manifest of a folder, and prints its table: note_tested.py FOLDER RESULTS

Each line of the results is a file and what it ran with, with a tab between them.
"""

import json
import sys
from pathlib import Path

import contents

folder, results = Path(sys.argv[1]), Path(sys.argv[2])
manifest = json.loads((folder / "MANIFEST.json").read_text())
files = {each["file"]: each for each in manifest["files"]}
for line in results.read_text().splitlines():
    file, _, runtime = line.partition("\t")
    tested = files[file]["tested"]
    if runtime not in tested:
        tested.append(runtime)
(folder / "MANIFEST.json").write_text(json.dumps(manifest, indent=1) + "\n")
contents.print_table(manifest["files"])
