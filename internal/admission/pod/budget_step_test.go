package pod

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	podunavailablebudgetcontroller "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/controller"
	build "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

// PUB-071, PUB-074: a new pod is told by both annotations of the budget of its namespace that covers it, by
// its labels or by what controls it, whatever the version of that. What cannot be found out blocks no pod;
// TestWhatPodsSayOfTheirBudgets shows that the controller tells it later, as it tells pods that no webhook
// sees. TestOtherPods shows that none is sent because of a budget.
func TestNewPodsAreToldOfTheirBudget(t *testing.T) {
	yes := true
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "rs", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "deployment", Controller: &yes}}}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "deployment"}}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1.SchemeGroupVersion})
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	of := func(pod *corev1.Pod) { pod.OwnerReferences[0].Name, pod.OwnerReferences[0].UID = set.Name, set.UID }
	unowned := func(pod *corev1.Pod) { pod.OwnerReferences = nil }
	elsewhere := func(b *policyv1beta1.PodUnavailableBudget) { b.Namespace = "elsewhere" }
	target := func(apiVersion, kind, name string) *policyv1beta1.PodUnavailableBudget {
		return build.Budget(build.Named("target"), build.Target(apiVersion, kind, name))
	}
	for name, tt := range map[string]struct {
		budget *policyv1beta1.PodUnavailableBudget
		pod    *corev1.Pod
		broken error
		want   string
	}{
		"its labels":               {build.Budget(), build.Pod("p", unowned), nil, "web"},
		"other labels":             {build.Budget(), build.Pod("p", unowned, build.Labelled("app", "db")), nil, ""},
		"labels, elsewhere":        {build.Budget(elsewhere), build.Pod("p", unowned), nil, ""},
		"its controller":           {target("apps/v1", "ReplicaSet", "web-1"), build.Pod("p", of), nil, "target"},
		"what controls that":       {target("apps/v1beta2", "Deployment", "web"), build.Pod("p", of), nil, "target"},
		"another group":            {target("x.io/v1", "Deployment", "web"), build.Pod("p", of), nil, ""},
		"another kind":             {target("apps/v1", "StatefulSet", "web"), build.Pod("p", of), nil, ""},
		"another name":             {target("apps/v1", "Deployment", "api"), build.Pod("p", of), nil, ""},
		"nobody can find that out": {target("apps/v1", "Deployment", "web"), build.Pod("p", of), errors.New("no answer"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			index := &podunavailablebudgetcontroller.Index{}
			index.Set(tt.budget)
			live := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(set, deployment).Build(), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if tt.broken != nil {
						return tt.broken
					}
					return c.Get(ctx, key, o, options...)
				}})
			guard := podunavailablebudgetcontroller.NewGuard(live, live, index, podunavailablebudgetcontroller.NewOwners(live, mapper, clock.RealClock{}),
				podunavailablebudget.Options{}, func(context.Context) error { return nil }, time.Now)
			tt.pod.Namespace = ""
			raw, err := json.Marshal(tt.pod)
			if err != nil {
				t.Fatal(err)
			}
			changes, _, err := NewChain((&Budgets{Guard: guard}).Step()).Mutate(t.Context(), Request{Raw: raw, Namespace: "shop"})
			if err != nil {
				t.Fatal("it blocks the pod:", err)
			}
			var want, got []string
			if tt.want != "" {
				want = []string{"/metadata/annotations", tt.want, tt.want}
			}
			for _, change := range changes {
				annotations, _ := change.Value.(map[string]any)
				for _, key := range []string{"pub.kruise.io/related-pub", "kruise.io/related-pub"} {
					value, _ := annotations[key].(string)
					got = append(got, value)
				}
				got = append([]string{change.Path}, got...)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("changes (-want +got):\n%s%v", diff, changes)
			}
		})
	}
}
