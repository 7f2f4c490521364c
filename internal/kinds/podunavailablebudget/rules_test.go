package podunavailablebudget_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	build "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

func cpu(quantity string) resource.Quantity { return resource.MustParse(quantity) }

type option = func(*policyv1beta1.PodUnavailableBudget)

// TestDesired shows how many pods must stay in service, with the examples of the specification (PUB-050,
// PUB-051).
func TestDesired(t *testing.T) {
	max, min := build.MaxUnavailable, build.MinAvailable
	for name, tt := range map[string]struct {
		number option
		total  int32
		want   int32
	}{
		"max 30% of 10":                     {max(new(intstr.FromString("30%"))), 10, 7},
		"max 30% of 15 is rounded up":       {max(new(intstr.FromString("30%"))), 15, 10},
		"max 30% of 1":                      {max(new(intstr.FromString("30%"))), 1, 0},
		"max 0":                             {max(new(intstr.FromInt32(0))), 10, 10},
		"max 0%":                            {max(new(intstr.FromString("0%"))), 10, 10},
		"max 3":                             {max(new(intstr.FromInt32(3))), 10, 7},
		"max above the total":               {max(new(intstr.FromInt32(11))), 10, 0},
		"max 100%":                          {max(new(intstr.FromString("100%"))), 10, 0},
		"min 3":                             {min(new(intstr.FromInt32(3))), 10, 3},
		"min above the total is not cut":    {min(new(intstr.FromInt32(11))), 10, 11},
		"min 30% of 15 is rounded up":       {min(new(intstr.FromString("30%"))), 15, 5},
		"min 100%":                          {min(new(intstr.FromString("100%"))), 3, 3},
		"min 1% of 1":                       {min(new(intstr.FromString("1%"))), 1, 1},
		"min 0":                             {min(new(intstr.FromInt32(0))), 10, 0},
		"max of nothing":                    {max(new(intstr.FromInt32(1))), 0, 0},
		"max 1% of as many as can be":       {max(new(intstr.FromString("1%"))), math.MaxInt32, 2126008810},
		"min 200%, which admission refuses": {min(new(intstr.FromString("200%"))), math.MaxInt32, math.MaxInt32},
	} {
		if got, err := podunavailablebudget.Desired(&build.Budget(tt.number).Spec, tt.total); err != nil {
			t.Errorf("%s: unexpected error: %v; %d, %v; want %d", name, err, got, err, tt.want)
		} else if got != tt.want {
			t.Errorf("%s: got %d, want %d; %d, %v; want %d", name, got, tt.want, got, err, tt.want)
		}
	}
	for name, number := range map[string]option{"no number": max(nil), "no percentage": max(new(intstr.FromString("many")))} {
		if got, err := podunavailablebudget.Desired(&build.Budget(number).Spec, 3); err == nil {
			t.Errorf("%s: got %d, want an error", name, got)
		}
	}
}

// TestPercentagesAreRoundedUp compares with whole numbers alone (PUB-050 (part), PUB-051 (part)).
func TestPercentagesAreRoundedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		percent, total := rapid.Int64Range(0, 100).Draw(t, "percent"), rapid.Int64Range(0, math.MaxInt32).Draw(t, "total")
		part := (percent*total + 99) / 100
		text := new(intstr.FromString(fmt.Sprint(percent, "%")))
		least, err := podunavailablebudget.Desired(&build.Budget(build.MinAvailable(text)).Spec, int32(total))
		if err != nil {
			t.Fatalf("min: %v", err)
		}
		if int64(least) != part {
			t.Fatalf("min: got %d, want %d", least, part)
		}
		left, err := podunavailablebudget.Desired(&build.Budget(build.MaxUnavailable(text)).Spec, int32(total))
		if err != nil {
			t.Fatalf("max: %v", err)
		}
		if int64(left) != total-part {
			t.Fatalf("max: got %d, want %d", left, total-part)
		}
	})
}

// TestWhatABudgetCovers shows the pods of a selector, and those of a workload that stands anywhere above them
// (PUB-035 (part), PUB-037 (part), PUB-072).
func TestWhatABudgetCovers(t *testing.T) {
	above := func(chain ...string) (references []podunavailablebudget.Reference) {
		for i := 0; i < len(chain); i += 3 {
			references = append(references, podunavailablebudget.Reference{
				GroupKind: schema.GroupKind{Group: chain[i], Kind: chain[i+1]}, Name: chain[i+2]})
		}
		return references
	}
	pod := build.Pod("p")
	target := build.Target
	for name, tt := range map[string]struct {
		option option
		above  []podunavailablebudget.Reference
		want   bool
	}{
		"its labels": {func(*policyv1beta1.PodUnavailableBudget) {}, nil, true},
		"other labels": {func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.Selector.MatchLabels["app"] = "db" },
			above("apps", "ReplicaSet", "web"), false},
		"an empty selector selects nothing": {func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.Selector = &metav1.LabelSelector{} }, nil,
			false},
		"nor one that cannot be read": {func(b *policyv1beta1.PodUnavailableBudget) {
			b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}
		}, nil, false},
		"nor none at all": {func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.Selector = nil }, nil, false},
		"its controller":  {target("apps/v1", "ReplicaSet", "web"), above("apps", "ReplicaSet", "web"), true},
		"what controls that": {target("apps/v1", "Deployment", "web"), above("apps", "ReplicaSet", "web-1", "apps", "Deployment",
			"web"), true},
		"what controls that, again": {target("x.io/v1", "Fleet", "web"), above("apps.kruise.io", "CloneSet", "a", "x.io", "Fleet",
			"web"), true},
		"another version of the API": {target("apps.kruise.io/v1alpha1", "CloneSet", "web"), above("apps.kruise.io", "CloneSet", "web"),
			true},
		"another group": {target("apps.kruise.io/v1beta1", "StatefulSet", "web"), above("apps", "StatefulSet", "web"), false},
		"another kind":  {target("apps/v1", "StatefulSet", "web"), above("apps", "ReplicaSet", "web"), false},
		"another name":  {target("apps/v1", "ReplicaSet", "db"), above("apps", "ReplicaSet", "web"), false},
		"no controller": {target("apps/v1", "ReplicaSet", "web"), nil, false},
	} {
		if got := build.Rules(tt.option).Covers(pod, tt.above); got != tt.want {
			t.Errorf("%s: the budget covers the pod: got %t, want %t", name, got, tt.want)
		}
	}
}

// TestWhichBudgetDecides shows who decides about a pod that several budgets cover (PUB-070 (part),
// PUB-073 (part), PUB-076 (part)).
func TestWhichBudgetDecides(t *testing.T) {
	named, created := build.Named, build.Created
	target := build.Target("apps/v1", "ReplicaSet", "web")
	day := func(n int) option { return created(build.Now.AddDate(0, 0, n)) }
	all := []*podunavailablebudget.Rules{build.Rules(named("a"), day(-9)), build.Rules(named("b"), target, day(-1)),
		build.Rules(named("d"), target, day(-2)),
		build.Rules(named("c"), target, day(-2))}
	for name, tt := range map[string]struct {
		pod      *corev1.Pod
		covering []*podunavailablebudget.Rules
		want     string
	}{
		"none":                                  {build.Pod("p"), nil, ""},
		"a workload before labels, older, name": {build.Pod("p"), all, "c"},
		"the older":                             {build.Pod("p"), all[:3], "d"},
		"a workload before labels":              {build.Pod("p"), all[:2], "b"},
		"the one that the pod names":            {build.Pod("p", build.Noted(pub.RelatedBudget, "a")), all, "a"},
		"by the former key":                     {build.Pod("p", build.Noted(pub.RelatedBudgetLegacy, "a")), all, "a"},
		"by both": {build.Pod("p", build.Noted(pub.RelatedBudgetLegacy, "a"),
			build.Noted(pub.RelatedBudget, "b")), all, "b"},
		"one that does not cover it is nobody's": {build.Pod("p", build.Noted(pub.RelatedBudget, "z")), all, "c"},
		"an empty name frees nothing":            {build.Pod("p", build.Noted(pub.RelatedBudget, "")), all, "c"},
	} {
		for range 2 { // whatever the order
			slices.Reverse(tt.covering)
			got := ""
			if related := podunavailablebudget.Related(tt.pod, tt.covering); related != nil {
				got = related.Budget.Name
			}
			if got != tt.want {
				t.Errorf("%s: got %q, want %q", name, got, tt.want)
			}
		}
	}
}

// TestOverlappingBudgetsAreTold names the other budgets that cover active pods of one, so that users are told
// (PUB-073 (part)).
func TestOverlappingBudgetsAreTold(t *testing.T) {
	other := func(b *policyv1beta1.PodUnavailableBudget) {
		b.Spec.Selector.MatchLabels = map[string]string{"tier": "front"}
	}
	leaving := func(b *policyv1beta1.PodUnavailableBudget) {
		at := build.Pod("p", build.Terminating)
		b.DeletionTimestamp = at.DeletionTimestamp
	}
	web := build.Rules()
	all := []*podunavailablebudget.Rules{web, build.Rules(build.Named("front"), other), build.Rules(build.Named("leaving"), leaving),
		build.Rules(build.Named("of-a-workload"), build.Target("apps/v1", "ReplicaSet", "web"))}
	front := build.Labelled("tier", "front")
	for name, tt := range map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"none":                            {build.Pods(2), nil},
		"labels of two":                   {append(build.Pods(2), build.Pod("x", front), build.Pod("y", front)), []string{"front"}},
		"of a pod that ends":              {[]*corev1.Pod{build.Pod("x", front, build.Terminating)}, nil},
		"a pod says that another decides": {[]*corev1.Pod{build.Pod("x", build.Noted(pub.RelatedBudget, "of-a-workload"))}, []string{"of-a-workload"}},
		"which is not there":              {[]*corev1.Pod{build.Pod("x", build.Noted(pub.RelatedBudget, "gone"))}, nil},
		"it decides itself":               {[]*corev1.Pod{build.Pod("x", build.Noted(pub.RelatedBudget, "web"))}, nil},
		"both":                            {[]*corev1.Pod{build.Pod("x", front, build.Noted(pub.RelatedBudget, "of-a-workload"))}, []string{"front", "of-a-workload"}},
	} {
		if diff := cmp.Diff(tt.want, web.Rivals(tt.pods, all), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: rivals of the budget (-want +got):\n%s", name, diff)
		}
	}
}

// TestABudgetLimitsProtectedOperations shows which operations a budget limits, with each gate (PUB-012,
// PUB-085; PUB-016 (part)).
func TestABudgetLimitsProtectedOperations(t *testing.T) {
	protects := build.Protects
	note := func(text string) option { return build.Annotated(pub.BudgetOperations, text) }
	none := func(*policyv1beta1.PodUnavailableBudget) {}
	type gates = podunavailablebudget.Options
	all := build.AllGates
	for name, tt := range map[string]struct {
		options []option
		gates   gates
		want    []policyv1beta1.PodUnavailableBudgetOperation
	}{
		"nothing said": {[]option{none}, all, operations("DELETE", "EVICT", "UPDATE")},
		"all": {[]option{protects(policyv1beta1.BudgetOperations...)}, all,
			operations("DELETE", "EVICT", "RESIZE", "UPDATE")},
		"one":                               {[]option{protects(policyv1beta1.Evict)}, all, operations("EVICT")},
		"by the annotation":                 {[]option{note(" DELETE, RESIZE ")}, all, operations("DELETE", "RESIZE")},
		"the field wins":                    {[]option{note("DELETE"), protects(policyv1beta1.Update)}, all, operations("UPDATE")},
		"an annotation that cannot be read": {[]option{note("DELETE,STOP")}, all, operations("DELETE", "EVICT", "UPDATE")},
		"an annotation of nothing":          {[]option{note(" , ")}, all, operations("DELETE", "EVICT", "UPDATE")},
		"no gate":                           {[]option{none}, gates{}, nil},
		"deletions alone": {[]option{protects(policyv1beta1.BudgetOperations...)}, gates{Deletes: true, Resizes: true},
			operations("DELETE", "EVICT")},
		"updates alone": {[]option{protects(policyv1beta1.BudgetOperations...)}, gates{Updates: true, Resizes: true},
			operations("RESIZE", "UPDATE")},
		"a resize that restarts counts as update": {[]option{none}, gates{Updates: true}, operations("RESIZE", "UPDATE")},
		"but not where updates are not limited": {[]option{protects(policyv1beta1.Delete)}, gates{Updates: true, Deletes: true},
			operations("DELETE")},
		"a resize that restarts, without its gate": {[]option{none}, gates{Deletes: true}, operations("DELETE", "EVICT")},
		"resizes alone, which are expected to stop": {[]option{protects(policyv1beta1.Resize)}, gates{Updates: true},
			operations("RESIZE")},
	} {
		rules := build.Rules(tt.options...)
		var got []policyv1beta1.PodUnavailableBudgetOperation
		for _, by := range slices.Sorted(slices.Values(policyv1beta1.BudgetOperations)) {
			if rules.Protects(by, tt.gates) {
				got = append(got, by)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

func operations(words ...policyv1beta1.PodUnavailableBudgetOperation) []policyv1beta1.PodUnavailableBudgetOperation {
	return words
}

// PUB-D7: more CPU or memory for containers that need not restart for that uses nothing up, and is allowed
// where nothing else is.
func TestResizesThatRestartNothingAreFree(t *testing.T) {
	for _, what := range []string{"cpu", "memory"} {
		before, after := podDocument(t), podDocument(t)
		set(t, after, "3", "spec", "containers", 1, "resources", "requests", what)
		by := changed(t, before, after)
		ledger := podunavailablebudget.NewLedger(build.Rules(build.Counted(3, 3, 3)), build.AllGates, build.Now)
		d := ledger.Book(build.Pod("p"), by)
		if by != policyv1beta1.Resize {
			t.Errorf("by: got %q, want %q; %s by %s: %+v", by, policyv1beta1.Resize, what, by, d)
		}
		if !d.Allowed {
			t.Errorf("allowed: got false, want true; %s by %s: %+v", what, by, d)
		}
		if d.Booked {
			t.Errorf("booked: got true, want false; %s by %s: %+v", what, by, d)
		}
		if got := ledger.Changes(); got != nil {
			t.Errorf("changes of the ledger: got %v, want nil; %s by %s: %+v", got, what, by, d)
		}
		if d := ledger.Book(build.Pod("p"), policyv1beta1.Update); d.Allowed {
			t.Errorf("an update: %+v", d)
		}
	}
}

// TestRulesAreKeptWhileTheySayTheSame shows that the rules of a budget are made anew where its spec or its
// annotations differ, or where it is another one of the name, and not for its status.
func TestRulesAreKeptWhileTheySayTheSame(t *testing.T) {
	rules := build.Rules()
	for name, tt := range map[string]struct {
		change option
		want   bool
	}{
		"its status":          {build.Counted(3, 2, 3), true},
		"its generation":      {func(b *policyv1beta1.PodUnavailableBudget) { b.Generation++ }, false},
		"its annotations":     {build.Annotated(pub.BudgetTotalReplicas, "3"), false},
		"another of its name": {func(b *policyv1beta1.PodUnavailableBudget) { b.UID = "other" }, false},
	} {
		budget := build.Budget(tt.change)
		if got := rules.Same(budget); got != tt.want {
			t.Errorf("%s: the rules are the same: got %t, want %t", name, got, tt.want)
		}
		with := rules.With(budget)
		if with.Budget != budget {
			t.Errorf("budget: got %+v, want %+v; %s: rules with another version of the budget", with.Budget, budget,
				name)
		}
		if rules.Budget == budget {
			t.Errorf("budget of the rules: got %+v, want another value; %s: rules with another version of the budget",
				rules.Budget, name)
		}
		if !with.Selects(build.Pod("p")) {
			t.Errorf(`the budget selects the pod: got false, want true; %s: rules with another version of the budget`,
				name)
		}
	}
}

// TestControllerOf is the controller alone, whatever else owns the pod.
func TestControllerOf(t *testing.T) {
	pod := build.Pod("p", func(pod *corev1.Pod) {
		pod.OwnerReferences = append([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c"}}, pod.OwnerReferences...)
	}, build.Since(build.Now.Add(-time.Minute)))
	want := podunavailablebudget.Reference{GroupKind: schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, Name: "web"}
	if got, found := podunavailablebudget.ControllerOf(pod); !found {
		t.Errorf("found: got false, want true\n%v", got)
	} else if got != want {
		t.Errorf("owner of the pod: got %v, want %v\n%v", got, want, found)
	}
	pod.OwnerReferences = pod.OwnerReferences[:1]
	if got, found := podunavailablebudget.ControllerOf(pod); found {
		t.Errorf("found: got true, want false\n%v", got)
	}
}
