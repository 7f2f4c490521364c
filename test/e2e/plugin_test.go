//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
)

// afloat runs kubectl afloat as a user does, in a namespace, and returns what it prints and its exit code.
func afloat(t *testing.T, namespace string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv("KUBECTL"), append([]string{"afloat", "-n", namespace}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PLUGIN")+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.String(), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), 0
}

// must is afloat where nothing may fail.
func must(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	out, code := afloat(t, namespace, args...)
	if code != 0 {
		t.Fatalf("kubectl afloat %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// says fails unless the text has all the parts.
func says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

// TestPlugin plays a day with kubectl afloat: a plan, the rollout that it foresaw, followed to its end; why;
// going back; a restart in place; pods that are chosen to go. The pods stay the same throughout.
// OPS-130 (part), OPS-140 (part), OPS-145 (part), OPS-146 (part), OPS-150 (part).
func TestPlugin(t *testing.T) {
	t.Parallel()
	w := create(t, "plugin", `
replicas: 4
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}
`)
	ns := w.key.Namespace
	says(t, must(t, ns, "why", "clone/plugin"), "4 pods: 4 done, 0 next, 0 waiting")
	manifest := must(t, ns, "set", "image", "clone/plugin", "nginx=nginx:1.27", "--dry-run=client", "-o", "yaml")
	path := filepath.Join(t.TempDir(), "next.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	out, code := afloat(t, ns, "plan", "-f", path, "-o", "json")
	preview := &explain.Preview{}
	if start := strings.Index(out, "{"); code != 2 || start < 0 || json.Unmarshal([]byte(out[start:]), preview) != nil {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	if n := len(preview.Waves); n != 2 || len(preview.Waves[0].Steps) != 2 || len(preview.Waves[1].Steps) != 2 {
		t.Errorf("%+v", preview.Waves)
	}
	begun := time.Now()
	says(t, must(t, ns, "set", "image", "clone/plugin", "nginx=nginx:1.27"), "plugin", "image updated")
	says(t, must(t, ns, "rollout", "status", "clone/plugin", "--timeout=3m"), "4")
	w.settled()
	w.inPlace("nginx:1.27", 1)
	for _, wave := range preview.Waves {
		for _, step := range wave.Steps {
			if _, there := w.seen[step.Pod]; !there || step.Action != "update in place" || !slices.Equal(step.Restarts, []string{"nginx"}) {
				t.Errorf("foreseen: %+v", step)
			}
		}
	}
	for pod := range w.seen {
		tookAtMost(t, 3, pod, begun)
	}
	says(t, must(t, ns, "rollout", "history", "clone/plugin"), "REVISION", "1", "2")
	must(t, ns, "rollout", "undo", "clone/plugin")
	must(t, ns, "rollout", "status", "clone/plugin", "--timeout=3m")
	w.settled()
	w.inPlace("nginx:1.26", 2)
	must(t, ns, "rollout", "pause", "clone/plugin")
	if out, code := afloat(t, ns, "rollout", "pause", "clone/plugin"); code == 0 || !strings.Contains(out, "already paused") {
		t.Errorf("%d %s", code, out)
	}
	must(t, ns, "set", "image", "clone/plugin", "nginx=nginx:1.27")
	eventually(t, "why says that it is paused", func(context.Context) string {
		if out := must(t, ns, "why", "clone/plugin"); !strings.Contains(out, "4 waiting") || !strings.Contains(out, "Paused") {
			return out
		}
		return ""
	})
	must(t, ns, "rollout", "resume", "clone/plugin")
	must(t, ns, "rollout", "status", "clone/plugin", "--timeout=3m")
	w.settled()
	w.inPlace("nginx:1.27", 3)
}

// TestPluginByHand does what one does by hand: containers restart in place, one pod after the other; a
// command runs in a pod; certain pods go; all kinds are listed and described (OPS-161 (part), OPS-163 (part),
// OPS-164 (part), OPS-165 (part), OPS-166 (part)).
func TestPluginByHand(t *testing.T) {
	t.Parallel()
	w := create(t, "byhand", "replicas: 3\nupdateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible}}\n")
	ns := w.key.Namespace
	var names []string
	for name := range w.seen {
		names = append(names, name)
	}
	slices.Sort(names)
	says(t, must(t, ns, "restart", names[0], "--container", "nginx"), names[0])
	for name, pod := range w.pods() {
		if want := map[bool]int32{true: 1}[name == names[0]]; pod.Status.ContainerStatuses[0].RestartCount != want || pod.UID != w.seen[name].UID {
			t.Errorf("pod %s restarted %d times", name, pod.Status.ContainerStatuses[0].RestartCount)
		}
	}
	must(t, ns, "restart", "clone/byhand", "--container", "nginx")
	for name, pod := range w.pods() {
		if want := map[bool]int32{true: 2, false: 1}[name == names[0]]; pod.Status.ContainerStatuses[0].RestartCount != want || pod.UID != w.seen[name].UID {
			t.Errorf("pod %s restarted %d times", name, pod.Status.ContainerStatuses[0].RestartCount)
		}
	}
	if out, code := afloat(t, ns, "restart", names[0], "--container", "none"); code == 0 || !strings.Contains(out, "none") {
		t.Errorf("%d %s", code, out)
	}
	says(t, must(t, ns, "exec", "clone/byhand", "--", "sh", "-c", "echo here"), "here")
	must(t, ns, "scaledown", "clone/byhand", "--pods", names[1])
	w.settled()
	if _, there := w.pods()[names[1]]; there || len(w.pods()) != 2 {
		t.Errorf("%s is there still, among %d", names[1], len(w.pods()))
	}
	says(t, must(t, ns, "get", "all"), "byhand", "containerrecreaterequest")
	says(t, must(t, ns, "describe", "clone/byhand"), "byhand", names[0])
}

// TestPluginMigrates: a Deployment becomes a CloneSet, replica by replica, with all its availability; a
// StatefulSet of Kubernetes becomes ours with its pods, and goes back, and none of them restarts
// (OPS-167 (part)).
func TestPluginMigrates(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		path := filepath.Join(t.TempDir(), "native.yaml")
		if err := os.WriteFile(path, []byte(`
apiVersion: apps/v1
kind: `+kind+`
metadata: {name: native}
spec:
  replicas: 3
  selector: {matchLabels: {app: `+kind+`}}
  template:
    metadata: {labels: {app: `+kind+`}}
    spec:
      terminationGracePeriodSeconds: 2
      containers: [{name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent}]
`), 0o600); err != nil {
			t.Fatal(err)
		}
		must(t, ns, "apply", "-f", path)
	}
	must(t, ns, "rollout", "status", "deployment/native", "--timeout=3m")
	must(t, ns, "rollout", "status", "statefulset/native", "--timeout=3m")
	must(t, ns, "migrate", "CloneSet", "--from", "Deployment", "--src-name", "native", "--create")
	says(t, must(t, ns, "migrate", "CloneSet", "--from", "Deployment", "--src-name", "native", "--max-surge", "2", "--timeout-seconds", "150"), "moved 3 replicas")
	set := &appsv1beta1.CloneSet{}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "native"}, set); err != nil || set.Status.AvailableReplicas != 3 {
		t.Errorf("%+v %v", set.Status, err)
	}
	before := ordinals(t, ns)
	manifest := filepath.Join(t.TempDir(), "kept.yaml")
	for _, way := range []string{"--from=apps", "--to=apps"} {
		says(t, must(t, ns, "migrate", "StatefulSet", way, "--src-name", "native", "--backup", manifest, "--timeout-seconds", "150"), "taken over 3 of 3 pods")
		if diff := cmp.Diff(before, ordinals(t, ns)); diff != "" {
			t.Error(way, diff)
		}
	}
}

// ordinals are the pods of the StatefulSet, with what would show that they were touched.
func ordinals(t *testing.T, ns string) map[string]string {
	t.Helper()
	var pods corev1.PodList
	if err := kube.List(t.Context(), &pods, client.InNamespace(ns), client.MatchingLabels{"app": "StatefulSet"}); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		found[pod.Name] = fmt.Sprint(pod.UID, pod.Spec.NodeName, pod.Status.ContainerStatuses[0].RestartCount, pod.Status.ContainerStatuses[0].ContainerID)
	}
	return found
}

// TestPluginWithFewRights: a developer who may edit one namespace asks why and plans in it, and is told what
// is not known to him.
func TestPluginWithFewRights(t *testing.T) {
	t.Parallel()
	w := create(t, "developer", `
replicas: 2
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible}}
`)
	ns := w.key.Namespace
	if err := kube.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "developer"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "developer-" + ns}}}); err != nil {
		t.Fatal(err)
	}
	as := "--as=developer-" + ns
	eventually(t, "why answers", func(context.Context) string {
		out, code := afloat(t, ns, "why", "clone/developer", as)
		if code != 0 {
			return out
		}
		says(t, out, "2 pods: 2 done", "Note: the flags of the manager are not known", "Note: you may not list nodes")
		return ""
	})
	if out, code := afloat(t, ns, "why", "sidecarset/none", as); code != 1 || !strings.Contains(out, "cannot get resource") {
		t.Errorf("%d %s", code, out)
	}
	other := namespace(t)
	if out, code := afloat(t, other, "why", "clone/developer", as); code != 1 || !strings.Contains(out, "forbidden") {
		t.Errorf("%d %s", code, out)
	}
}
