package matchconditions

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Controlled asks for the pods of a namespace whose controller has that kind, or any if it is empty.
type Controlled struct{ Namespace, Kind string }

// Creations is the condition of pods that are created; "false" if none is asked for. A kind must be
// [Harmless].
func Creations(asked []Controlled) string {
	byNamespace := map[string]sets.Set[string]{}
	for _, t := range asked {
		if byNamespace[t.Namespace] == nil {
			byNamespace[t.Namespace] = sets.New[string]()
		}
		byNamespace[t.Namespace].Insert(t.Kind)
	}

	byKinds := map[string][]string{} // the namespaces that ask for the same kinds
	for namespace, kinds := range byNamespace {
		list := ""
		if !kinds.Has("") {
			list = "['" + strings.Join(sets.List(kinds), "', '") + "']"
		}
		byKinds[list] = append(byKinds[list], namespace)
	}

	var terms []string
	for _, kinds := range slices.Sorted(maps.Keys(byKinds)) {
		controlled := "o.controller"
		if kinds != "" {
			controlled += " && o.kind in " + kinds
		}
		terms = append(terms,
			fmt.Sprintf("(%s && object.metadata.ownerReferences.exists(o, has(o.controller) && %s))",
				Within(byKinds[kinds]), controlled))
	}

	const controlled = "has(object.metadata.ownerReferences)"
	text := controlled + " && (" + strings.Join(terms, " || ") + ")"
	switch {
	case len(terms) == 0:
		return "false"
	case len(text) > MaxLength:
		return controlled
	}

	return text
}
