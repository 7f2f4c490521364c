//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/plugin"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// TestTakeoverOnRealKubelets: the installation that runs is taken for that of somebody else, taken over, and
// put back, while pods of a CloneSet run. Nobody writes them or touches their containers, and afterwards they
// are updated in place (OPS-110 (part)).
//
// It replaces the manager of the cluster, so it is not parallel: tests that are wait until it has ended.
// MANIFESTS names the manifests with which the cluster was set up.
func TestTakeoverOnRealKubelets(t *testing.T) {
	manifests := os.Getenv("MANIFESTS")
	if manifests == "" {
		manifests = "../../bin/local"
	}
	w := create(t, "taken", "{replicas: 3, updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible}}}")
	formerTestsGone(t)
	name := client.ObjectKey{Namespace: installation.Namespace, Name: installation.Manager}
	label := func(value string) {
		t.Helper()
		deployment := &appsv1.Deployment{}
		deployment.Namespace, deployment.Name = name.Namespace, name.Name
		body := `{"metadata":{"labels":{"` + installation.PartOf + `":` + value + `}}}`
		if err := kube.Patch(t.Context(), deployment, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	var before appsv1.Deployment
	if err := kube.Get(t.Context(), name, &before); err != nil {
		t.Fatal(err)
	}
	label("null") // now it is somebody else's
	managersBack(t)
	folder := filepath.Join(t.TempDir(), "backup")
	run := func(args ...string) {
		t.Helper()
		reported(t, w)
		since := time.Now()
		pods := w.pods()
		var out bytes.Buffer
		command := plugin.New("kubectl-afloat", genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
		command.SetArgs(append([]string{"takeover", "--yes", "--backup", folder, "--kubeconfig", os.Getenv("KUBECONFIG")}, args...))
		if err := command.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		t.Log(out.String())
		managersBack(t)
		for name, pod := range w.pods() {
			was := pods[name]
			if pod.UID != was.UID || !equality.Semantic.DeepEqual(pod.Spec, was.Spec) || !equality.Semantic.DeepEqual(pod.Labels, was.Labels) ||
				!equality.Semantic.DeepEqual(pod.Annotations, was.Annotations) ||
				pod.Status.ContainerStatuses[0].ContainerID != was.Status.ContainerStatuses[0].ContainerID {
				t.Errorf("pod %s is another: %s", name, gocmp.Diff(was.ObjectMeta, pod.ObjectMeta))
			}
			if writes := podWrites(t, since)[name]; len(writes) > 0 {
				t.Errorf("pod %s took %v", name, writes)
			}
		}
		if !strings.Contains(out.String(), "have the UID, the restarts and the spec that they had") {
			t.Error("it does not say that pods are as they were")
		}
	}
	image := before.Spec.Template.Spec.Containers[0].Image
	for range measured(t) {
		label("null")
		run("--image", image, "--daemon-image", strings.Replace(image, "manager", "daemon", 1), "--manifests", manifests)
		run("--back")
		folder = filepath.Join(t.TempDir(), "backup")
	}
	run("--image", image, "--daemon-image", strings.Replace(image, "manager", "daemon", 1), "--manifests", manifests)
	w.image("nginx:1.27")
	w.settled()
	w.inPlace("nginx:1.27", 1)
	run("--back")
	w.image("nginx:1.26")
	w.settled()
	w.inPlace("nginx:1.26", 2)
	label(`"` + installation.Project + `"`)
	managersBack(t)
}

// measured is how many takeovers, there and back, are made to see how long no manager serves: TAKEOVERS=10.
func measured(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("TAKEOVERS"), "0"))
	if err != nil {
		t.Fatal("TAKEOVERS:", err)
	}
	return n
}

// formerTestsGone waits until the namespaces of earlier tests are gone, because their pods would be missed
// after the takeover.
func formerTestsGone(t *testing.T) {
	t.Helper()
	eventually(t, "the end of namespaces of earlier tests", func(ctx context.Context) string {
		var namespaces corev1.NamespaceList
		if err := kube.List(ctx, &namespaces); err != nil {
			return err.Error()
		}
		for _, namespace := range namespaces.Items {
			if namespace.DeletionTimestamp != nil {
				return namespace.Name
			}
		}
		return ""
	})
}

// reported waits until the node daemons have reported what runs in the pods, which is no consequence of what
// comes next.
func reported(t *testing.T, w *workload) {
	t.Helper()
	eventually(t, "reports of node daemons", func(context.Context) string {
		for name, pod := range w.pods() {
			if !strings.Contains(pod.Annotations[pub.RuntimeContainersMeta], pod.Status.ContainerStatuses[0].ContainerID) {
				return name
			}
		}
		return ""
	})
}
