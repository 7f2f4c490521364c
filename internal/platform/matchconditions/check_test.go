package matchconditions

import (
	"strings"
	"testing"
)

// An expression that an API server could not evaluate, or not always, is found before it is written.
func TestExpressionsAreChecked(t *testing.T) {
	c, err := NewChecker()
	if err != nil {
		t.Fatal(err)
	}
	for expression, good := range map[string]bool{
		"true": true,
		"has(object.metadata.labels) && 'app' in object.metadata.labels && object.metadata.labels['app'] in ['web']": true,
		"!(request.namespace in ['a', 'b'])": true,
		"has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller)": true,
		"": false, "request.namespace in ['a": false, "'text'": false, "object.metadata.labels['app'] == 'web'": false,
		"int(request.operation) == 1":    false, // as it was smuggled in
		"[1, 2].all(x, 10 / 0 == x)":     false,
		"request.namespace.matches('[')": false, "object.metadata.nothing": false,
		strings.Repeat("(", 10_000) + "true" + strings.Repeat(")", 10_000): false,
	} {
		if err := c.Check(expression); (err == nil) != good {
			t.Errorf("expression %.200s: got error %v, want it accepted: %t", expression, err, good)
		}
	}
}

// Names that are no names are in no list; requests in them do not exist.
func TestNamespacesOfAConditionAreNames(t *testing.T) {
	for want, names := range map[string][]string{"false": {"a'b", ""}, "request.namespace in ['a']": {"x'] || true || ['", "a"}} {
		if got := Within(names); got != want {
			t.Errorf("condition of the namespaces %q: got %s, want %s", names, got, want)
		}
	}
}
