//go:build integration

// Package tenants plays attacks of one tenant on the manager while another tenant rolls out a small CloneSet
// again and again. The API server is real, and the manager is a process with the rights, the memory limit and
// the webhooks that are shipped. There is no kubelet.
//
// KUBEBUILDER_ASSETS names the folder with etcd and kube-apiserver. Attacks are played with EVERY_ATTACK=1 alone,
// since they take long, and TENANTS_REPORT names the file to which the measured figures are written.
package tenants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	manifests "github.com/afloat-project/afloat/config"
	"github.com/afloat-project/afloat/test/story"
)

const (
	// account is whom the shipped roles are bound to; hostile is the user who attacks, and peaceful the one
	// who is attacked.
	account, hostile, peaceful = "system:serviceaccount:kruise-system:kruise-manager", "mallory", "alice"
	// patience is how long anything may take before the test fails.
	patience = 3 * time.Minute
	// nodes is the number of nodes; no kubelet runs on any of them.
	nodes = 5
)

// world is an API server with everything that is installed, and the users of it.
type world struct {
	t    *testing.T
	env  *envtest.Environment
	root *rest.Config
	// kube has all rights. It does what other programs of a cluster do.
	kube client.Client
	// shipped is the manager's Deployment, from which its flags and limits are taken.
	shipped *appsv1.Deployment
	audit   *audit
	manager *manager
	victim  *victim
}

// start starts the API server, installs everything, and starts the manager.
func start(t *testing.T) *world {
	t.Helper()
	if os.Getenv("EVERY_ATTACK") == "" {
		t.Skip("these attacks take half an hour: make tenants")
	}
	w := &world{t: t, env: &envtest.Environment{}}
	var err error
	if w.audit, err = newAudit(t.TempDir(), w.env); err != nil {
		t.Fatal(err)
	}
	if w.root, err = w.env.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.env.Stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	w.root.QPS, w.root.Burst, w.root.WarningHandlerWithContext = -1, 0, rest.NoWarnings{}
	if w.kube, err = story.NewClient(w.root); err != nil {
		t.Fatal(err)
	}
	w.install()
	w.manager = w.startManager()
	w.victim = w.startVictim()
	return w
}

// install creates what config/default has, and nodes.
func (w *world) install() {
	w.t.Helper()
	text, err := manifests.Default()
	if err != nil {
		w.t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			w.t.Fatal(err)
		}
		if object.GetKind() == "Deployment" {
			w.shipped = &appsv1.Deployment{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, w.shipped); err != nil {
				w.t.Fatal(err)
			}
		}
		objects = append(objects, object)
	}
	for _, namespaces := range []bool{true, false} { // these come first
		for _, object := range objects {
			if (object.GetKind() == "Namespace") == namespaces {
				w.create(object)
			}
		}
	}
	w.eventually("the definitions are served", func() error { return w.kube.List(w.t.Context(), &appsv1beta1.CloneSetList{}) })
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
		w.create(node)
		node.Spec.Taints = nil // admission taints what is new, until a controller finds it ready, and there is none
		if err := w.kube.Update(w.t.Context(), node); err != nil {
			w.t.Fatal(err)
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))}}
		if err := w.kube.Status().Update(w.t.Context(), node); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	if err := w.kube.Create(w.t.Context(), object); err != nil {
		w.t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
	}
}

// eventually repeats a check until it succeeds.
func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	if err := within(w.t.Context(), patience, check); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// within repeats a check until it succeeds, and returns the last error if that takes too long.
func within(ctx context.Context, limit time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", limit, err)
		case <-tick.C:
		}
	}
}

// user returns a configuration of the user with a certificate, and without limits of the client.
func (w *world) user(name string, groups ...string) *envtest.AuthenticatedUser {
	w.t.Helper()
	user, err := w.env.AddUser(envtest.User{Name: name, Groups: groups}, &rest.Config{QPS: -1, WarningHandlerWithContext: rest.NoWarnings{}})
	if err != nil {
		w.t.Fatal(err)
	}
	return user
}

// mayEdit makes a namespace in which the user has the rights of role edit. No controller aggregates roles
// here, so the user gets each role that edit consists of, and so do the service accounts of the namespace.
func (w *world) mayEdit(user, namespace string) {
	w.t.Helper()
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	var roles rbacv1.ClusterRoleList
	if err := w.kube.List(w.t.Context(), &roles); err != nil {
		w.t.Fatal(err)
	}
	bound := 0
	for i := range roles.Items {
		labels := roles.Items[i].Labels
		if labels[rbacv1.GroupName+"/aggregate-to-edit"] != "true" && labels[rbacv1.GroupName+"/aggregate-to-view"] != "true" {
			continue
		}
		bound++
		w.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("edit-%d", bound)},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roles.Items[i].Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user},
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + namespace}}})
	}
	if bound < 4 {
		w.t.Fatalf("%d roles are aggregated to edit, want those of Kubernetes and of Afloat", bound)
	}
}

// freePort returns a port of the loopback interface that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// write writes a file into a folder of the test and returns its path.
func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
