// Modzip checks the modules in the folder of a module proxy as the go command would before it uses them: modzip FOLDER
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: modzip FOLDER")
		os.Exit(2)
	}
	if err := checkAll(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "modzip:", err)
		os.Exit(1)
	}
}

func checkAll(folder string) error {
	checked := 0
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".zip") {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		escaped, file, found := strings.Cut(filepath.ToSlash(relative), "/@v/")
		if !found {
			return fmt.Errorf("%s is in no folder @v", relative)
		}
		checked++
		return check(path, escaped, strings.TrimSuffix(file, ".zip"))
	})
	if err == nil && checked == 0 {
		return fmt.Errorf("%s has no modules", folder)
	}
	return err
}

// The zip has its names, sizes and paths checked; go.mod and .info have to fit it.
func check(path, escapedPath, escapedVersion string) error {
	name, pathErr := module.UnescapePath(escapedPath)
	version, versionErr := module.UnescapeVersion(escapedVersion)
	if err := errors.Join(pathErr, versionErr); err != nil {
		return err
	}
	mod := module.Version{Path: name, Version: version}
	found, err := zip.CheckZip(mod, path)
	if err != nil {
		return fmt.Errorf("%s: %w", mod, err)
	}
	if err := found.Err(); err != nil {
		return fmt.Errorf("%s: %w", mod, err)
	}
	base := strings.TrimSuffix(path, ".zip")
	unpacked, err := os.MkdirTemp("", "modzip")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unpacked)
	if err := zip.Unzip(filepath.Join(unpacked, "module"), mod, path); err != nil {
		return fmt.Errorf("%s: %w", mod, err)
	}
	inside, err := os.ReadFile(filepath.Join(unpacked, "module", "go.mod"))
	if err != nil {
		return err
	}
	served, err := os.ReadFile(base + ".mod")
	if err != nil {
		return err
	}
	if !bytes.Equal(inside, served) {
		return fmt.Errorf("%s: the go.mod in the zip differs from %s.mod", mod, base)
	}
	parsed, err := modfile.Parse(base+".mod", served, nil)
	if err != nil {
		return err
	}
	if parsed.Module == nil || parsed.Module.Mod.Path != name {
		return fmt.Errorf("%s: its go.mod is of another module", mod)
	}
	// Others see what it requires, and none of what it replaces.
	for _, required := range parsed.Require {
		if strings.HasPrefix(required.Mod.Path, "polylimit.dev/") && required.Mod.Version != version {
			return fmt.Errorf("%s: its go.mod requires %s, and not the same version", mod, required.Mod)
		}
	}
	info, err := os.ReadFile(base + ".info")
	if err != nil {
		return err
	}
	var described struct{ Version string }
	if err := json.Unmarshal(info, &described); err != nil || described.Version != version {
		return fmt.Errorf("%s: %s.info is of version %q: %w", mod, base, described.Version, err)
	}
	fmt.Printf("%s: %d files\n", mod, len(found.Valid))
	return nil
}
