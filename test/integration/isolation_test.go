//go:build integration

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/story"
)

// ND-068, ND-069, ND-070: with its token a node daemon can write only the objects of its node, and only their
// status.
func TestNodeDaemonsAreIsolated(t *testing.T) {
	data, err := os.ReadFile("../../config/rbac/isolation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text := range bytes.SplitSeq(data, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	const user = "system:serviceaccount:kruise-system:kruise-daemon"
	everything := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "test-daemon"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"", "apps.kruise.io"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "test-daemon"},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "test-daemon"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: user, APIGroup: "rbac.authorization.k8s.io"}}}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "isolated", Annotations: map[string]string{"a": "b"}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	image := &appsv1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	for _, object := range []client.Object{everything, binding, node, pod, image} {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = kube.Delete(t.Context(), object) }()
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://1",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	if err := kube.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	request := &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "isolated"},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: pod.Name,
			Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "c"}}}}
	if err := kube.Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kube.Delete(t.Context(), request) }()
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil {
			return err
		}
		if request.Labels[pub.RecreateNodeName] == "" {
			return errors.New("the request is not filled in")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if node := request.Labels[pub.RecreateNodeName]; node != "node-a" {
		t.Errorf("CRR-035, CRR-037: node %s, want node-a", node)
	}
	if id := request.Spec.Containers[0].StatusContext.ContainerID; id != "containerd://1" {
		t.Errorf("CRR-035, CRR-037: container %s, want containerd://1", id)
	}
	if seconds := *request.Spec.Strategy.TerminationGracePeriodSeconds; seconds != 30 {
		t.Errorf("CRR-035, CRR-037: grace period %d s, want 30 s", seconds)
	}

	daemon := func(of string) client.Client {
		config := rest.CopyConfig(apiServer)
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		if of != "" {
			config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {of}}
		}
		c, err := story.NewClient(config)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	status := func(object client.Object, body string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Status().Patch(t.Context(), object.DeepCopyObject().(client.Object),
				client.RawPatch(types.MergePatchType, []byte(body)))
		}
	}
	spec := func(object client.Object, body string) func(client.Client) error {
		return func(c client.Client) error {
			return c.Patch(t.Context(), object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(body)))
		}
	}
	report := `{"metadata":{"annotations":{"apps.kruise.io/runtime-containers-meta":"{}"}}}`
	// The policy takes a moment until it is enforced.
	if err := wait(func() error {
		if err := status(pod, report)(daemon("node-b")); !apierrors.IsForbidden(err) {
			return fmt.Errorf("not refused: %w", errors.Join(err, errors.New("no policy yet")))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		node  string
		write func(client.Client) error
		want  string
	}{
		"its pod":                           {"node-a", status(pod, report), ""},
		"another node's pod":                {"node-b", status(pod, report), "node-b"},
		"a token without node":              {"", status(pod, report), "names no node"},
		"a NodeImage, without node":         {"", status(image, `{"status":{"desired":1}}`), "names no node"},
		"another annotation":                {"node-a", status(pod, `{"metadata":{"annotations":{"a":"c"}}}`), "runtime-containers-meta"},
		"an annotation removed":             {"node-a", status(pod, `{"metadata":{"annotations":{"a":null}}}`), "runtime-containers-meta"},
		"a label":                           {"node-a", status(pod, `{"metadata":{"labels":{"x":"y"}}}`), "runtime-containers-meta"},
		"the status of a pod":               {"node-a", status(pod, `{"status":{"phase":"Failed"}}`), "runtime-containers-meta"},
		"the pod itself":                    {"node-a", spec(pod, report), "nothing but status"},
		"its NodeImage":                     {"node-a", status(image, `{"status":{"desired":1}}`), ""},
		"another NodeImage":                 {"node-b", status(image, `{"status":{"desired":1}}`), "node-b"},
		"the spec of its NodeImage":         {"node-a", spec(image, `{"spec":{"images":{"x":{"tags":[]}}}}`), "nothing but status"},
		"the spec, by a token without node": {"", spec(image, `{"spec":{"images":{"x":{"tags":[]}}}}`), "names no node"},
		"its request":                       {"node-a", status(request, `{"status":{"phase":"Pending"}}`), ""},
		"another node's request":            {"node-b", status(request, `{"status":{"phase":"Pending"}}`), "node-b"},
		"the metadata of its request":       {"node-a", spec(request, `{"metadata":{"labels":{"x":"y"}}}`), "nothing but status"},
		"deletion": {"node-a", func(c client.Client) error { return c.Delete(t.Context(), image.DeepCopy()) },
			"nothing but status"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			err := test.write(daemon(test.node))
			if allowed := err == nil; allowed != (test.want == "") {
				t.Errorf("allowed: got %t, want %t: %v", allowed, !allowed, err)
			} else if err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("refused with %v, want it forbidden", err)
			} else if err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("refused with %q, want %q in it", err, test.want)
			}
		})
	}
}
