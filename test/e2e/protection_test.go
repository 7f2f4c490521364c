//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DP-012 (part), DP-019 (part): a protected namespace with a running pod stays. One that is not protected
// itself is held in Terminating by a protected Deployment in it, and says so, until that is scaled to 0.
func TestProtectedFromDeletion(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	if err := kube.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	name := ns.Name
	web := apply(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: `+name+`, labels: {policy.kruise.io/delete-protection: Cascading}},
		spec: {replicas: 1, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}},
		spec: {containers: [{name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent}]}}}}`)
	t.Cleanup(func() { // if it failed
		for _, object := range []client.Object{web, ns} {
			_ = kube.Patch(context.Background(), object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`)))
			_ = kube.Delete(context.Background(), object)
		}
	})
	label := func(value string) {
		t.Helper()
		patch := `{"metadata":{"labels":{"policy.kruise.io/delete-protection":` + value + `}}}`
		if err := kube.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	label(`"Cascading"`)
	eventually(t, "the pod protects the namespace", func(ctx context.Context) string {
		if err := kube.Delete(ctx, ns, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "active pods 1>0") {
			return fmt.Sprint(err)
		}
		return ""
	})
	if err := kube.Delete(t.Context(), web); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "replicas 1>0") {
		t.Error(err)
	}
	label("null")
	if err := kube.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Deployment holds the namespace", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil {
			return err.Error()
		}
		for _, c := range ns.Status.Conditions {
			if c.Type == corev1.NamespaceDeletionContentFailure && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "is protected by label") {
				return ""
			}
		}
		return fmt.Sprintf("%+v", ns.Status)
	})
	if err := kube.Patch(t.Context(), web, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("%v, %+v", err, ns.Status)
		}
		return ""
	})
}
