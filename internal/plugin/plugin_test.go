package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	out := &bytes.Buffer{}
	cmd := New(program, genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: out, ErrOut: out})
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// Under both of its names the plugin has kubectl's global flags, its commands, and completion for all shells.
// OPS-130 (part): other systems are built by hand.
func TestThePluginHasTheFlagsAndCommandsOfKubectl(t *testing.T) {
	for program, name := range map[string]string{"/usr/bin/kubectl-afloat": "kubectl afloat", "kubectl-kruise": "kubectl kruise",
		"kubectl-afloat.exe": "kubectl afloat"} {
		help, err := run(t, program)
		if err != nil {
			t.Errorf("help of %s: %v", program, err)
		}
		if !strings.Contains(help, name+" [flags]") {
			t.Errorf("help of %s: got %s, want the name %s in it", program, help, name)
		}
	}
	root := New("kubectl-afloat", genericiooptions.IOStreams{})
	var names []string
	for _, cmd := range root.Commands() {
		names = append(names, cmd.Name())
	}
	for _, name := range strings.Fields("scale apply diff patch replace wait kustomize config plugin version api-resources api-versions options " +
		"rollout set create expose exec get describe scaledown migrate plan why restart") {
		if !slices.Contains(names, name) {
			t.Errorf("there is no command %s", name)
		}
	}
	for _, flag := range strings.Fields("kubeconfig context cluster user namespace as as-group server token request-timeout warnings-as-errors profile profile-output") {
		if root.PersistentFlags().Lookup(flag) == nil {
			t.Errorf("there is no flag --%s", flag)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, err := run(t, "kubectl-afloat", "completion", shell); err != nil {
			t.Errorf("completion of %s: %v", shell, err)
		} else if len(out) < 1000 {
			t.Errorf("completion of %s: got %d bytes, want 1000 at least", shell, len(out))
		}
	}
	file := filepath.Join(t.TempDir(), "profile")
	for _, name := range []string{"cpu", "heap", "trace", "mutex"} {
		if _, err := run(t, "kubectl-afloat", "options", "--profile="+name, "--profile-output="+file); err != nil {
			t.Errorf("profile %s: %v", name, err)
		}
		if info, err := os.Stat(file); err != nil {
			t.Errorf("profile %s: %v", name, err)
		} else if info.Size() == 0 {
			t.Errorf("profile %s: the file is empty", name)
		}
	}
	if _, err := run(t, "kubectl-afloat", "options", "--profile=none-such"); err == nil {
		t.Error("an unknown profile is no error")
	}
	if _, err := run(t, "kubectl-afloat", "none"); err == nil {
		t.Error("an unknown command is no error")
	}
}
