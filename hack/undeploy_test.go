// Package hack_test runs the scripts that change clusters, with a fake kubectl that records its calls.
package hack_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kubectl appends its arguments to $CALLS, followed by the first line of a manifest that it is to delete. For
// a kustomization its folder is enough.
const kubectl = `#!/usr/bin/env bash
case "$*" in
"kustomize "*) echo "manifests of $2"; exit ;;
"delete --ignore-not-found -f -") read -r what; echo "$* <- $what" >>"$CALLS"; exit ;;
"get crd -o name") printf 'customresourcedefinition.apiextensions.k8s.io/%s\n' clonesets.apps.kruise.io others.example.com ;;
esac
echo "$*" >>"$CALLS"
`

func undeploy(t *testing.T) (calls []string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "calls")
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o700); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	if _, err := os.Stat("undeploy.sh"); err != nil { // so that go runs the test again if the script has changed
		t.Fatal(err)
	}
	script := exec.CommandContext(t.Context(), "./undeploy.sh")
	script.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CALLS="+file, "KUBECONFIG="+filepath.Join(dir, "none"))
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// OPS-118: the webhook configurations are deleted first, while their manager still answers, then conversion,
// then the manager. The manual says how to do the same if the manager is gone already.
func TestWebhooksGoBeforeTheManager(t *testing.T) {
	const configurations = "mutatingwebhookconfiguration/kruise-mutating-webhook-configuration validatingwebhookconfiguration/kruise-validating-webhook-configuration"
	calls := undeploy(t)
	at := func(call string) int {
		for i, c := range calls {
			if strings.HasPrefix(c, call) {
				return i
			}
		}
		t.Fatalf("no %q in\n%s", call, strings.Join(calls, "\n"))
		return -1
	}
	order := []int{at("delete --ignore-not-found " + configurations),
		at("patch customresourcedefinition.apiextensions.k8s.io/clonesets.apps.kruise.io"),
		at("delete --ignore-not-found -f - <- manifests of config/daemon"),
		at("delete --ignore-not-found -f - <- manifests of config/manager"),
		at("delete --ignore-not-found -f - <- manifests of config/rbac")}
	for i := 1; i < len(order); i++ {
		if order[i-1] >= order[i] {
			t.Errorf("out of order:\n%s", strings.Join(calls, "\n"))
		}
	}
	for i, call := range calls[:order[0]] {
		if !strings.HasPrefix(call, "get ") {
			t.Errorf("call %d changes something before the configurations are gone: %s", i, call)
		}
	}
	manual, err := os.ReadFile("../docs/operate/health.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(manual), "\n## While no manager serves\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found || !strings.Contains(section, "delete the two webhook configurations") ||
		!strings.Contains(section, "\nkubectl delete "+configurations+"\n") {
		t.Errorf("the manual does not tell the repair:\n%s", section)
	}
}
