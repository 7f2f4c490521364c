package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate/containerrecreatetest"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// CRR-035 (part), CRR-036, CRR-037 (part), CRR-060: a request is filled in once, whichever replica of the
// manager comes first and whatever the others' caches show; while a replica of an earlier release refuses
// that it is tried again; and it is never filled in from another pod of that name.
func TestRequestsAreFilledIn(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{pub.NodeType: pub.VirtualNode}}}
	for name, test := range map[string]struct {
		pod    func(*corev1.Pod)
		node   string // the value of its label type, if it is not a virtual one
		answer error
		after  time.Duration
		want   string // of what becomes of it
	}{
		"filled in":               {want: "node-a virtual-kubelet c://app"},
		"on another sort of node": {node: "gpu", want: "node-a c://app"},
		"on a node without label": {node: "-", want: "node-a c://app"},
		"refused by an older replica": {answer: apierrors.NewForbidden(schema.GroupResource{}, "restart", errors.New("immutable")),
			after: tryAnotherReplica},
		"somebody writes meanwhile": {answer: apierrors.NewConflict(schema.GroupResource{}, "restart", errors.New("changed")),
			after: own.RetrySoon},
		"another pod of that name": {pod: func(p *corev1.Pod) { p.UID = "pod-2" }},
		"the container has no ID": {pod: func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "" },
			want: "Completed spec.containers[0]: no"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-7", UID: "pod-1"},
				Spec:   corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{{Name: "app"}}},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "app", ContainerID: "c://app"}}}}
			if test.pod != nil {
				test.pod(pod)
			}
			node := node.DeepCopy()
			switch test.node {
			case "":
			case "-":
				node.Labels = nil
			default:
				node.Labels[pub.NodeType] = test.node
			}
			request := &appsv1beta1.ContainerRecreateRequest{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "restart", UID: "r",
					Labels: map[string]string{pub.RecreateActive: "true", pub.RecreatePodUID: "pod-1"}},
				Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: "web-7",
					Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "app"}}}}
			writes := 0
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node, pod,
				request).WithStatusSubresource(request).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if test.answer != nil {
						return test.answer
					}
					writes++
					return c.Patch(ctx, o, p, opts...)
				}}).Build()
			key := client.ObjectKeyFromObject(request)
			stale := &appsv1beta1.ContainerRecreateRequest{}
			if err := api.Get(t.Context(), key, stale); err != nil {
				t.Fatal(err)
			}
			lagging := interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
				o client.Object, opts ...client.GetOption) error {
				if r, ok := o.(*appsv1beta1.ContainerRecreateRequest); ok {
					stale.DeepCopyInto(r)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			}})
			f := &filler{&own.API{Client: api, Live: api, Now: func() time.Time { return containerrecreatetest.Noon }}}
			if result, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Fatalf("unexpected error: %v\n%+v", err, result)
			} else if result.RequeueAfter != test.after {
				t.Fatalf("time to the next pass: got %v, want %v\n%+v\n%v", result.RequeueAfter, test.after, result, err)
			}
			got := &appsv1beta1.ContainerRecreateRequest{}
			if err := api.Get(t.Context(), key, got); err != nil {
				t.Fatal(err)
			}
			version := got.ResourceVersion
			for _, other := range []client.Client{api, lagging} { // a later event, and a replica whose cache is behind
				f.Client = other
				if _, err := f.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
					t.Errorf("a pass that comes again: %v", err)
				}
			}
			if err := api.Get(t.Context(), key, got); err != nil {
				t.Errorf("written again: reading the facts: unexpected error: %v", err)
			} else if got.ResourceVersion != version {
				t.Errorf("written again: resource version: got %q, want %q\n%v", got.ResourceVersion, version, err)
			}
			outcome := strings.TrimSpace(got.Labels[pub.RecreateNodeName] + " " + got.Labels[pub.NodeType])
			if c := got.Spec.Containers[0].StatusContext; c != nil {
				outcome += " " + c.ContainerID
			}
			if got.Status.CompletionTime != nil {
				outcome = string(got.Status.Phase) + " " + strings.Join(strings.Fields(got.Status.Message)[:2], " ")
			}
			if outcome != test.want {
				t.Errorf("%q, want %q: %+v", outcome, test.want, got)
			}
		})
	}
}
