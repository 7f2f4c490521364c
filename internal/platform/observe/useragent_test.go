package observe

import (
	"bytes"
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// OPS-022 (part): requests of a controller have its name; other requests, before, between and after, have
// that of the program alone.
func TestAPIServersSeeWhichControllerAsks(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.UserAgent())
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"ns","name":"p"}}`))
	}))
	defer server.Close()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	config := &rest.Config{Host: server.URL, UserAgent: "kruise-manager", WrapTransport: UserAgents("kruise-manager")}
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "ns", "p"
	read := func(ctx context.Context) {
		t.Helper()
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Errorf("reading the pod: %v", err)
		}
	}
	controller := func(name string) reconcile.Reconciler {
		return WithUserAgent(name, reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			read(ctx)
			return reconcile.Result{RequeueAfter: 7}, c.Delete(ctx, pod.DeepCopy())
		}))
	}
	read(t.Context())
	for _, name := range []string{"cloneset", "sidecarset"} {
		if result, err := controller(name).Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Errorf("a pass of %s: %v", name, err)
		} else if result.RequeueAfter != 7 {
			t.Errorf("a pass of %s: comes back after %d ns, want 7", name, result.RequeueAfter)
		}
	}
	read(t.Context())
	want := []string{"GET kruise-manager", "GET kruise-manager/cloneset", "DELETE kruise-manager/cloneset", "GET kruise-manager/sidecarset",
		"DELETE kruise-manager/sidecarset",
		"GET kruise-manager"}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("requests and who makes them (-want +got):\n%s", diff)
	}
}

// OPS-022 (part): every controller of the manager has its name in its requests, and it is the name in its
// metrics and logs.
func TestEveryControllerIsNamed(t *testing.T) {
	options, err := os.ReadFile("../../reconcile/setup.go")
	if err != nil {
		t.Errorf("reading the options of controllers: %v", err)
	}
	if !strings.Contains(string(options), "b.Named(name).WithOptions(settings).Complete(named)") {
		t.Error("reconcile.Options do not complete controllers by their name")
	}
	if !strings.Contains(string(options), "named := observe.Traced(name, observe.WithUserAgent(name, r))") {
		t.Error("reconcile.Options do not give requests the name of their controller")
	}
	byItself := regexp.MustCompile(`(?m)^\s*Complete\(|\)\.Complete\(`)
	controllers := 0
	for _, dir := range []string{"../../kinds", "../../podfeatures"} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = bytes.ReplaceAll(text, []byte("Validator.Complete("), nil) // that completes pod templates
			built := strings.Count(string(text), "ControllerManagedBy(")
			if completed := strings.Count(string(text), ".Complete("); built != completed {
				t.Errorf("%s: %d controllers are built and %d completed", path, built, completed)
			}
			// The controllers of reconcile are completed by its options.
			if byItself.MatchString(strings.ReplaceAll(string(text), ".controller().Complete(", "")) {
				t.Errorf("%s: a controller that reconcile.Options do not complete", path)
			}
			controllers += built
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if controllers < 10 {
		t.Errorf("controllers that were found: got %d, want 10 at least", controllers)
	}
}
