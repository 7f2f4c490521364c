package podapply

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// TestAClaimThatGoesIsNoFailure: the claim that a new pod was to take over belongs to a pod that goes, which
// only the API server knows as yet. No pod is created; that is no failed attempt, after which creation
// pauses, but calls for another plan.
func TestAClaimThatGoesIsNoFailure(t *testing.T) {
	yes := true
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-web-a",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-a", UID: "former", Controller: &yes}}}}
	server := fake.NewClientBuilder().WithObjects(claim).Build()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "owner"}}
	api := reconcile.NewAPI(server, server, func(o any) (any, error) { return o, nil }, time.Now)
	plan := &podplan.Plan{Create: []podplan.Creation{{Name: "web-a", Reused: []string{claim.Name}, Pod: map[string]any{"apiVersion": "v1",
		"kind": "Pod", "metadata": map[string]any{"namespace": "shop", "name": "web-a"}}}}}
	result := &Result{}
	NewExecution(api.For(owner.UID), nil, owner, nil, plan).Pods(t.Context(), result, plan.Create)
	if result.CreateError != nil {
		t.Errorf("failed attempt to create: got %v, want none", result.CreateError)
	}
	if result.ScaleError != nil {
		t.Errorf("failed attempt to scale: got %v, want none", result.ScaleError)
	}
	if !result.Retry {
		t.Error("another plan is not called for")
	}
	if result.Created != 0 {
		t.Errorf("created pods that are counted: got %d, want 0", result.Created)
	}
	var pods corev1.PodList
	if err := server.List(t.Context(), &pods, client.InNamespace("shop")); err != nil {
		t.Errorf("listing the pods: %v", err)
	}
	if len(pods.Items) != 0 {
		t.Errorf("pods: got %v, want none", pods.Items)
	}
}
