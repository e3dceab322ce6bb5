//go:build !polylimit_static

package polylimit_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program in docs/clients.md runs with a server of this test in place of the one that it names.
func TestProgramOfTheClientsPageRuns(t *testing.T) {
	const url = `"https://api.example.com"`
	page := string(must(os.ReadFile("../../docs/clients.md"))(t))
	program := fenced(t, page, "go")
	if strings.Count(program, url) != 1 {
		t.Fatal("the page asks another server")
	}
	asked := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer asked.Close()
	own, folder := must(filepath.Abs("."))(t), t.TempDir()
	write(t, filepath.Join(folder, "go.mod"), "module example.org/page\n\ngo 1.25\n\nrequire polylimit.dev/polylimit "+version()+
		"\n\nreplace polylimit.dev/polylimit => "+own+"\n")
	write(t, filepath.Join(folder, "main.go"), strings.ReplaceAll(program, url, `"`+asked.URL+`"`))
	for arguments, expected := range map[string]string{"vet": "", "run": "200\n"} {
		command := exec.Command("go", arguments, ".")
		command.Dir, command.Stderr = folder, os.Stderr
		command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOEXPERIMENT=")
		if printed, err := command.Output(); err != nil || string(printed) != expected {
			t.Errorf("%v: %v\n%s", arguments, err, printed)
		}
	}
}
