//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// RD-002 (part), RD-003 (part), RD-021 (part), RD-070 (part), RD-D3 (part): with the shipped rights and their
// policy, a namespace that comes gets its copy, an object of somebody else is a conflict until it goes, a
// changed copy is restored, and it goes with the label.
func TestDistributions(t *testing.T) {
	t.Parallel()
	name := namespace(t)
	later := name + "-later"
	label := map[string]string{"distribute": name}
	apply(t, `{apiVersion: apps.kruise.io/v1beta1, kind: ResourceDistribution, metadata: {name: `+name+`}, spec: {
resource: {apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {token: ours}}, targets: {namespaceSelector: {matchLabels: {distribute: `+name+`}}}}}`)
	t.Cleanup(func() {
		_ = kube.Delete(context.Background(), &appsv1beta1.ResourceDistribution{ObjectMeta: metav1.ObjectMeta{Name: name}})
		_ = kube.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: later}})
	})
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "login"}, StringData: map[string]string{"token": "theirs"}}
	if err := kube.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: later, Labels: label}}); err != nil {
		t.Fatal(err)
	}
	relabel := func(value string) {
		t.Helper()
		if err := kube.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"distribute":`+value+`}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	relabel(`"` + name + `"`)
	is := func(step, space, want string, conflicts ...string) {
		t.Helper()
		eventually(t, step, func(ctx context.Context) string {
			var secret corev1.Secret
			err := kube.Get(ctx, client.ObjectKey{Namespace: space, Name: "login"}, &secret)
			if want == "" && apierrors.IsNotFound(err) {
				return ""
			}
			var rd appsv1beta1.ResourceDistribution
			if err != nil || string(secret.Data["token"]) != want {
				return fmt.Sprintf("%v: %s", err, secret.Data["token"])
			}
			if err := kube.Get(ctx, client.ObjectKey{Name: name}, &rd); err != nil || len(rd.Status.Conditions) != 6 || !slices.Equal(rd.Status.Conditions[4].FailedNamespaces, conflicts) {
				return fmt.Sprintf("%v: %+v", err, rd.Status)
			}
			return ""
		})
	}
	is("a namespace comes", later, "ours", name)
	is("a conflict", name, "theirs", name)
	if err := kube.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	is("the conflict goes", name, "ours")
	if err := kube.Patch(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "login"}},
		client.RawPatch("application/merge-patch+json", []byte(`{"data":{"token":"eA=="}}`))); err != nil {
		t.Fatal(err)
	}
	is("a copy is changed", name, "ours")
	relabel("null")
	is("the label goes", name, "")
	is("the other one stays", later, "ours")
}
