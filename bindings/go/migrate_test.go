//go:build !polylimit_static

package polylimit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fenced returns the only code block of a language in a page.
func fenced(t *testing.T, page, language string) string {
	t.Helper()
	fence := "\n```" + language + "\n"
	_, rest, _ := strings.Cut(page, fence)
	block, after, ended := strings.Cut(rest, "```\n")
	if !ended || strings.Contains(after, fence) {
		t.Fatalf("the page has not one block of %s", language)
	}
	return block
}

func TestRedisRateGuidePrintsItsDocumentedOutput(t *testing.T) {
	const store = `"redis://localhost"`
	page := string(must(os.ReadFile("../../docs/migrate/from-redis_rate.md"))(t))
	own, folder := must(filepath.Abs("."))(t), t.TempDir()
	url, _ := server(t)
	program := fenced(t, page, "go")
	if strings.Count(program, store) != 2 {
		t.Fatal("the page opens another store")
	}
	write(t, filepath.Join(folder, "go.mod"), "module example.org/page\n\ngo 1.25\n\nrequire polylimit.dev/polylimit "+version()+
		"\n\nreplace polylimit.dev/polylimit => "+own+"\n")
	write(t, filepath.Join(folder, "main.go"), strings.ReplaceAll(program, store, `"`+url+`?deadline=20s"`))
	for _, arguments := range [][]string{{"vet", "."}, {"run", "."}} {
		command := exec.Command("go", arguments...)
		command.Dir, command.Stderr = folder, os.Stderr
		command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOEXPERIMENT=")
		printed, err := command.Output()
		if err != nil || arguments[0] == "run" && string(printed) != fenced(t, page, "text") {
			t.Errorf("%v: %v\n%s", arguments, err, printed)
		}
	}
}
