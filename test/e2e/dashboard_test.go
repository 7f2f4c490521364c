//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
)

// uiFolder has the sources of the page, and the packages that drive a browser.
const uiFolder = "../../internal/plugin/dashboard/ui"

// dashboard starts kubectl afloat dashboard as a user does, and returns the address that it prints. It ends with
// the test, by Ctrl-C.
func dashboard(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()),
		filepath.Join(os.Getenv("PLUGIN"), "kubectl-afloat"), append([]string{"dashboard"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	said := &strings.Builder{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("after Ctrl-C: %v\n%s", err, said)
		}
	})

	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, found := strings.Cut(strings.TrimSpace(line), "The page is at ")
	if err != nil || !found {
		t.Fatalf("it printed %q: %v\n%s", line, err, said)
	}
	return address
}

// TestDashboard watches a rollout in a browser from its start to its end, and looks at a change that is refused,
// at a rollout that waits and is undone, and at what a user sees who may change nothing. Its pictures are kept in
// bin/dashboard.
// OPS-220 (part), OPS-222 (part), OPS-224 (part).
func TestDashboard(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no Node.js")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("there is no Chromium")
	}
	if _, err := os.Stat(filepath.Join(uiFolder, "node_modules", "playwright-core")); err != nil {
		t.Skip("the packages that drive a browser are not installed")
	}

	// Each pod takes five seconds more, so that a slow browser sees the middle of the rollout, too.
	w := create(t, "web", `
replicas: 6
minReadySeconds: 5
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`)
	ns := w.key.Namespace
	budget := &policyv1beta1.PodUnavailableBudget{}
	document(t, budget, "web", ns, `maxUnavailable: 2`)
	looks := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "looks"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"clonesets"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{"apps"}, Resources: []string{"controllerrevisions"}, Verbs: []string{"list"}},
		},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: looks.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: looks.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "looker-" + ns}},
	}
	for _, create := range []func() error{
		func() error { return kube.Create(t.Context(), budget) },
		func() error { return kube.Create(t.Context(), looks) },
		func() error { return kube.Create(t.Context(), binding) },
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}

	pictures, err := filepath.Abs("../../bin/dashboard")
	if err == nil {
		err = os.MkdirAll(pictures, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	script := exec.CommandContext(t.Context(), node, "--test", "--test-reporter=spec", "test/cluster.mjs")
	script.Dir = uiFolder
	script.Env = append(os.Environ(),
		"ADDRESS="+dashboard(t, "clone/web", "-n", ns),
		"LOOKER="+dashboard(t, "-n", ns, "--as", "looker-"+ns),
		"NAMESPACE="+ns,
		"PICTURES="+pictures)
	out, err := script.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}

	w.settled()
	for name, pod := range w.pods() {
		before := w.seen[name]
		if image := pod.Spec.Containers[0].Image; pod.UID != before.UID || image != "nginx:1.27" {
			t.Errorf("pod %s of UID %q runs %s, want that of UID %q and nginx:1.27", name, pod.UID, image, before.UID)
		}
	}
}
