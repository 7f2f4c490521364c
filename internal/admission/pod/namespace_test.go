package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	build "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

// TestANamespaceThatEndsLosesItsPods: since Kubernetes 1.33 (gate OrderedNamespaceDeletion) the namespace controller
// deletes all pods of a namespace first, and workloads and budgets only when no pod is left. The workload is there still,
// wants its 3 pods, and cannot make another one, so that a budget that is used up refuses the rest for ever, and
// neither goes. PUB-D3: the deletion of a namespace must not hang.
func TestANamespaceThatEndsLosesItsPods(t *testing.T) {
	gone := metav1.NewTime(time.Now().Add(-time.Hour))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &gone, Finalizers: []string{"x/y"}},
		Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}
	budgets, _, _ := oneBudget(t, namespace) // 1 of 3 pods has gone, and 2 must stay
	budgets.Passed = func(*Disruption, string) {}
	for _, name := range []string{"web-b", "web-c"} {
		err := budgets.Check().Apply(t.Context(), &Disruption{Pod: build.Pod(name), By: policyv1beta1.Delete,
			User: "system:serviceaccount:kube-system:namespace-controller"})
		if err != nil {
			t.Errorf("pod %s of a namespace that is being deleted stays for ever: %v", name, err)
		}
	}
}
