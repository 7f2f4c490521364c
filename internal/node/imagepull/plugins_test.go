package imagepull

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"

	"github.com/afloat-project/afloat/internal/node/runtime"
)

const providers = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: login
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.r.io"]
  defaultCacheDuration: 1h
  args: [token]
  env: [{name: USERNAME, value: ann}]
`

// plugin writes a program that answers with a user, counts its calls and keeps its input.
func plugin(t *testing.T, script string) (config, folder string) {
	t.Helper()
	folder = t.TempDir()
	config = filepath.Join(folder, "config.yaml")
	text := "#!/bin/sh\ncd " + folder + "\ncat > input\necho x >> calls\n" + script
	if err := os.WriteFile(config, []byte(providers), 0o600); err != nil {
		t.Fatal(err)
	}
	login := filepath.Join(folder, "login")
	if err := os.WriteFile(login, []byte(text), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	return config, folder
}

const answers = `echo "{\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\"kind\":\"CredentialProviderResponse\",\"cacheKeyType\":\"Registry\",\"auth\":{\"*.r.io\":{\"username\":\"$USERNAME-$1\",\"password\":\"p\"}}}"`

// IMG-137: plugins are called for images that they are configured for, by kubelet's protocol, and their
// answers are cached as long as they say.
func TestPlugins(t *testing.T) {
	config, folder := plugin(t, answers)
	clock := testclock.NewFakeClock(epoch)
	p, err := LoadPlugins(config, folder, clock)
	if err != nil {
		t.Fatal(err)
	}
	calls := func() int {
		data, _ := os.ReadFile(filepath.Join(folder, "calls"))
		return strings.Count(string(data), "x")
	}
	for i, step := range []struct {
		image string
		want  []runtime.Auth
		calls int
	}{
		{"img:1", nil, 0},
		{"a.r.io/img:1", []runtime.Auth{{Username: "ann-token", Password: "p"}}, 1},
		{"a.r.io/other:1", []runtime.Auth{{Username: "ann-token", Password: "p"}}, 1},
		{"b.r.io/img:1", []runtime.Auth{{Username: "ann-token", Password: "p"}}, 2},
	} {
		got, err := p.Credentials(t.Context(), step.image)
		if err != nil {
			t.Errorf("credentials for %s, step %d: %v", step.image, i, err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("credentials for %s, step %d (-want +got):\n%s", step.image, i, diff)
		}
		if n := calls(); n != step.calls {
			t.Errorf("calls of the plugin after %s, step %d: got %d, want %d", step.image, i, n, step.calls)
		}
	}
	input, _ := os.ReadFile(filepath.Join(folder, "input"))
	if want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"b.r.io/img:1"}`; string(
		input) != want {
		t.Errorf("input of the plugin: got %s, want %s", input, want)
	}
	clock.Step(2 * time.Hour)
	for want := 3; want <= 4; want++ {
		if _, err := p.Credentials(t.Context(), "a.r.io/img:1"); err != nil {
			t.Errorf("credentials after their time: %v", err)
		}
		if n := calls(); n != want {
			t.Errorf("calls of the plugin: got %d, want %d", n, want)
		}
		p.Forget()
	}
}

// ND-022, ND-073: without the file there are no plugins; errors are returned, without what the program
// printed.
func TestErrorsOfPluginsTellNothingOfTheirOutput(t *testing.T) {
	p, err := LoadPlugins(filepath.Join(t.TempDir(), "none"), "", nil)
	if err != nil {
		t.Errorf("loading plugins without the file: %v", err)
	}
	if p != nil {
		t.Errorf("plugins without the file: got %v, want none", p)
	}
	for name, text := range map[string]string{"no YAML": "{", "another kind": "kind: Other",
		"a path": strings.Replace(providers, "login", "../login", 1)} {
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadPlugins(file, "", nil); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for script, want := range map[string]string{"echo hunter2": "did not print",
		"echo hunter2; echo no network >&2; exit 3": "exit status 3: no network"} {
		config, folder := plugin(t, script)
		p, err := LoadPlugins(config, folder, testclock.NewFakeClock(epoch))
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Credentials(t.Context(), "a.r.io/img:1")
		if err == nil {
			t.Errorf("a plugin that runs %q: no error", script)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("a plugin that runs %q: got error %v, want one with %q", script, err, want)
		}
		if strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("a plugin that runs %q: its error tells what it printed: %v", script, err)
		}
	}
}

// ND-022, IMG-137: a plugin whose child processes outlive it does not delay the pull: the call ends with the
// context.
func TestPluginWithChildrenIsAbandoned(t *testing.T) {
	config, folder := plugin(t, "sleep 600 & echo $! > child\nwait")
	p, err := LoadPlugins(config, folder, testclock.NewFakeClock(epoch))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pid, _ := os.ReadFile(filepath.Join(folder, "child"))
		if n, err := strconv.Atoi(strings.TrimSpace(string(pid))); err == nil {
			if child, err := os.FindProcess(n); err == nil {
				_ = child.Kill()
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := p.Credentials(ctx, "a.r.io/img:1")
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(20 * time.Second):
		t.Error("the plugin is still waited for, long after its time")
	}
}

// IMG-137: many pulls that begin at once start only a few programs, and one answer is used for all images to
// which it applies.
func TestPluginsAreNotStampeded(t *testing.T) {
	config, folder := plugin(t, `i=0; while [ ! -e go ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i+1)); done`+"\n"+answers)
	p, err := LoadPlugins(config, folder, testclock.NewFakeClock(epoch))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			got, err := p.Credentials(t.Context(), fmt.Sprintf("a.r.io/img%d:1", i))
			if err != nil {
				t.Errorf("credentials for image %d: %v", i, err)
			}
			if len(got) != 1 {
				t.Errorf("credentials for image %d: got %v, want 1", i, got)
			}
		})
	}
	if err := os.WriteFile(filepath.Join(folder, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if data, _ := os.ReadFile(filepath.Join(folder, "calls")); strings.Count(string(data), "x") > pluginCalls {
		t.Errorf("programs that were started: got %d, want %d at most",
			strings.Count(string(data), "x"), pluginCalls)
	}
}
