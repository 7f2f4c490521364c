//go:build integration

package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/test/story"
)

// OPS-085: a user who may create CloneSets gets their pods without any right on pods; the cluster's policies
// for pods apply to these pods too.
func TestAuthorsNeedNoRightsOnPods(t *testing.T) {
	config := rest.CopyConfig(apiServer)
	config.Impersonate = rest.ImpersonationConfig{UserName: "author"}
	author, err := story.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	for namespace, labels := range map[string]map[string]string{"authored": nil,
		"restricted": {"pod-security.kubernetes.io/enforce": "restricted"}} {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: "authors"}
		for _, object := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}},
			&rbacv1.Role{ObjectMeta: meta,
				Rules: []rbacv1.PolicyRule{{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"clonesets"},
					Verbs: []string{"create"}}}},
			&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "authors"},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "author"}}},
		} {
			if err := kube.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		own := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if err := author.Create(t.Context(), own); !apierrors.IsForbidden(err) {
			t.Fatalf("the author may create pods: %v", err)
		}
		set := cloneSet("v1beta1", "authored-by-hand", `{spec: {template: {spec: {hostNetwork: true}}}}`)
		set.SetNamespace(namespace)
		if err := wait(func() error { return author.Create(t.Context(), set) }); err != nil { // until the role takes effect
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(t.Context(), set) })
	}
	found := func(namespace string) int {
		list := &corev1.PodList{}
		if err := kube.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	if err := wait(func() error {
		if n := found("authored"); n != 2 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	}); err != nil {
		t.Errorf("pods in a namespace without a policy: %v", err)
	}
	if err := wait(func() error {
		if n := len(writes.with("POST /api/v1/namespaces/restricted/pods")); n < 4 { // two pods, each retried
			return fmt.Errorf("%d attempts", n)
		}
		return nil
	}); err != nil {
		t.Errorf("pods in a restricted namespace: %v", err)
	}
	if n := found("restricted"); n != 0 {
		t.Errorf("%d pods that the policy forbids", n)
	}
}
