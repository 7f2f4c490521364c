package podplan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// TestWhichVerdictsDisrupt shows by which operation budgets are asked about what is decided (PUB-100 (part),
// PUB-101 (part)).
func TestWhichVerdictsDisrupt(t *testing.T) {
	updates := func(change inplace.Change) Verdict {
		return Verdict{Action: UpdateInPlace, Update: &inplace.Update{Change: &change}}
	}
	image := inplace.Parts{Images: map[string]string{"c": "a:2"}}
	size := inplace.Parts{Resources: map[string]corev1.ResourceRequirements{"c": {}}}
	for name, tt := range map[string]struct {
		verdict Verdict
		want    disruption.Operation
	}{
		"delete":                               {Verdict{Action: Delete}, policyv1beta1.Delete},
		"marked for recreation":                {Verdict{Action: Recreate}, ""},
		"prepares its deletion":                {Verdict{Action: Patch, Prepares: policyv1beta1.Delete}, policyv1beta1.Delete},
		"prepares its update":                  {Verdict{Action: Patch, Prepares: policyv1beta1.Update}, policyv1beta1.Update},
		"another patch":                        {Verdict{Action: Patch}, ""},
		"a container stops":                    {updates(inplace.Change{Parts: image, Stops: []string{"c"}}), policyv1beta1.Update},
		"the environment":                      {updates(inplace.Change{Stops: []string{"c"}}), policyv1beta1.Update},
		"a resize":                             {updates(inplace.Change{Parts: size}), policyv1beta1.Resize},
		"a resize that stops":                  {updates(inplace.Change{Parts: size, Stops: []string{"c"}}), policyv1beta1.Update},
		"an image of a container that is done": {updates(inplace.Change{Parts: image}), policyv1beta1.Update},
		"metadata":                             {updates(inplace.Change{Labels: map[string]*string{"a": nil}}), ""},
		"the next batch, of one that is down":  {Verdict{Action: Continue}, ""},
		"keep":                                 {Verdict{Action: Keep}, ""},
		"wait":                                 {Verdict{Action: Wait, Reason: ReasonBudget}, ""},
		"release":                              {Verdict{Action: Release}, ""},
		"adopt":                                {Verdict{Action: Adopt}, ""},
	} {
		if got := tt.verdict.Disruption(); got != tt.want {
			t.Errorf("%s: %q, not %q", name, got, tt.want)
		}
	}
}

// few lets so many pods go.
type few struct {
	left  int
	asked []string
}

func (f *few) Take(pod *corev1.Pod, by disruption.Operation) string {
	f.asked = append(f.asked, string(by)+" "+pod.Name)
	if f.left--; f.left < 0 {
		return "budget web, 2 of 3"
	}
	return ""
}

// TestHeedBudgets asks once about each decision that stands, in the order in which they were made, and lets
// pods wait with the words of the budget (PUB-100 (part), PUB-101 (part)).
func TestHeedBudgets(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	type asked struct {
		Asked []string
		Stuck bool
	}
	limits, out := &few{left: 1}, Plan{}
	p := New(&Workload{}, &Snapshot{Disruptions: limits, Now: now}, &out)
	heed := func(want asked) {
		t.Helper()
		limits.asked = nil
		stuck := p.HeedBudgets()
		if diff := cmp.Diff(want, asked{limits.asked, stuck}); diff != "" {
			t.Errorf("what budgets are asked, and whether all is stuck (-want +got):\n%s", diff)
		}
	}
	heed(asked{})
	p.Decide(pods["c"], Delete, ReasonScaleIn, "it goes")
	p.Decide(pods["a"], Keep, ReasonUpToDate, "it stays")
	p.Decide(pods["b"], Delete, ReasonScaleIn, "it goes")
	p.Decide(pods["d"], Delete, ReasonScaleIn, "it goes")
	p.Decide(pods["d"], Patch, ReasonLifecycleHook, "it does not")
	heed(asked{Asked: []string{"DELETE c", "DELETE b"}})
	heed(asked{}) // of each once
	p.Decide(pods["e"], Delete, ReasonScaleIn, "it goes")
	heed(asked{Asked: []string{"DELETE e"}, Stuck: true})
	held := &Verdict{Pod: pods["b"], Action: Wait, Reason: ReasonBudget, Message: "budget web, 2 of 3", Until: now.Add(time.Second)}
	if diff := cmp.Diff(held, p.Verdict(pods["b"])); diff != "" {
		t.Errorf("the verdict about a pod that a budget holds (-want +got):\n%s", diff)
	}
	if !out.HeldByBudget {
		t.Error("the plan is not told to be held by a budget")
	}
	for name, want := range map[string]Action{"a": Keep, "c": Delete, "d": Patch, "e": Wait} {
		if got := p.Verdict(pods[name]).Action; got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
}
