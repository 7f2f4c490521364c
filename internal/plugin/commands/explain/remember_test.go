package explain

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The pods of a namespace are listed once for all its workloads that are rehearsed one after the other, not
// once for each.
func TestPodsOfANamespaceAreListedOnce(t *testing.T) {
	asked := 0
	r := &Reader{client: interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme).WithObjects(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "c"}}).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			asked++
			return c.List(ctx, list, options...)
		}})}
	r.Rehearse([]string{"--feature-gates=StatefulSetStartOrdinal=false"})
	for _, step := range []struct {
		namespace   string
		pods, asked int
	}{{"shop", 2, 1}, {"shop", 2, 1}, {"bank", 1, 2}, {"shop", 2, 3}, {"", 3, 4}, {"", 3, 5}} {
		found := 0
		if err := r.each(t.Context(), &corev1.PodList{}, func(o client.Object) error {
			found++
			o.SetName("changed") // what was handed out is the reader's own
			return nil
		}, client.InNamespace(step.namespace)); err != nil {
			t.Errorf("%+v: %v", step, err)
		}
		if found != step.pods {
			t.Errorf("%+v: found %d pods", step, found)
		}
		if asked != step.asked {
			t.Errorf("%+v: asked %d times", step, asked)
		}
	}
	args, err := r.arguments(t.Context())
	if err != nil {
		t.Errorf("arguments of the manager: %v", err)
	}
	if len(args) != 1 || args[0] != "--feature-gates=StatefulSetStartOrdinal=false" {
		t.Errorf("arguments of the manager: got %q, want its gates alone", args)
	}
}

// A list that takes so long that the API server has forgotten where it was (410, Expired) goes on with what
// the server offers.
func TestListsGoOnAfterTheirContinuationHasExpired(t *testing.T) {
	asked := []string{}
	r := &Reader{client: interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme).Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			token := (&client.ListOptions{}).ApplyOptions(options).Continue
			asked = append(asked, token)
			switch token {
			case "":
				list.SetContinue("old")
			case "old":
				expired := apierrors.NewResourceExpired("too old")
				expired.ErrStatus.Continue = "new"
				return expired
			default:
				list.SetContinue("")
			}
			return nil
		}})}
	if err := r.each(t.Context(), &corev1.PodList{}, func(client.Object) error { return nil }); err != nil {
		t.Errorf("going through the pods: %v", err)
	}
	if len(asked) != 3 {
		t.Errorf("requests: got %v, want 3", asked)
	}
}
