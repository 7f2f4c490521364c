package registry

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	podcountercontroller "github.com/afloat-project/afloat/internal/registry/testdata/podcounter/controller"
	"github.com/afloat-project/afloat/internal/registry/testdata/podcounter/v1alpha1"
)

// The guide to adding a kind shows the files of a small kind as they are.
func TestTheGuideShowsTheSkeleton(t *testing.T) {
	guide := text(t, "docs/develop/adding-a-kind.md")
	for _, file := range []string{"plan.go", "controller/entry.go", "controller/controller.go"} {
		_, body, _ := strings.Cut(text(t, "internal/registry/testdata/podcounter/"+file), "\n)\n\n")
		if body == "" || !strings.Contains(guide, "\n```go\n"+body+"```\n") {
			t.Errorf("the guide does not show what follows the imports in testdata/podcounter/%s:\n%s", file, body)
		}
	}
}

// The small kind of the guide works: it counts the pods that it selects, and refuses to select all.
func TestTheSkeletonWorks(t *testing.T) {
	scheme := runtime.NewScheme()
	kind := &podcountercontroller.PodCounter
	group := schema.GroupVersion{Group: kind.Group, Version: kind.Version}
	scheme.AddKnownTypes(group, &v1alpha1.PodCounter{}, &v1alpha1.PodCounterList{})
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	web := map[string]string{"app": "web"}
	counter := &v1alpha1.PodCounter{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"},
		Spec: v1alpha1.PodCounterSpec{Selector: &metav1.LabelSelector{MatchLabels: web}}}
	pod := func(name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(counter).
		WithObjects(counter, pod("a", web), pod("b", web), pod("c", nil)).Build()
	loop := podcountercontroller.New(reconcile.NewAPI(c, c, slim.Any, time.Now)).Loop(nil)
	if _, err := loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(counter)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(counter), counter); err != nil || counter.Status.Pods != 2 {
		t.Errorf("got %d pods, want 2: %v", counter.Status.Pods, err)
	}
	for spec, allowed := range map[string]bool{`{"selector":{"matchLabels":{"app":"web"}}}`: true, `{"selector":{}}`: false, `{}`: false} {
		answer := kind.Webhooks(nil).Validate(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(`{"spec":` + spec + `}`)}}})
		if answer.Allowed != allowed {
			t.Errorf("%s: %+v", spec, answer.Result)
		}
	}
}
