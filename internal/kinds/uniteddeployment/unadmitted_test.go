package uniteddeployment

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// UD-015: an object that no webhook completed has ten old revisions kept, as many replicas as its subsets say
// or else one, and may select by expressions alone.
func TestAnObjectThatNoWebhookCompletedIsPlanned(t *testing.T) {
	object := united(t, deployment, `,"selector":{"matchExpressions":[{"key":"app","operator":"In","values":["web"]}]},"topology":{"subsets":[{"name":"a","replicas":2},{"name":"b","replicas":5}]}`)
	object.UID = "ud"
	s := Snapshot{United: object, Now: time.Unix(1e9, 0)}
	for i := range 13 {
		s.Revisions = append(s.Revisions, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i), Namespace: "shop",
			UID: types.UID(fmt.Sprint(i))}, Revision: int64(i + 1), Data: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"template":{"$patch":"replace","x":%d}}}`, i)}})
	}
	plan := Make(s)
	if plan.Fault != nil {
		t.Fatalf("fault: got %+v, want nil\n%s", plan.Fault, plan)
	} else if plan.Refused != nil {
		t.Fatalf("refused: got %+v, want nil\n%s", plan.Refused, plan)
	} else if len(plan.Subsets) != 2 {
		t.Fatalf("number of subsets: got %d, want 2\n%s", len(plan.Subsets), plan)
	} else if plan.Subsets[0].Wanted.Replicas != 2 {
		t.Fatalf("wanted replicas of the first subset: got %d, want 2\n%s", plan.Subsets[0].Wanted.Replicas, plan)
	} else if plan.Subsets[1].Wanted.Replicas != 5 {
		t.Fatalf("wanted replicas of the second subset: got %d, want 5\n%s", plan.Subsets[1].Wanted.Replicas, plan)
	}
	if len(plan.History) != 3 {
		t.Errorf("deleted: number of revisions that go: got %d, want 3", len(plan.History))
	} else if plan.History[0].Name != "web-0" {
		t.Errorf("deleted: name of the first revision that goes: got %q, want %q; %d revisions",
			plan.History[0].Name, "web-0", len(plan.History))
	}
	child, err := plan.Template.Build(object, plan.Subsets[0].Subset, plan.Subsets[0].Wanted)
	if err != nil {
		t.Errorf("unexpected error: %v\n%v", err, child)
	} else if got := within(child, "spec", "selector")["matchExpressions"]; got == nil {
		t.Errorf("expressions of the selector of the child: got nil, want a value\n%v\n%v", child, err)
	}
	for i := range object.Spec.Topology.Subsets {
		object.Spec.Topology.Subsets[i].Replicas = nil
	}
	if plan := Make(s); plan.Subsets[0].Wanted.Replicas+plan.Subsets[1].Wanted.Replicas != 1 {
		t.Errorf("wanted replicas of both subsets: got %d, want 1\n%s",
			plan.Subsets[0].Wanted.Replicas+plan.Subsets[1].Wanted.Replicas, plan)
	}
}

// UD-016: a patch is a strategic merge patch of the pod template, metadata and spec, and leaves the workload
// itself alone. It is applied last, over node selectors and tolerations.
func TestPatchesArePutOverNodesAndTolerations(t *testing.T) {
	object := united(t, deployment, subsets(`{"name":"a","nodeSelectorTerm":{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]},"tolerations":[{"key":"k","operator":"Exists"}],
		"patch":{"metadata":{"labels":{"pool":"a"}},"spec":{"affinity":null,"tolerations":[{"key":"other","operator":"Exists"}],"containers":[{"name":"main","env":[{"name":"POOL","value":"a"}]}]}}}`))
	template, err := TemplateOf(&object.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	s := &object.Spec.Topology.Subsets[0]
	child, err := template.Build(object, s, Wanted{Replicas: 1, Revision: "r", Patch: string(s.Patch.Raw)})
	if err != nil {
		t.Fatal(err)
	}
	want := parsed(t, `{"metadata":{"labels":{"app":"web","pool":"a","apps.kruise.io/subset-name":"a","apps.kruise.io/controller-revision-hash":"r"}},
		"spec":{"tolerations":[{"key":"other","operator":"Exists"}],"containers":[{"name":"main","image":"nginx","env":[{"name":"POOL","value":"a"}]}]}}`)
	if diff := cmp.Diff(encode(t, want), encode(t, within(child, "spec", "template"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if labels := within(child, "metadata", "labels"); labels["pool"] != nil {
		t.Errorf("the workload has labels %v", labels)
	}
}

// UD-173: fixed numbers that do not fit are refused, which a condition and an event tell, and the manual says
// so.
func TestNumbersThatDoNotFitAreSeen(t *testing.T) {
	object := united(t, deployment, `"replicas":1,"topology":{"subsets":[{"name":"a","replicas":2},{"name":"b"}]}`)
	plan := Make(Snapshot{United: object, Now: time.Unix(1e9, 0)})
	if plan.Refused == nil {
		t.Fatalf("refused: got nil, want a value\n%s", plan)
	} else if plan.Refused.Reason != "FailedSpecifySubsetReplicas" {
		t.Fatalf("reason of the refusal: got %q, want %q\n%s", plan.Refused.Reason, "FailedSpecifySubsetReplicas",
			plan)
	} else if !strings.Contains(plan.Refused.Message, "2") {
		t.Fatalf("message of the refusal: got %q, want it to contain %q\n%s", plan.Refused.Message, "2", plan)
	} else if len(plan.Notes) != 1 {
		t.Fatalf("number of notes: got %d, want 1\n%s", len(plan.Notes), plan)
	}
	plan.Finish(Outcome{}, time.Unix(1e9, 0))
	page, err := os.ReadFile("../../../docs/kinds/uniteddeployment.md")
	if err != nil {
		t.Errorf("reading the page: %v", err)
	}
	if !strings.Contains(string(page), "**Numbers that do not fit** are not smoothed") {
		t.Error("the page says something else of numbers that do not fit")
	}
	for i := range plan.Status.Conditions {
		if c := &plan.Status.Conditions[i]; c.Type == appsv1beta1.SubsetUpdated && c.Status == "False" && c.Message == plan.Refused.Message {
			return
		}
	}
	t.Errorf("conditions: got %+v, want SubsetUpdated False with %q", plan.Status.Conditions,
		plan.Refused.Message)
}
