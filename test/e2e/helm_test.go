//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// TestHelmOnRealKubelets: the chart takes the place of the manifests, is upgraded in the middle of a rollout
// and rolled back, and pods are only updated in place, also by an upgrade that fails (OPS-114). It is not
// removed while there is a CloneSet, and is afterwards, leaving definitions that can be read and namespaces
// that can be deleted (OPS-116 (part), OPS-117 (part), OPS-118 (part)).
//
// It replaces the manager of the cluster, so it is not parallel. MANIFESTS names the manifests with which the
// cluster was set up; beside them are the values that make the chart fit this cluster.
func TestHelmOnRealKubelets(t *testing.T) {
	manifests := os.Getenv("MANIFESTS")
	if manifests == "" {
		manifests = "../../bin/local"
	}
	formerTestsGone(t)
	w := create(t, "helmed", `
replicas: 4
minReadySeconds: 4
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}`)
	reported(t, w)
	t.Cleanup(func() { deployAgain(t, manifests) })
	helm(t, "install", "kruise", "../../charts/kruise", "--take-ownership", "--force-conflicts", "--wait", "--timeout", "3m",
		"-f", filepath.Join(manifests, "values.yaml"))
	managersBack(t)
	w.inPlace("nginx:1.26", 0)
	filled := filledIn(t)
	if !strings.Contains(filled, "tls.crt") {
		t.Fatal("there are no certificates")
	}

	w.image("nginx:1.27")
	eventually(t, "the rollout to begin", func(context.Context) string {
		if w.get().Status.UpdatedReplicas == 0 {
			return "no pod is updated"
		}
		return ""
	})
	before := managerSpec(t)
	helm(t, "upgrade", "kruise", "../../charts/kruise", "--reuse-values", "--wait", "--timeout", "3m", "--set-string", "manager.log.level=4")
	managersBack(t)
	if args := strings.Join(managerSpec(t).Containers[0].Args, " "); !strings.Contains(args, "--v=4") {
		t.Error(args)
	}
	w.settled()
	w.inPlace("nginx:1.27", 1)
	reported(t, w)
	since := time.Now()
	if out, err := run(t, "upgrade", "kruise", "../../charts/kruise", "--reuse-values", "--wait", "--timeout", "15s", "--set", "manager.image.tag=absent"); err == nil {
		t.Errorf("an image that there is not: %s", out)
	}
	helm(t, "rollback", "kruise", "1", "--wait", "--timeout", "3m")
	managersBack(t)
	if diff := cmp.Diff(before, managerSpec(t)); diff != "" {
		t.Errorf("rolled back (-before +after):\n%s", diff)
	}
	w.inPlace("nginx:1.27", 1)
	if writes := podWrites(t, since); len(writes) > 0 {
		t.Errorf("pods were written: %v", writes)
	}
	if filledIn(t) != filled {
		t.Error("certificates or the address of the Service are not what they were")
	}

	out, err := run(t, "uninstall", "kruise", "--timeout", "2m")
	if err == nil || !strings.Contains(out, w.key.String()) || !strings.Contains(out, "CloneSet.apps.kruise.io") {
		t.Errorf("%v: it does not name what holds it:\n%s", err, out)
	}
	t.Log(out)
	w.image("nginx:1.26") // the manager serves
	w.settled()
	w.inPlace("nginx:1.26", 2)

	// A namespace with what the manager holds by a finalizer, a job that never ends.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-unserved-"}}
	if err := kube.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	job := &appsv1beta1.ImagePullJob{}
	if err := yaml.Unmarshal([]byte(`
metadata: {name: held, namespace: `+ns.Name+`}
spec: {image: "nginx:1.26", selector: {names: [nowhere]}, completionPolicy: {type: Never}, pullSecrets: [absent]}`), job); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	budget := &policyv1beta1.PodUnavailableBudget{}
	document(t, budget, "kept", w.key.Namespace, "selector: {matchLabels: {app: helmed}}\nmaxUnavailable: 1\ntemplate: null")
	if err := kube.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	if err := kube.Delete(t.Context(), w.get()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the CloneSet", func(ctx context.Context) string {
		if err := kube.Get(ctx, w.key, w.object); !apierrors.IsNotFound(err) {
			return "it is there"
		}
		return ""
	})
	t.Log(helm(t, "uninstall", "kruise", "--wait", "--timeout", "3m"))
	definitions := &unstructured.UnstructuredList{}
	definitions.SetGroupVersionKind(installation.Definitions)
	if err := kube.List(t.Context(), definitions); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for i := range definitions.Items {
		if definition := &definitions.Items[i]; strings.HasSuffix(definition.GetName(), ".kruise.io") {
			kept++
			if strategy := installation.Text(definition.Object, "spec", "conversion", "strategy"); strategy != "None" {
				t.Errorf("%s is converted by %q", definition.GetName(), strategy)
			}
		}
	}
	if kept < 10 {
		t.Errorf("%d definitions are left", kept)
	}
	var configurations admissionregistrationv1.MutatingWebhookConfigurationList
	if err := kube.List(t.Context(), &configurations); err != nil {
		t.Fatal(err)
	}
	for i := range configurations.Items {
		if configurations.Items[i].Name == installation.Mutating {
			t.Error("the webhook configuration is left")
		}
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(budget), budget); err != nil {
		t.Error(err)
	}
	if err := kube.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the namespace", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
			return "it is there"
		}
		return ""
	})
	helm(t, "install", "kruise", "../../charts/kruise", "--wait", "--timeout", "3m", "-f", filepath.Join(manifests, "values.yaml"))
}

// helm runs Helm, which must succeed.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t, args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	begin := time.Now()
	out, err := exec.CommandContext(t.Context(), os.Getenv("HELM"), args...).CombinedOutput()
	t.Logf("helm %s took %s", args[0], time.Since(begin).Round(time.Second))
	return string(out), err
}

// filledIn is what the manager and the API server filled in objects of the chart (OPS-103 (part)).
func filledIn(t *testing.T) string {
	t.Helper()
	secret, service := &corev1.Secret{}, &corev1.Service{}
	if err := errors.Join(kube.Get(t.Context(), client.ObjectKey{Namespace: installation.Namespace, Name: installation.Secret}, secret),
		kube.Get(t.Context(), client.ObjectKey{Namespace: installation.Namespace, Name: installation.Service}, service)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %q", service.Spec.ClusterIP, secret.Data)
}

func managerSpec(t *testing.T) corev1.PodSpec {
	t.Helper()
	var deployment appsv1.Deployment
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: installation.Namespace, Name: installation.Manager}, &deployment); err != nil {
		t.Fatal(err)
	}
	return deployment.Spec.Template.Spec
}

// deployAgain removes the release, if it is still there, and applies the manifests.
func deployAgain(t *testing.T, manifests string) {
	script := `set -eu -o pipefail
"$HELM" uninstall kruise --no-hooks --ignore-not-found --wait --timeout 2m
"$KUBECTL" kustomize "$1" | "$KUBECTL" apply --server-side --force-conflicts -f - >/dev/null
"$KUBECTL" -n kruise-system rollout status deployment/kruise-controller-manager --timeout=180s
"$KUBECTL" -n kruise-system rollout status daemonset/kruise-daemon --timeout=180s`
	if out, err := exec.Command("bash", "-c", script, "deploy", manifests).CombinedOutput(); err != nil { //nolint:noctx // after the test's context
		t.Errorf("deploying again: %v\n%s", err, out)
	}
}
