//go:build integration

package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// RD-012 (part), RD-034 (part), RD-058 (part), RD-111 (part): on a real API server, a Secret and a ConfigMap
// come to the namespaces, are restored, are made anew where they are immutable, and go; the webhook refuses
// what the API server would, in both versions, and leaves nothing behind.
func TestDistributions(t *testing.T) {
	for _, name := range []string{"rd-one", "rd-two"} {
		if err := kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rd": "yes"}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-system"}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	const ofSecret = `resource: {apiVersion: v1, kind: Secret, metadata: {name: rd-login, labels: {a: b}}, stringData: {k: v1}, data: {other: bw==}}`
	made(t, `{apiVersion: apps.kruise.io/v1alpha1, kind: ResourceDistribution, metadata: {name: rd-secret}, spec: {`+ofSecret+`, targets: {namespaceLabelSelector: {matchLabels: {rd: "yes"}}}}}`)
	made(t, `{apiVersion: apps.kruise.io/v1beta1, kind: ResourceDistribution, metadata: {name: rd-map}, spec: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: rd-map}, data: {k: v1}},
targets: {includedNamespaces: {list: [{name: rd-one}, {name: rd-missing}]}}}}`)
	contains := func(want string, spaces ...string) {
		t.Helper()
		if err := wait(func() error {
			for _, space := range spaces {
				var secret corev1.Secret
				if err := kube.Get(t.Context(), client.ObjectKey{Namespace: space, Name: "rd-login"}, &secret); err != nil {
					return err
				}
				if owner := metav1.GetControllerOf(&secret); string(secret.Data["k"]) != want || string(secret.Data["other"]) != "o" || len(secret.Data) != 2 || owner == nil || owner.Name != "rd-secret" {
					return fmt.Errorf("%s: %+v", space, secret)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	contains("v1", "rd-one", "rd-two")
	if err := wait(func() error {
		var rd appsv1alpha1.ResourceDistribution
		if err := kube.Get(t.Context(), client.ObjectKey{Name: "rd-map"}, &rd); err != nil {
			return err
		}
		if s := rd.Status; s.Desired != 2 || s.Succeeded != 1 || s.Failed != 1 || len(s.Conditions) != 6 || !slices.Equal(s.Conditions[5].FailedNamespace, []string{"rd-missing"}) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}); err != nil {
		t.Errorf("status: %v", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "rd-one", Name: "rd-login"}}
	patch := func(object client.Object, body string) {
		t.Helper()
		if err := kube.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	patch(secret, `{"data":{"k":"eA==","more":"eA=="},"metadata":{"labels":null,"annotations":null}}`)
	contains("v1", "rd-one")
	patch(secret, `{"immutable":true,"data":{"k":"eA=="}}`)
	contains("v1", "rd-one")
	patch(&appsv1beta1.ResourceDistribution{ObjectMeta: metav1.ObjectMeta{Name: "rd-secret"}}, `{"spec":{"resource":{"stringData":{"k":"v2"}}}}`)
	contains("v2", "rd-one", "rd-two")

	for name, spec := range map[string]string{
		"spec.resource":                    `resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {"a key": v}}, targets: {allNamespaces: true}`,
		"spec.targets.namespaceSelector":   ofSecret + `, targets: {namespaceSelector: {matchLabels: {"a b": c}}}`,
		"spec.targets.includedNamespaces.": ofSecret + `, targets: {includedNamespaces: {list: [{name: A}]}}`,
	} {
		err := kube.Create(t.Context(), document(t, `{apiVersion: apps.kruise.io/v1beta1, kind: ResourceDistribution, metadata: {name: rd-bad}, spec: {`+spec+`}}`))
		if !apierrors.IsInvalid(err) {
			t.Errorf("a bad %s: got %v, want it refused as invalid", name, err)
		} else if !strings.Contains(err.Error(), name) {
			t.Errorf("a bad %s: refused with %q, want the field in it", name, err)
		}
	}
	var left corev1.SecretList
	if err := kube.List(t.Context(), &left, client.InNamespace("kruise-system")); err != nil {
		t.Errorf("listing the Secrets: %v", err)
	}
	if slices.ContainsFunc(left.Items, func(s corev1.Secret) bool { return s.Name == "rd-login" }) {
		t.Errorf("the dry run has left something: %v", left.Items)
	}
	patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rd-two"}}, `{"metadata":{"labels":{"rd":"no"}}}`)
	if err := wait(func() error {
		err := kube.Get(t.Context(), client.ObjectKey{Namespace: "rd-two", Name: "rd-login"}, &corev1.Secret{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is still there"), err)
	}); err != nil {
		t.Errorf("the copy in a namespace that is no target any more: %v", err)
	}
	for _, name := range []string{"rd-secret", "rd-map"} {
		if err := kube.Delete(t.Context(), &appsv1beta1.ResourceDistribution{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Errorf("deleting %s: %v", name, err)
		}
	}
}

// A role that is narrowed by resourceNames lets the manager's requests through: lists and watches of all
// namespaces with a field selector of one name.
func TestNarrowedRightsLetWatchesThrough(t *testing.T) {
	made(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: rd-narrow}, rules: [{apiGroups: [""], resources: [secrets], resourceNames: [rd-allowed], verbs: [list, watch]}]}`)
	made(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: rd-narrow}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rd-narrow},
subjects: [{kind: User, name: rd-narrow, apiGroup: `+rbacv1.GroupName+`}]}`)
	config := rest.CopyConfig(apiServer)
	config.Impersonate.UserName = "rd-narrow"
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := wait(func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "rd-narrow",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets", Name: "rd-allowed"}}}
		if err := kube.Create(t.Context(), review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("it may not list: %+v", review.Status)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"rd-allowed": true, "rd-other": false} {
		options := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
		_, err := clientset.CoreV1().Secrets("").List(t.Context(), options)
		if allowed := err == nil; allowed != want {
			t.Errorf("listing %s: allowed %t, want %t: %v", name, allowed, want, err)
		} else if err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("listing %s: got %v, want it forbidden", name, err)
		}
		watch, err := clientset.CoreV1().Secrets("").Watch(t.Context(), options)
		if err == nil {
			watch.Stop()
		}
		if allowed := err == nil; allowed != want {
			t.Errorf("watching %s: allowed %t, want %t: %v", name, allowed, want, err)
		} else if err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("watching %s: got %v, want it forbidden", name, err)
		}
	}
}
