//go:build e2e

package docs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a block may take.
const patience = 5 * time.Minute

// TestManual plays the pages of the manual on the cluster of KUBECONFIG, in which the product is installed.
// Pages that change the installation are played one after the other, then the others side by side. KUBECTL,
// HELM and PLUGIN name kubectl, helm and the folder of the plugin. SHARE=2/3 plays the second third of the pages
// that change the installation, which take longest; without it all are played.
//
// IMG-159, IMG-219: the API server, with all webhooks, accepts every example of the manual.
func TestManual(t *testing.T) {
	pages, err := Pages(folders...)
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	for name, path := range map[string]string{"kubectl": os.Getenv("KUBECTL"), "helm": os.Getenv("HELM"), "kubectl-afloat": os.Getenv("PLUGIN") + "/kubectl-afloat"} {
		if absolute, err := filepath.Abs(path); err == nil && path != "" {
			if err := os.Symlink(absolute, filepath.Join(tools, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	alone, together, err := Played(pages, os.Getenv("SHARE"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range alone {
		t.Run(page.Name, func(t *testing.T) { newPlayer(t, page, tools).play() })
	}
	for _, page := range together {
		t.Run(page.Name, func(t *testing.T) {
			t.Parallel()
			newPlayer(t, page, tools).play()
		})
	}
}

// player plays a page.
type player struct {
	*testing.T
	page      Page
	namespace string
	folder    string // in which commands run
	files     string // in which the files of the page are: the same, but for the repository, into which nothing is written
	env       []string
}

func newPlayer(t *testing.T, page Page, tools string) *player {
	t.Helper()
	files := t.TempDir()
	folder := files
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(own, config, 0o600); err != nil {
		t.Fatal(err)
	}
	if page.Matter.Folder == "repository" {
		folder = repository
	}
	p := &player{T: t, page: page, folder: folder, files: files, namespace: "docs-" + page.Name}
	p.env = append(os.Environ(), "KUBECONFIG="+own, "PATH="+tools+":"+os.Getenv("PATH"), "EXPORTED="+filepath.Join(filepath.Dir(own), "exported"))
	p.must("kubectl create namespace " + p.namespace + " && kubectl config set-context --current --namespace=" + p.namespace)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := p.bash(context.Background(), "kubectl get pods -o wide; kubectl get clone,asts,ads; kubectl get events --sort-by=.lastTimestamp | tail -n 15", "")
			t.Log(out)
		}
		if out, err := p.bash(context.Background(), "kubectl delete namespace --wait=false "+p.namespace, ""); err != nil {
			t.Error(err, out)
		}
	})
	return p
}

func (p *player) play() {
	p.Helper()
	var printed string
	for _, block := range p.page.Blocks {
		if !block.Plays() {
			continue
		}
		var err error
		script := block.Text
		switch {
		case block.Matches:
			if missing := Matches(block.Text, printed); missing != "" {
				p.Fatalf("%s:%d: %q was not printed, but\n%s", p.page.File, block.Line, missing, printed)
			}
			continue
		case block.File != "":
			if err := os.WriteFile(filepath.Join(p.files, block.File), []byte(block.Text), 0o600); err != nil {
				p.Fatal(err)
			}
			continue
		case block.Patch != "":
			kind, name, _ := strings.Cut(block.Patch, "/")
			script = "kubectl patch " + kind + " " + name + " --type=merge --patch-file=/dev/stdin"
		case block.Language == "yaml":
			script = "kubectl apply -f -"
		}
		begun := time.Now()
		printed, err = p.bash(p.Context(), script, block.Text)
		var failed *exec.ExitError
		switch {
		case block.Fails && err == nil:
			p.Fatalf("%s:%d: it succeeded:\n%s", p.page.File, block.Line, printed)
		case block.Fails && errors.As(err, &failed):
		case err != nil:
			p.Fatalf("%s:%d: %v after %s:\n%s\nprinted\n%s", p.page.File, block.Line, err, time.Since(begun).Round(time.Second), block.Text, printed)
		}
		p.Logf("%s:%d: %s", p.page.File, block.Line, time.Since(begun).Round(100*time.Millisecond))
	}
}

func (p *player) must(script string) {
	p.Helper()
	if out, err := p.bash(p.Context(), script, ""); err != nil {
		p.Fatalf("%s: %v: %s", script, err, out)
	}
}

// bash runs a script. What it exports is known to the next one.
func (p *player) bash(ctx context.Context, script, input string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", //nolint:gosec // the scripts are those of the manual
		"[ ! -e $EXPORTED ] || . $EXPORTED\ntrap 'export -p >$EXPORTED' EXIT\n"+script)
	cmd.Dir, cmd.Env, cmd.Stdin = p.folder, p.env, strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with what it started
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return out.String(), err
}
