//go:build !polylimit_static

package polylimit_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"polylimit.dev/polylimit"
)

const program = `package main

import (
	"fmt"

	"example.org/dependent"
)

func main() { fmt.Println(dependent.Admits()) }
`

const dependent = `package dependent

import (
	"context"

	"polylimit.dev/polylimit"
	"polylimit.dev/polylimit/nethttp"
)

// Admits returns whether 1/minute admits a request.
func Admits() (bool, error) {
	limiter, err := polylimit.Open("memory:", polylimit.WithPolicy("api", "1/minute"))
	if err != nil {
		return false, err
	}
	defer limiter.Close()
	if _, err := nethttp.New(nethttp.Options{Limiter: limiter}); err != nil {
		return false, err
	}
	decision, err := limiter.Check(context.Background(), polylimit.Key("k"))
	return decision.Allowed, err
}
`

// version is the version of the module in the proxy.
func version() string { return "v" + polylimit.Version() }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// serve puts a module into the folder of a module proxy.
func serve(t *testing.T, proxy, module string, sources fs.FS) {
	t.Helper()
	var packed bytes.Buffer
	files := zip.NewWriter(&packed)
	err := fs.WalkDir(sources, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			// The benchmark is a separate module.
			if _, err := fs.Stat(sources, path+"/go.mod"); err == nil && path != "." {
				return fs.SkipDir
			}
			return nil
		}
		text, err := fs.ReadFile(sources, path)
		if err != nil {
			return err
		}
		file, err := files.Create(module + "@" + version() + "/" + path)
		if err != nil {
			return err
		}
		_, err = file.Write(text)
		return err
	})
	if err := errors.Join(err, files.Close()); err != nil {
		t.Fatal(err)
	}
	served := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	write(t, filepath.Join(served, "list"), version()+"\n")
	write(t, filepath.Join(served, version()+".info"), `{"Version":"`+version()+`"}`)
	write(t, filepath.Join(served, version()+".mod"), string(must(fs.ReadFile(sources, "go.mod"))(t)))
	write(t, filepath.Join(served, version()+".zip"), packed.String())
}

// goes runs the go command on a program whose dependency depends on polylimit. Only the modules of a local proxy are known.
func goes(t *testing.T, environment []string, arguments ...string) (string, error) {
	t.Helper()
	folder := t.TempDir()
	proxy, own := filepath.Join(folder, "proxy"), filepath.Join(folder, "program")
	serve(t, proxy, "polylimit.dev/polylimit", os.DirFS("."))
	serve(t, proxy, "example.org/dependent", fstest.MapFS{
		"go.mod":       {Data: []byte("module example.org/dependent\n\ngo 1.25\n\nrequire polylimit.dev/polylimit " + version() + "\n")},
		"dependent.go": {Data: []byte(dependent)},
	})
	write(t, filepath.Join(own, "go.mod"), "module example.org/program\n\ngo 1.25\n\nrequire example.org/dependent "+version()+"\n")
	write(t, filepath.Join(own, "main.go"), program)
	command := exec.Command("go", arguments...)
	command.Dir = own
	command.Env = append(append(os.Environ(), "GOPROXY=file://"+proxy, "GOFLAGS=-mod=mod -modcacherw", "GOSUMDB=off",
		"GOWORK=off", "GOEXPERIMENT=", "GOMODCACHE="+filepath.Join(folder, "cache")), environment...)
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestTransitiveDependentBuilds(t *testing.T) {
	if output, err := goes(t, nil, "run", "."); err != nil || !strings.HasSuffix(output, "true <nil>\n") {
		t.Error(err, output)
	}
}

func TestBuildWithoutCgoHasOneClearError(t *testing.T) {
	output, err := goes(t, []string{"CGO_ENABLED=0"}, "build", "-o", os.DevNull, ".")
	if err == nil || strings.Count(output, "undefined") != 1 || !strings.Contains(output, "build_with_CGO_ENABLED_1") {
		t.Error(err, output)
	}
}
