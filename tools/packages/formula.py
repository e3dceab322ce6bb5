#!/usr/bin/env python3
"""Writes the formula of Homebrew, which installs the archives of the command line in a folder: formula.py FOLDER VERSION

It names the platforms whose archives are there, by their checksums.
"""

import hashlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Where a release is to be published. There is nothing yet.
DOWNLOADS = "https://polylimit.dev/releases"
#: Blocks of a formula, with what the names of the archives end in.
PLATFORMS = {
    "macos": {"arm": "aarch64-apple-darwin", "intel": "x86_64-apple-darwin"},
    "linux": {"arm": "aarch64-linux-gnu", "intel": "x86_64-linux-gnu"},
}
TEMPLATE = """\
class Polylimit < Formula
  desc "Rate limits on the command-line, and as a server"
  homepage "https://polylimit.dev"
  version "{version}"
  license any_of: ["MIT", "Apache-2.0"]

{platforms}
  def install
    bin.install "polylimit"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/polylimit.bash" => "polylimit"
    zsh_completion.install "completions/_polylimit"
    fish_completion.install "completions/polylimit.fish"
    doc.install "THIRD_PARTY_NOTICES"
    (buildpath/"limits.toml").write <<~TOML
{document}    TOML
    # A file that has been changed stays as it is.
    (etc/"polylimit").install "limits.toml"
  end

  service do
    run [opt_bin/"polylimit", "--policies", etc/"polylimit/limits.toml", "serve"]
    keep_alive true
    error_log_path var/"log/polylimit.log"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/polylimit --version")
    check = "#{{bin}}/polylimit --store file://#{{testpath}}/store check 1/hour brew"
    assert_match "allowed", shell_output(check)
    assert_match "denied", shell_output(check, 1)
  end
end
"""


def platforms(folder: Path, version: str) -> str:
    """The blocks of the platforms whose archives are there."""
    text = ""
    for system, processors in PLATFORMS.items():
        blocks = ""
        for processor, ending in processors.items():
            archive = folder / f"polylimit-cli-{version}-{ending}.tar.gz"
            if archive.exists():
                digest = hashlib.sha256(archive.read_bytes()).hexdigest()
                blocks += f"""\
    on_{processor} do
      url "{DOWNLOADS}/v{version}/{archive.name}"
      sha256 "{digest}"
    end
"""
        text += f"  on_{system} do\n{blocks}  end\n\n" if blocks else ""
    return text


def write(folder: Path, version: str) -> Path | None:
    """Write the formula into the folder, where there are archives for it."""
    found = platforms(folder, version)
    if not found:
        return None
    document = "".join(
        f"      {line}".rstrip() + "\n" for line in (HERE / "debian/limits.toml").read_text().splitlines()[2:]
    )
    path = folder / "polylimit.rb"
    path.write_text(TEMPLATE.format(version=version, platforms=found.removesuffix("\n"), document=document))
    return path


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: formula.py FOLDER VERSION")
    if write(Path(sys.argv[1]), sys.argv[2]) is None:
        sys.exit(f"tools/packages/formula.py: {sys.argv[1]} has no archives of {sys.argv[2]}")


if __name__ == "__main__":
    main()
