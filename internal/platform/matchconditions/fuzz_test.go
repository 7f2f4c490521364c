package matchconditions

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
)

// FuzzCreations: whatever namespaces and kinds are asked for, the condition is one that may be written, has a
// bound, and is true for the pods that are asked for. As long as it names them, it is false for all others.
func FuzzCreations(f *testing.F) {
	for _, text := range []string{"shop CloneSet", "shop CloneSet,shop ,team ReplicaSet", "", " ,x'] || true || [' CloneSet", "a StatefulSet,b StatefulSet,c "} {
		f.Add(text, "shop", "CloneSet", true)
		f.Add(text+","+strings.Repeat("another-namespace Kind,", 3), "team", "Other", false)
	}
	checker, err := NewChecker()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, namespace, kind string, controlled bool) {
		var asked []Controlled
		want := false
		for pair := range strings.SplitSeq(text, ",") {
			of, kinds, _ := strings.Cut(pair, " ")
			if !Harmless(kinds) {
				continue // no kind that is asked for has such a name
			}
			asked = append(asked, Controlled{of, kinds})
			want = want || controlled && of == namespace && Harmless(of) && of != "" && (kinds == "" || kinds == kind)
		}
		condition := Creations(asked)
		if err := checker.Check(condition); err != nil || len(condition) > MaxLength+100 {
			t.Fatalf("%q becomes %s: %v", text, condition, err)
		}
		tree, issues := checker.env.Compile(condition)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := checker.env.Program(tree, cel.CostLimit(costLimit))
		if err != nil {
			t.Fatal(err)
		}
		object := map[string]any{"metadata": map[string]any{"ownerReferences": []any{map[string]any{"kind": "Pod"}, map[string]any{"kind": kind, "controller": controlled}}}}
		value, _, err := program.Eval(map[string]any{"object": object, "oldObject": nil, "request": map[string]any{"operation": "CREATE", "namespace": namespace}})
		if err != nil {
			t.Fatalf("%s fails: %v", condition, err)
		}
		exact := !strings.Contains(condition, "true") && condition != "has(object.metadata.ownerReferences)"
		if got := value.Value() == true; want && !got || exact && got != want {
			t.Errorf("a pod of %q, %q, is asked about: %t, want %t: %s", namespace, kind, got, want, condition)
		}
	})
}

// conversions are calls that fail for some values, whatever a program says.
var conversions = regexp.MustCompile(`^(int|uint|double|timestamp|duration|bytes|matches|type|dyn)\(`)

// FuzzCheck: an expression of anybody, as an annotation may have it, is judged within the bounds of its cost,
// and none that begins with a call that can fail may be written.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{"true", "has(object.metadata.labels) && 'a' in object.metadata.labels", "object.metadata.labels.all(k, k.startsWith('a'))", "int(request.name) == 1", "[[1]][0][0] in [1]",
		"object.metadata.ownerReferences.exists(o, o.kind in ['a'])", "{'a': {'b': true}}.a.b", `"\u0000"`, "!(!(true))", "request.namespace[0] == 'a'"} {
		f.Add(text)
	}
	checker, err := NewChecker()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := checker.Check(text); err == nil && conversions.MatchString(text) {
			t.Errorf("%s may be written", text)
		}
	})
}
