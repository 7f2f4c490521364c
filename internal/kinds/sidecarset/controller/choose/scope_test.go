package choose

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// asked evaluates an expression as an API server does.
func asked(t testing.TB, expression, namespace string, podLabels map[string]string) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("request", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	tree, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("compiling %s: %v", expression, issues.Err())
	}
	program, err := env.Program(tree, cel.CostLimit(250000)) // a tenth of what an API server grants
	if err != nil {
		t.Fatal(err)
	}
	metadata := map[string]any{"name": "p"}
	if len(podLabels) > 0 { // an empty map is not sent
		metadata["labels"] = podLabels
	}
	value, _, err := program.Eval(map[string]any{"object": map[string]any{"metadata": metadata},
		"request": map[string]any{"namespace": namespace}})
	if err != nil {
		t.Fatalf("evaluating %s: %v", expression, err)
	}
	return value.Value().(bool)
}

func selecting(name string, pods, namespaces *metav1.LabelSelector) *appsv1beta1.SidecarSet {
	set := &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Selector, set.Spec.NamespaceSelector = pods, namespaces
	return set
}

func matching(pairs ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.MatchLabels[pairs[i]] = pairs[i+1]
	}
	return s
}

func requiring(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

// The API server asks about exactly the pods that may match (OPS-067).
func TestScope(t *testing.T) {
	paused := selecting("paused", matching("a", "1"), nil)
	paused.Spec.InjectionStrategy.Paused = true
	many := func(n int, pods func(i int) *metav1.LabelSelector) (all []*appsv1beta1.SidecarSet) {
		for i := range n {
			all = append(all, selecting(fmt.Sprintf("s%d", i), pods(i), nil))
		}
		return all
	}
	cases := map[string]struct {
		sets []*appsv1beta1.SidecarSet
		want string
	}{
		"none":            {nil, "false"},
		"paused (SS-091)": {[]*appsv1beta1.SidecarSet{paused}, "false"},
		"nothing selected (SS-080)": {[]*appsv1beta1.SidecarSet{selecting("a", nil, nil), selecting("b", &metav1.LabelSelector{}, nil),
			selecting("c", requiring("a", "Like", "b"), nil),
			selecting("d", matching("a", "1"), requiring("a", "Like", "b"))}, "false"},
		"values of one label are one list": {[]*appsv1beta1.SidecarSet{selecting("a", matching("app", "x"), nil), selecting("b",
			requiring("app", metav1.LabelSelectorOpIn, "z", "y", "x"), nil)},
			`has(object.metadata.labels) && (('app' in object.metadata.labels && object.metadata.labels['app'] in ['x', 'y', 'z']))`},
		"a namespace by name (SS-081)": {[]*appsv1beta1.SidecarSet{selecting("a", matching("app", "x"),
			matching("kubernetes.io/metadata.name", "shop", "team", "a"))},
			`has(object.metadata.labels) && ((request.namespace in ['shop'] && 'app' in object.metadata.labels && object.metadata.labels['app'] in ['x']))`},
		"all but a namespace": {[]*appsv1beta1.SidecarSet{selecting("a", requiring("a/b", metav1.LabelSelectorOpExists),
			requiring("kubernetes.io/metadata.name", metav1.LabelSelectorOpNotIn, "x"))},
			`has(object.metadata.labels) && ((!(request.namespace in ['x']) && 'a/b' in object.metadata.labels))`},
		"pods without labels": {[]*appsv1beta1.SidecarSet{selecting("a", requiring("off", metav1.LabelSelectorOpDoesNotExist), nil)},
			`((!has(object.metadata.labels) || !('off' in object.metadata.labels)))`},
		"too many for lists of values": {many(200, func(i int) *metav1.LabelSelector {
			return matching("a", fmt.Sprint("1", strings.Repeat("x", 40), i), "b", "2")
		}),
			`has(object.metadata.labels) && ('a' in object.metadata.labels)`},
		"too many keys": {many(200, func(i int) *metav1.LabelSelector { return matching(fmt.Sprint("key-", i), "1") }), "true"},
		"too many without a key": {many(200, func(i int) *metav1.LabelSelector {
			return requiring(fmt.Sprint("key-", i), metav1.LabelSelectorOpDoesNotExist)
		}), "true"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			index := &Index{}
			for _, set := range test.sets {
				index.Set(set)
			}
			got := NewScope(index, time.Now).Creations()
			if got != test.want {
				t.Errorf("%s\nnot\n%s", got, test.want)
			}
			asked(t, got, "default", map[string]string{"a": "1"})
		})
	}
}

// The condition is wide before it is narrow: what is new is in it at once, what is old for a while.
func TestScopeRemembers(t *testing.T) {
	index, now := &Index{}, time.Unix(1000, 0)
	scope := NewScope(index, func() time.Time { return now })
	index.Set(selecting("a", matching("app", "old"), nil))
	scope.Creations()
	index.Set(selecting("a", matching("app", "new"), nil))
	if both := scope.Creations(); !strings.Contains(both, "['new', 'old']") {
		t.Errorf("after a change: %s", both)
	}
	now = now.Add(matchconditions.Remembered)
	if one := scope.Creations(); !strings.Contains(one, "['new']") {
		t.Errorf("later: %s", one)
	}
	index.Delete("a")
	now = now.Add(matchconditions.Remembered / 2)
	if one := scope.Creations(); !strings.Contains(one, "['new']") {
		t.Errorf("after a deletion: %s", one)
	}
	now = now.Add(matchconditions.Remembered)
	if none := scope.Creations(); none != "false" {
		t.Errorf("in the end: %s", none)
	}
}

// SS-080: that time begins when it is found to be gone, however long ago anybody asked before.
func TestScopeRemembersWhatIsGone(t *testing.T) {
	index, now := &Index{}, time.Unix(1000, 0)
	s := NewScope(index, func() time.Time { return now })
	index.Set(selecting("a", matching("app", "x"), nil))
	before := s.Creations()
	now = now.Add(time.Hour)
	index.Delete("a")
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{0, before}, {matchconditions.Remembered - time.Second, before}, {time.Second, "false"}} {
		now = now.Add(step.after)
		if got := s.Creations(); got != step.want {
			t.Errorf("after %s: %s", step.after, got)
		}
	}
}

// Whatever the selectors are, a pod that matches is asked about; and as long as the expression is exact, no
// other is, namespaces by other labels than their names aside.
func TestScopeProperty(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		word := rapid.SampledFrom([]string{"a", "b", "c", "kubernetes.io/metadata.name"})
		selector := rapid.Custom(func(r *rapid.T) *metav1.LabelSelector {
			s := &metav1.LabelSelector{}
			for range rapid.IntRange(1, 3).Draw(r, "requirements") {
				one := metav1.LabelSelectorRequirement{Key: word.Draw(r, "key"),
					Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}).Draw(r,
						"operator")}
				if strings.HasSuffix(string(one.Operator), "In") {
					one.Values = rapid.SliceOfN(rapid.SampledFrom([]string{"1", "2", "3", ""}), 1, 3).Draw(r, "values")
				}
				s.MatchExpressions = append(s.MatchExpressions, one)
			}
			return s
		})
		index, alone := &Index{}, []string{}
		for i := range rapid.IntRange(0, 4).Draw(r, "sets") {
			set := selecting(fmt.Sprint("s", i), selector.Draw(r, "pods"), nil)
			if rapid.Bool().Draw(r, "with namespaces") {
				set.Spec.NamespaceSelector = selector.Draw(r, "namespaces")
			}
			index.Set(set)
			alone = append(alone, "("+Asks(set)+")")
		}
		pod := rapid.MapOf(word, rapid.SampledFrom([]string{"1", "2", "4", ""})).Draw(r, "pod")
		namespace := rapid.MapOf(word, rapid.SampledFrom([]string{"1", "2", "4"})).Draw(r, "namespace")
		namespace["kubernetes.io/metadata.name"] = rapid.SampledFrom([]string{"1", "2", "4"}).Draw(r, "name")
		var matched, may bool
		for _, e := range index.matches(pod) {
			may = true
			matched = matched || e.namespaces == nil || e.namespaces.Matches(labels.Set(namespace))
		}
		expression := NewScope(index, time.Now).Creations()
		got := asked(t, expression, namespace["kubernetes.io/metadata.name"], pod)
		if matched && !got || !may && got {
			r.Errorf("pod %v in %v: matched %t, may match %t, asked %t: %s", pod, namespace, matched, may, got, expression)
		}
		if each := strings.Join(append(alone, "false"), " || "); got != asked(t, each, namespace["kubernetes.io/metadata.name"], pod) {
			r.Errorf("pod %v in %v: together asked %t, one by one otherwise: %s", pod, namespace, got, each)
		}
	})
}
