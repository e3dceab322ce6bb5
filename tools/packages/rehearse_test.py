#!/usr/bin/env python3
"""Packages that a registry would refuse: the rehearsal of their upload has to refuse them as well."""

import importlib.machinery
import importlib.util
import json
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("rehearse", str(HERE / "rehearse"))
rehearse = importlib.util.module_from_spec(importlib.util.spec_from_loader("rehearse", loader))
loader.exec_module(rehearse)

VERSION = "1.2.3"
MODULE = "polylimit.dev/polylimit"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><groupId>dev.polylimit</groupId><artifactId>polylimit</artifactId>
<version>1.2.3</version><name>n</name><description>d</description><url>u</url><licenses><license><name>MIT</name></license></licenses>
<developers><developer><name>a</name></developer></developers>{scm}</project>"""
SCM = "<scm><url>u</url><connection>c</connection></scm>"


class Uploads(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        (self.folder / "MANIFEST.json").write_text(json.dumps({"version": VERSION, "files": []}))

    def rehearsal(self) -> "rehearse.Rehearsal":
        return rehearse.Rehearsal(self.folder, verify=False)

    def write_jars(self, pom: str) -> None:
        (self.folder / f"polylimit-{VERSION}.pom").write_text(pom)
        for part in (".jar", "-sources.jar", "-javadoc.jar"):
            (self.folder / f"polylimit-{VERSION}{part}").write_bytes(b"jar")

    def write_module(self, version: str = f"v{VERSION}", required: str = "", **files: str) -> None:
        served = self.folder / "go" / MODULE / "@v"
        served.mkdir(parents=True)
        described = f"module {MODULE}\n\ngo 1.25\n{required}"
        (served / f"v{VERSION}.mod").write_text(described)
        (served / f"v{VERSION}.info").write_text(json.dumps({"Version": version}))
        with zipfile.ZipFile(served / f"v{VERSION}.zip", "w") as packed:
            for name, text in {"go.mod": described, "a.go": "package polylimit\n", **files}.items():
                packed.writestr(f"{MODULE}@v{VERSION}/{name}", text)

    def test_bundle_is_signed_and_complete(self) -> None:
        self.write_jars(POM.format(scm=SCM))
        rehearsal = self.rehearsal()
        self.assertEqual(rehearsal.maven(), "4 files, each with a signature and 4 checksums")
        self.assertEqual(rehearsal.lacking, [])

    def test_pom_without_a_repository_is_reported(self) -> None:
        self.write_jars(POM.format(scm=""))
        rehearsal = self.rehearsal()
        rehearsal.maven()
        self.assertIn("scm/url", rehearsal.lacking[0])

    def test_pom_without_a_licence_is_refused(self) -> None:
        self.write_jars(POM.format(scm=SCM).replace("MIT", ""))
        with self.assertRaisesRegex(rehearse.UploadError, "lacks licenses/license/name"):
            self.rehearsal().maven()

    def test_missing_sources_are_refused(self) -> None:
        self.write_jars(POM.format(scm=SCM))
        (self.folder / f"polylimit-{VERSION}-sources.jar").unlink()
        with self.assertRaisesRegex(rehearse.UploadError, "lacks polylimit-1.2.3-sources.jar"):
            self.rehearsal().maven()

    def test_pom_of_another_version_is_refused(self) -> None:
        self.write_jars(POM.format(scm=SCM).replace("1.2.3", "1.2.4"))
        with self.assertRaisesRegex(rehearse.UploadError, "lacks polylimit-1.2.4.pom"):
            self.rehearsal().maven()

    def test_module_passes(self) -> None:
        self.write_module()
        self.assertEqual(self.rehearsal().go(), "1 modules")

    def test_module_with_an_impossible_file_is_refused(self) -> None:
        self.write_module(**{"a b?.go": "package polylimit\n"})
        with self.assertRaisesRegex(rehearse.UploadError, "malformed file path"):
            self.rehearsal().go()

    def test_module_that_requires_another_version_of_a_module_of_ours_is_refused(self) -> None:
        self.write_module(required="require polylimit.dev/other v1.0.0\n")
        with self.assertRaisesRegex(rehearse.UploadError, "not the same version"):
            self.rehearsal().go()

    def test_info_of_another_version_is_refused(self) -> None:
        self.write_module(version="v9.9.9")
        with self.assertRaisesRegex(rehearse.UploadError, "is of version"):
            self.rehearsal().go()

    def test_absent_packages_are_refused(self) -> None:
        for kind in ("python", "npm", "gems", "maven", "go", "lists"):
            with self.subTest(kind), self.assertRaises(rehearse.UploadError):
                getattr(self.rehearsal(), kind)()


if __name__ == "__main__":
    done = unittest.main(exit=False, verbosity=0).result
    broken = len(done.failures) + len(done.errors)
    print(f"test result: {'FAILED' if broken else 'ok'}. {done.testsRun - broken} passed; {broken} failed;")
    sys.exit(broken > 0)
