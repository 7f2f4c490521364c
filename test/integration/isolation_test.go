//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/story"
)

const daemonAccount = "system:serviceaccount:kruise-system:kruise-daemon"

// daemonOf is the node daemon of a node, with whatever token a cluster gives it.
func daemonOf(t *testing.T, node string) client.Client {
	t.Helper()
	config := rest.CopyConfig(cluster)
	config.Impersonate = rest.ImpersonationConfig{UserName: daemonAccount}
	if node != "" {
		config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	c, err := story.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDaemonsAreIsolated: a daemon's token writes to objects of its own node only, and nothing but what a daemon has to write, whatever
// roles give it (ND-068, ND-069, ND-070).
func TestDaemonsAreIsolated(t *testing.T) {
	ctx := t.Context()
	if err := create("../../config/daemon/isolation.yaml"); err != nil {
		t.Fatal(err)
	}
	// The account may do everything here: only the policy is in its way.
	if err := kube.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "daemon-may-all"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: daemonAccount}}}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "guarded", Annotations: map[string]string{"mine": "a"}},
		Spec: corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	image := &appsv1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	request := &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "guarded"},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: "guarded", Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "app"}}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	for _, object := range []client.Object{node, pod, image} {
		if err := kube.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(t.Context(), object) })
	}
	status := `{"status":{"phase":"Running","containerStatuses":[{"name":"app","image":"app","imageID":"app","containerID":"containerd://a","ready":true,"restartCount":0}]}}`
	if err := kube.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, []byte(status))); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(ctx, request); err != nil {
		t.Fatal(err)
	}
	report := fmt.Sprintf(`{"metadata":{"annotations":{%q:"{}"}}}`, pub.RuntimeContainersMeta)
	tests := map[string]struct {
		node    string
		object  client.Object
		status  bool
		patch   string
		refused string
	}{
		"a report on its own pod":               {"node-a", pod, true, report, ""},
		"a report where tokens name no node":    {"", pod, true, report, ""},
		"a report on a pod of another node":     {"node-b", pod, true, report, "its own node only"},
		"another annotation":                    {"node-a", pod, true, `{"metadata":{"annotations":{"mine":"b"}}}`, "nothing of a pod but"},
		"another annotation more":               {"node-a", pod, true, `{"metadata":{"annotations":{"more":"b"}}}`, "nothing of a pod but"},
		"an annotation less":                    {"node-a", pod, true, `{"metadata":{"annotations":{"mine":null}}}`, "nothing of a pod but"},
		"a label":                               {"node-a", pod, true, `{"metadata":{"labels":{"app":"b"}}}`, "nothing of a pod but"},
		"readiness":                             {"", pod, true, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "nothing of a pod but"},
		"the pod itself":                        {"node-a", pod, false, report, "status only"},
		"the result of a pull":                  {"node-a", image, true, `{"status":{"desired":1}}`, ""},
		"the result of another node's pull":     {"node-b", image, true, `{"status":{"desired":2}}`, "its own node only"},
		"an image to pull":                      {"node-a", image, false, `{"metadata":{"labels":{"a":"b"}}}`, "status only"},
		"the state of a restart":                {"node-a", request, true, `{"status":{"phase":"Recreating"}}`, ""},
		"the state of a restart on another one": {"node-b", request, true, `{"status":{"phase":"Completed"}}`, "its own node only"},
		"a request to restart":                  {"node-a", request, false, `{"metadata":{"labels":{"a":"b"}}}`, "status only"},
	}
	// A policy is in force some time after it was made.
	other := daemonOf(t, "node-b")
	if err := wait(func() error {
		if err := other.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(report)), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, object, patch := daemonOf(t, tt.node), tt.object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(tt.patch))
			var err error
			if tt.status {
				err = c.Status().Patch(t.Context(), object, patch)
			} else {
				err = c.Patch(t.Context(), object, patch)
			}
			if tt.refused == "" && err != nil || tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)) {
				t.Errorf("%v, want %q", err, tt.refused)
			}
		})
	}
	if err := other.Delete(t.Context(), pod.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Errorf("deleting a pod: %v", err)
	}
}
