package uninstall

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/afloat-project/afloat/api/pub"
)

var (
	group       = schema.GroupVersion{Group: "apps.kruise.io", Version: "v1beta1"}
	cloneSet    = group.WithKind("CloneSet")
	statefulSet = group.WithKind("StatefulSet")
	broadcast   = group.WithKind("BroadcastJob") // not served
)

func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func definition(name, strategy string) *unstructured.Unstructured {
	o := object(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, "", name)
	o.Object["spec"] = map[string]any{"group": "apps.kruise.io", "conversion": map[string]any{"strategy": strategy, "webhook": map[string]any{"a": "b"}}}
	return o
}

func guard(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) (*Guard, *strings.Builder) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{group, {Group: "batch", Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, meta.RESTScopeNamespace)
	for _, kind := range []schema.GroupVersionKind{cloneSet, statefulSet, group.WithKind("ImagePullJob"), group.WithKind("EphemeralJob"), group.WithKind("ContainerRecreateRequest")} {
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(group.WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	out := &strings.Builder{}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	return &Guard{Client: kube, Out: out, Kinds: []schema.GroupKind{broadcast.GroupKind(), cloneSet.GroupKind(), statefulSet.GroupKind()},
		Held: map[schema.GroupKind]string{group.WithKind("ImagePullJob").GroupKind(): pub.PullJobProtection,
			group.WithKind("EphemeralJob").GroupKind():             pub.EphemeralContainersCleanup,
			group.WithKind("ContainerRecreateRequest").GroupKind(): pub.RecreateUnreadyAcquired,
			broadcast.GroupKind():                                  pub.UnrecordedRun, {Group: "batch", Kind: "Job"}: pub.UnrecordedRun},
		Definitions:    []string{"clonesets.apps.kruise.io", "imagepulljobs.apps.kruise.io", "gone.apps.kruise.io"},
		Configurations: []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"}}}}, out
}

// OPS-116 (part): while there are workloads it refuses, names the first of each kind, and says what to do.
func TestRefusesWhileThereAreWorkloads(t *testing.T) {
	var all []client.Object
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, object(cloneSet, "shop", name))
	}
	g, out := guard(t, interceptor.Funcs{}, append(all, object(statefulSet, "data", "db"))...)
	if err := g.Refuse(t.Context()); !errors.Is(err, ErrInUse) {
		t.Errorf("while there are workloads: got error %v, want %v", err, ErrInUse)
	}
	for _, want := range []string{"CloneSet.apps.kruise.io: shop/a, shop/b, shop/c\n", "StatefulSet.apps.kruise.io: data/db\n", "helmHooks.guard=false"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said:\n%s", want, out)
		}
	}
	g, out = guard(t, interceptor.Funcs{})
	if err := g.Refuse(t.Context()); err != nil {
		t.Errorf("without any workload: %v", err)
	}
	if out.String() != "" {
		t.Errorf("without any workload: said %q, want nothing", out)
	}
}

// What cannot be read is taken for an obstacle, not for nothing.
func TestFailsIfItCannotLook(t *testing.T) {
	g, _ := guard(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("conversion webhook failed")
	}})
	if err := g.Refuse(t.Context()); err == nil {
		t.Error("what cannot be read: no error")
	} else if errors.Is(err, ErrInUse) {
		t.Errorf("what cannot be read is taken for workloads that are there: %v", err)
	} else if !strings.Contains(err.Error(), "CloneSet") {
		t.Errorf("what cannot be read: got error %v, want one that names CloneSet", err)
	}
}

// OPS-117 (TestTheChartIsTheManifests has what is kept), OPS-118 (part): it removes the configurations, and
// then ends the conversion of the definitions that there are. A second time there is nothing to do.
func TestReleasesWhatNeedsAManager(t *testing.T) {
	var patched []string
	count := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		patched = append(patched, o.GetName())
		if err := c.Get(ctx, client.ObjectKey{Name: "m"}, &admissionregistrationv1.MutatingWebhookConfiguration{}); err == nil {
			t.Error("the configuration is there when conversion ends")
		}
		return c.Patch(ctx, o, p, options...)
	}}
	g, out := guard(t, count, definition("clonesets.apps.kruise.io", "Webhook"), definition("imagepulljobs.apps.kruise.io", "None"),
		definition("others.example.com", "Webhook"), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"}})
	for range 2 {
		if err := g.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(patched, " "); got != "clonesets.apps.kruise.io" {
		t.Errorf("definitions that were changed: got %q, want clonesets.apps.kruise.io alone", got)
	}
	after := definition("", "")
	if err := g.Client.Get(t.Context(), client.ObjectKey{Name: "clonesets.apps.kruise.io"}, after); err != nil {
		t.Fatal(err)
	}
	conversion, _, _ := unstructured.NestedMap(after.Object, "spec", "conversion")
	if len(conversion) != 1 {
		t.Errorf("conversion of the definition: got %v, want its strategy alone", conversion)
	}
	if conversion["strategy"] != "None" {
		t.Errorf("strategy of the conversion: got %v, want None", conversion["strategy"])
	}
	if want := "m is removed\nclonesets.apps.kruise.io is not converted any more\n"; out.String() != want {
		t.Errorf("what is said: got %q, want %q", out, want)
	}
}

// OPS-117 (part): what only a manager would take off objects is taken off, and pods that a request keeps out
// of service serve again; finalizers of others stay.
func TestObjectsAreNotHeld(t *testing.T) {
	job, request := object(group.WithKind("ImagePullJob"), "shop", "pull"), object(group.WithKind("ContainerRecreateRequest"), "shop", "restart")
	job.SetFinalizers([]string{"example.com/mine", pub.PullJobProtection})
	request.SetFinalizers([]string{pub.RecreateUnreadyAcquired})
	request.Object["spec"] = map[string]any{"podName": "web"}
	ephemeral := object(group.WithKind("EphemeralJob"), "shop", "dump")
	ephemeral.SetFinalizers([]string{pub.EphemeralContainersCleanup})
	run := object(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, "shop", "backup-1")
	run.SetFinalizers([]string{"example.com/mine", pub.UnrecordedRun})
	gone := request.DeepCopy()
	gone.SetName("of-no-pod")
	gone.Object["spec"] = map[string]any{"podName": "none"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: pub.KruisePodReady, Status: corev1.ConditionFalse, Message: "held"}, {Type: corev1.PodReady, Status: corev1.ConditionFalse}}}}
	g, _ := guard(t, interceptor.Funcs{}, job, request, ephemeral, run, gone, pod)
	if err := g.Unhold(t.Context()); err != nil {
		t.Fatal(err)
	}
	for o, want := range map[*unstructured.Unstructured]string{job: "example.com/mine", request: "", gone: "", ephemeral: "", run: "example.com/mine"} {
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(o.GetFinalizers(), " "); got != want {
			t.Errorf("finalizers of %s: got %q, want %q", o.GetName(), got, want)
		}
	}
	if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	if c := pod.Status.Conditions; len(c) != 2 {
		t.Errorf("conditions of the pod: got %+v, want 2", c)
	} else {
		if c[0].Status != corev1.ConditionTrue {
			t.Errorf("condition of the pod that a request held: got %+v, want True", c[0])
		}
		if c[1].Status != corev1.ConditionFalse {
			t.Errorf("condition of the pod that somebody else holds: got %+v, want False", c[1])
		}
	}
}

// A kind that cannot be read, or not in time, keeps no object of another kind.
func TestAKindThatCannotBeReadHoldsNoOther(t *testing.T) {
	ephemeral := object(group.WithKind("EphemeralJob"), "shop", "dump")
	ephemeral.SetFinalizers([]string{pub.EphemeralContainersCleanup})
	g, _ := guard(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if kind := list.GetObjectKind().GroupVersionKind().Kind; !strings.HasPrefix(kind, "EphemeralJob") {
			return fmt.Errorf("%s cannot be listed", kind)
		}
		return c.List(ctx, list, options...)
	}}, ephemeral)
	err := g.Unhold(t.Context())
	for _, kind := range []string{"ContainerRecreateRequest", "ImagePullJob", "Job"} {
		if err == nil || !strings.Contains(err.Error(), kind+" cannot be listed") && !strings.Contains(err.Error(), kind+"List cannot be listed") {
			t.Errorf("error: got %v, want it to say that %s cannot be listed", err, kind)
		}
	}
	if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(ephemeral), ephemeral); err != nil {
		t.Fatal(err)
	}
	if left := ephemeral.GetFinalizers(); len(left) > 0 {
		t.Errorf("finalizers of %s: got %v, want none", ephemeral.GetName(), left)
	}
}

// Node daemons go on writing the status of requests meanwhile: an object that changed is read again.
func TestObjectsThatChangeMeanwhileAreNotHeld(t *testing.T) {
	request := object(group.WithKind("ContainerRecreateRequest"), "shop", "restart")
	request.SetFinalizers([]string{pub.RecreateUnreadyAcquired})
	first := true
	g, _ := guard(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		if first {
			first = false
			written := request.DeepCopy()
			if err := c.Get(ctx, client.ObjectKeyFromObject(written), written); err != nil {
				return err
			}
			written.Object["status"] = map[string]any{"phase": "Recreating"}
			written.SetFinalizers(append(written.GetFinalizers(), "example.com/mine"))
			if err := c.Update(ctx, written); err != nil {
				return err
			}
		}
		return c.Patch(ctx, o, p, options...)
	}}, request)
	if err := g.Unhold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(request), request); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(request.GetFinalizers(), " "); got != "example.com/mine" {
		t.Errorf("finalizers of the request: got %q, want example.com/mine", got)
	}
}

// Where it ended after its first write to a definition, or the definition changed between both, nothing there
// is owned by it in the end, or installing again by Helm 4 would be refused.
func TestOwnsNothingHoweverOftenItEnds(t *testing.T) {
	for _, reason := range []string{"it dies", "the definition changes"} {
		writes, owns := 0, false // the fake API server does not say who owns what
		tell := func(o client.Object) {
			if owns {
				o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "helm", Operation: "Apply"}, {Manager: owner, Operation: "Update"}})
			}
		}
		g, _ := guard(t, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				err := c.Get(ctx, key, o, options...)
				tell(o)
				return err
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
				writes++
				switch {
				case writes == 2 && reason == "it dies":
					return context.Canceled
				case writes == 2:
					return apierrors.NewConflict(schema.GroupResource{Resource: "customresourcedefinitions"}, o.GetName(), nil)
				}
				err := c.Patch(ctx, o, p, options...)
				owns = writes == 1
				tell(o)
				return err
			},
		}, definition("clonesets.apps.kruise.io", "Webhook"))
		if err := g.Release(t.Context()); (err != nil) != (reason == "it dies") {
			t.Errorf("when %s: %v", reason, err)
		}
		if err := g.Release(t.Context()); err != nil {
			t.Errorf("a second time, when %s: %v", reason, err)
		}
		if owns {
			t.Errorf("a second time, when %s: the definition is owned by the guard", reason)
		}
	}
}

// It goes on only when the last manager is gone; one that is not there is no obstacle.
func TestManagersEndFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := int32(2)
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "afloat", Name: "manager"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "afloat", Name: "manager-1-a", Labels: map[string]string{"control-plane": "controller-manager"}}}
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "afloat", Name: "d", Labels: map[string]string{"control-plane": "daemon"}}}
		// A pod that a node put out, which nobody removes while the Deployment is there, and a manager of
		// somebody else with the usual label.
		evicted, foreign := pod.DeepCopy(), pod.DeepCopy()
		evicted.Name, evicted.Status.Phase = "manager-1-evicted", corev1.PodFailed
		foreign.Name = "operator-1-a"
		g, _ := guard(t, interceptor.Funcs{}, deployment, pod, other, evicted, foreign)
		ended := false
		go func() {
			time.Sleep(20 * time.Second) // of the bubble's clock
			ended = true
			if err := g.Client.Delete(context.Background(), pod); err != nil {
				t.Errorf("the end of the manager: %v", err)
			}
		}()
		key := client.ObjectKeyFromObject(deployment)
		if err := g.Stop(t.Context(), key); err != nil {
			t.Errorf("stopping the managers: %v", err)
		}
		if !ended {
			t.Error("it goes on before the last manager has ended")
		}
		if err := g.Client.Get(t.Context(), key, deployment); err != nil {
			t.Errorf("reading the Deployment: %v", err)
		} else if *deployment.Spec.Replicas != 0 {
			t.Errorf("replicas of the managers: got %d, want 0", *deployment.Spec.Replicas)
		}
		if err := g.Stop(t.Context(), client.ObjectKey{Namespace: "afloat", Name: "none"}); err != nil {
			t.Errorf("stopping managers that are not there: %v", err)
		}
	})
}
