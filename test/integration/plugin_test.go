//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
)

// kubeconfig is a file by which the plugin reaches the API server.
func kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: apiServer.Host, CertificateAuthorityData: apiServer.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: apiServer.CertData, ClientKeyData: apiServer.KeyData}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// afloat runs the plugin with a manifest, unless that is empty, and returns what it prints and its exit code.
func afloat(t *testing.T, manifest string, args ...string) (out string, code int) {
	t.Helper()
	if manifest != "" {
		path := filepath.Join(t.TempDir(), "manifest.yaml")
		if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-f", path)
	}
	var stdout, stderr bytes.Buffer
	cmd := plugin.New("kubectl-afloat", genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr})
	cmd.SetArgs(append(args, "--kubeconfig="+kubeconfig(t), "--cache-dir="+t.TempDir()))
	err := cmd.ExecuteContext(t.Context())
	var exit exec.CodeExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		code = exit.Code
	default:
		code = 1
		fmt.Fprintln(&stdout, "error:", err)
	}
	if t.Failed() {
		t.Log(stderr.String())
	}
	return stdout.String(), code
}

const planned = `
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata: {name: planned, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: planned}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}
  template:
    metadata: {labels: {app: planned}}
    spec: {containers: [{name: nginx, image: "nginx:1.26"}, {name: log, image: "log:1"}]}
`

// plannedPods are the pods of the CloneSet by name.
func plannedPods(t *testing.T) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := kube.List(t.Context(), &pods, client.InNamespace("default"), client.MatchingLabels{"app": "planned"}); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods.Items
}

// nowRuns reports as a kubelet does of a pod whose containers run and are ready.
func nowRuns(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	node := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "planned"}}
	if pod.Spec.NodeName == "" {
		if err := kube.SubResource("binding").Create(t.Context(), pod, node); err != nil {
			t.Fatal(err)
		}
	}
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		now := metav1.NewTime(time.Now().Add(-time.Minute))
		pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning, nil
		for _, container := range pod.Spec.Containers {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: container.Name, Ready: true, Image: container.Image,
				ImageID: "id:" + container.Image, ContainerID: "containerd://" + container.Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}})
		}
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady || c.Type == corev1.ContainersReady
		})
		for _, of := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: of, Status: corev1.ConditionTrue, LastTransitionTime: now})
		}
		return kube.Status().Update(t.Context(), pod)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestPlanAndWhy (OPS-192: codes 3 and 4 are shown by TestPlanPrintsAndSetsItsExitCode): plan says what the
// manager then does, pod by pod, and writes nothing; why says how far it is.
func TestPlanAndWhy(t *testing.T) {
	if err := kube.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "planned"}}); err != nil {
		t.Fatal(err)
	}
	out, code := afloat(t, planned, "plan")
	if !strings.Contains(out, "CloneSet default/planned (new): 3 pods created, in 1 wave") {
		t.Errorf("plan: got %s, want 3 pods created in 1 wave", out)
	}
	if code != 2 {
		t.Errorf("code of the plan: got %d, want 2", code)
	}
	if len(plannedPods(t)) != 0 {
		t.Error("pods are there: it was applied")
	}
	if out, code := afloat(t, planned, "apply"); code != 0 {
		t.Fatalf("apply: got code %d, want 0: %s", code, out)
	}
	if err := wait(func() error {
		if pods := plannedPods(t); len(pods) != 3 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	out, code = afloat(t, "", "why", "clone/planned")
	for _, part := range []string{"3 pods: 0 done, 0 next, 3 waiting", "it is not scheduled yet"} {
		if !strings.Contains(out, part) {
			t.Errorf("why: got %s, want %q in it", out, part)
		}
	}
	if code != 0 {
		t.Errorf("code of why: got %d, want 0", code)
	}
	for _, pod := range plannedPods(t) {
		nowRuns(t, &pod)
	}
	explained := func() *explain.Explanation {
		e := &explain.Explanation{}
		out, code := afloat(t, "", "why", "clone/planned", "-o", "json")
		if err := json.Unmarshal([]byte(out), e); err != nil {
			t.Fatalf("reading what why says: %v: %s", err, out)
		}
		if code != 0 {
			t.Fatalf("code of why: got %d, want 0: %s", code, out)
		}
		return e
	}
	if err := wait(func() error {
		for _, pod := range explained().Pods {
			if pod.State != explain.Done {
				return fmt.Errorf("%+v", pod)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	next := strings.Replace(planned, "nginx:1.26", "nginx:1.27", 1)
	before := plannedPods(t)
	out, code = afloat(t, next, "plan", "-o", "json")
	preview := &explain.Preview{}
	if err := json.Unmarshal([]byte(out), preview); err != nil {
		t.Fatalf("reading the plan: %v: %s", err, out)
	}
	if code != 2 {
		t.Fatalf("code of the plan: got %d, want 2: %s", code, out)
	}
	var waves [][]string
	for _, wave := range preview.Waves {
		var names []string
		for _, step := range wave.Steps {
			if step.Action != "update in place" || !slices.Equal(step.Restarts, []string{"nginx"}) {
				t.Errorf("step: got %+v, want an update in place that restarts nginx", step)
			}
			names = append(names, step.Pod)
		}
		waves = append(waves, names)
	}
	if len(waves) != 2 || len(waves[0]) != 2 || len(waves[1]) != 1 {
		t.Fatalf("waves: got %v, want one of 2 pods and one of 1", waves)
	}
	if diff := cmp.Diff(before, plannedPods(t)); diff != "" {
		t.Error("the plan wrote:", diff)
	}
	if out, code := afloat(t, next, "apply"); code != 0 {
		t.Fatalf("apply: got code %d, want 0: %s", code, out)
	}
	if err := wait(func() error {
		var updated []string
		for _, pod := range plannedPods(t) {
			if pod.Spec.Containers[0].Image == "nginx:1.27" {
				updated = append(updated, pod.Name)
			}
		}
		slices.Sort(waves[0])
		if !slices.Equal(updated, waves[0]) {
			return fmt.Errorf("updated %v, foreseen %v", updated, waves[0])
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	e := explained()
	if len(e.Pods) != 3 {
		t.Errorf("pods that why explains: got %d, want 3: %+v", len(e.Pods), e)
	}
	if !strings.HasPrefix(e.Waiting, "UpdatedPodsUnavailable") {
		t.Errorf("reason to wait: got %q, want UpdatedPodsUnavailable", e.Waiting)
	}
	out, _ = afloat(t, "", "why", "pod/"+waves[1][0])
	if !strings.Contains(out, waves[1][0]) {
		t.Errorf("why of a pod: got %s, want %s in it", out, waves[1][0])
	}
	if strings.Contains(out, waves[0][0]+"  ") {
		t.Errorf("why of a pod: got %s, want no %s in it", out, waves[0][0])
	}
	for _, args := range [][]string{{"why"}, {"why", "clone/none"}, {"why", "deploy/x"}, {"why", "sts/x"}, {"why", "clone/planned", "-o", "xml"}, {"plan"}} {
		if out, code := afloat(t, "", args...); code != 1 {
			t.Errorf("%v: got code %d, want 1: %s", args, code, out)
		} else if out == "" {
			t.Errorf("%v: nothing is printed", args)
		}
	}
}
